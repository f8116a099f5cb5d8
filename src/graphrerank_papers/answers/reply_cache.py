"""Replies on disk, each from the moment it comes: what was answered is never asked again, whenever a run is stopped."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from graphrerank.caching import BlobStore, hash_texts, short_hash
from graphrerank.language_models.reply import KEPT, Reply, ReplyingModel


class ReplyCache:
    """A replying model with a cache on disk.

    Replies lie in ``<folder>/<hash of the model's fingerprint>.sqlite``, under system message and question. Each is
    written before the next one is looked at: a run that is killed loses the replies that were under way, as many as the
    model is asked at once. What failed or was rejected is not kept.
    """

    def __init__(self, model: ReplyingModel, folder: str | Path | None) -> None:
        self.model = model
        self.folder = None if folder is None else Path(folder)

    @property
    def fingerprint(self) -> str:
        """The wrapped model's fingerprint."""
        return self.model.fingerprint

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        """Ask each question, or read its reply from disk; equal questions are asked once."""
        path = None if self.folder is None else self.folder / f"{short_hash(self.fingerprint)}.sqlite"
        store = BlobStore(path, "replies")
        rows: dict[bytes, list[int]] = {}
        for row, question in enumerate(questions):
            rows.setdefault(hash_texts([question] if system is None else [system, question]), []).append(row)
        known = store.known(list(rows))
        waiting = [key for key in rows if key not in known]
        for key in rows.keys() - set(waiting):
            reply = _read(known[key], path)
            yield from ((row, reply) for row in rows[key])
        if waiting:
            store.check_writable()
        for index, reply in self.model.replies([questions[rows[key][0]] for key in waiting], system=system):
            if reply.outcome in KEPT:
                store.add([waiting[index]], [reply.to_bytes()])
            yield from ((row, reply) for row in rows[waiting[index]])


def _read(content: bytes, path: Path | None) -> Reply:
    try:
        return Reply.from_bytes(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; delete the file to ask again") from error


def all_replies(model: ReplyingModel, questions: Sequence[str], *, system: str | None) -> list[Reply]:
    """Ask all questions, and return their replies in order."""
    replies: dict[int, Reply] = dict(model.replies(questions, system=system))
    return [replies[index] for index in range(len(questions))]
