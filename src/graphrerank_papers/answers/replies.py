"""Replies of a chat model on disk and in a record: no question is paid for twice, and no failure stops a run."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from graphrerank.caching import BlobStore, hash_texts, short_hash
from graphrerank.checks import UserError
from graphrerank.files import check_writable
from graphrerank.language_models.prompt import in_form
from graphrerank.language_models.reply import KEPT, Reply, ReplyingModel
from graphrerank.language_models.strict_answers import first_message

Answer = TypeVar("Answer")


class RecordedModel:
    """A :class:`ReplyingModel` and :class:`ChatModel` over a replying one, which caches and remembers its replies.

    The cache is ``<folder>/<hash of the model's fingerprint>.sqlite``, by system message and question. Each reply is
    written before the next one is awaited: a run that is killed loses only the replies under way. Failed and rejected
    requests are not kept.

    For a task that reads texts (:meth:`ask`), a failed, rejected or refused request is an empty text: a task that asks
    strictly counts it as unusable, asks again, and goes on without it.

    ``cache`` is a folder of replies, which later runs read; None for no cache.
    """

    def __init__(self, model: ReplyingModel, cache: str | Path | None = None) -> None:
        self.model = model
        self.cache = None if cache is None else Path(cache)
        self.recorded: list[Reply] = []  # in order
        # by the first message of a question: each message of its retries, and the reply
        self._replies: dict[str, list[tuple[str, Reply]]] = defaultdict(list)

    @property
    def fingerprint(self) -> str:
        """The wrapped model's fingerprint."""
        return self.model.fingerprint

    def in_form(self, form: str | None) -> "RecordedModel":
        """Return the same record of a model that keeps to a form; see :func:`in_form`."""
        twin = RecordedModel(in_form(self.model, form), self.cache)
        twin.recorded, twin._replies = self.recorded, self._replies
        return twin

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        """Ask each question, or read its reply from disk; equal questions are sent once."""
        path = None if self.cache is None else self.cache / f"{short_hash(self.fingerprint)}.sqlite"
        store = BlobStore(path, "replies")
        rows: dict[bytes, list[int]] = {}
        for row, question in enumerate(questions):
            rows.setdefault(hash_texts([question] if system is None else [system, question]), []).append(row)
        known = store.known(list(rows))
        waiting = [key for key in rows if key not in known]
        for key in rows.keys() - set(waiting):
            try:
                reply = Reply.from_bytes(known[key])
            except ValueError as error:
                raise UserError(f"{path}: {error}; delete the file to ask again") from error
            yield from ((row, reply) for row in rows[key])
        if waiting and path is not None:
            check_writable(path.parent)
        for index, reply in self.model.replies([questions[rows[key][0]] for key in waiting], system=system):
            if reply.outcome in KEPT:
                store.add([waiting[index]], [reply.to_bytes()])
            yield from ((row, reply) for row in rows[waiting[index]])

    def all_replies(self, questions: Sequence[str], *, system: str | None) -> list[Reply]:
        """Ask all questions, record their replies, and return them in order."""
        replies = dict(self.replies(questions, system=system))
        for question, row in {question: row for row, question in enumerate(questions)}.items():
            known = self._replies[first_message(question)]
            if not any(message == question and earlier.outcome in KEPT for message, earlier in known):
                known.append((question, replies[row]))  # otherwise it was read from the cache
                self.recorded.append(replies[row])
        return [replies[row] for row in range(len(questions))]

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Answer]) -> list[Answer]:
        """Ask each question in a separate conversation; ``read`` must accept any text."""
        return [read(reply.text) for reply in self.all_replies(questions, system=system)]

    def replies_to(self, messages: Iterable[str]) -> list[Reply]:
        """List the recorded replies to some messages, with those to repeated requests."""
        return [reply for message in messages for _, reply in self._replies[message]]
