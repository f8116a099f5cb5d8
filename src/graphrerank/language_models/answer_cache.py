"""Cache of a language model's answers on disk, so that no answer is paid for twice and interrupted runs resume."""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from graphrerank.language_models.prompt import in_form
from graphrerank.utils.caching import BlobStore, fill, hash_text, short_hash

Answer = TypeVar("Answer")

SHARD_QUESTIONS = 32  # Number of questions between two writes. An interrupted run loses at most this many answers.


class ChatModel(Protocol):
    """Protocol of chat models, such as :class:`~graphrerank.language_models.client.LanguageModel`, cached or not."""

    @property
    def fingerprint(self) -> str:
        """Identifier that changes whenever the answers would change."""

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Answer]) -> list[Answer]:
        """Ask each question in a separate conversation.

        Args:
            questions: ``n`` user messages.
            system: System message of each conversation. If None, there is none.
            read: Function that parses the text of an answer. It raises a ValueError for unusable answers.

        Returns:
            Parsed answers of the ``n`` questions, in order.
        """


class AnswerCache:
    """Language model with a cache of answers on disk.

    Answers are stored in one SQLite file per model, ``<folder>/<hash of its fingerprint>.sqlite``, under the SHA-256 of
    the system message and the question. Equal questions in one call are answered separately: eight requests to a model
    with a positive temperature give eight answers, and the next run returns the same eight.

    Args:
        model: Language model to wrap.
        folder: Folder of the SQLite file.
    """

    def __init__(self, model: ChatModel, folder: str | Path) -> None:
        self.model = model
        self.folder = Path(folder)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the wrapped model."""
        return self.model.fingerprint

    def in_form(self, form: str) -> "AnswerCache":
        """Return a cache of the wrapped model constrained to a form.

        Args:
            form: JSON schema or regular expression.

        Returns:
            Cache in the same folder.
        """
        return AnswerCache(in_form(self.model, form), self.folder)

    @property
    def path(self) -> Path:
        """Path of the SQLite file."""
        return self.folder / f"{short_hash(self.fingerprint)}.sqlite"

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Answer]) -> list[Answer]:
        """Ask each question that is not in the cache, and read the other answers from disk.

        Args:
            questions: ``n`` user messages.
            system: System message of each conversation. If None, there is none.
            read: Function that parses the text of an answer. Answers for which it raises a ValueError are not stored.

        Returns:
            Parsed answers of the ``n`` questions, in order.

        Raises:
            ValueError: If the model gives no usable answer, or if the cache file is damaged or cannot be written.
        """

        def checked(answer: str) -> bytes:
            read(answer)
            return answer.encode("utf-8", "surrogatepass")

        def ask_shard(shard: list[str]) -> list[bytes]:
            return self.model.ask(shard, system=system, read=checked)

        store, keys = BlobStore(self.path, "answers"), _keys(questions, system)
        fill(store, keys, questions, ask_shard, shard_size=SHARD_QUESTIONS)
        return [read(store.contents[key].decode("utf-8", "surrogatepass")) for key in keys]


def remembering(model: ChatModel, folder: str | Path | None) -> ChatModel:
    """Wrap a model in an :class:`AnswerCache`.

    Args:
        model: Language model.
        folder: Folder of the cache. If None, the model is returned unchanged.

    Returns:
        Cached model, or ``model``.
    """
    return model if folder is None else AnswerCache(model, folder)


def _keys(questions: Sequence[str], system: str | None) -> list[bytes]:
    """Hash each question with the system message and the number of equal questions before it."""
    asked: Counter[str] = Counter()
    begin = hashlib.sha256(b"" if system is None else hash_text(system))
    keys = []
    for question in questions:
        sha = begin.copy()
        sha.update(hash_text(question) + asked[question].to_bytes(4, "little"))
        asked[question] += 1
        keys.append(sha.digest())
    return keys
