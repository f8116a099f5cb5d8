"""Answers of a language model on disk: nothing is paid for twice, and an interrupted run continues."""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from graphrerank.language_models.prompt import in_form
from graphrerank.utils.caching import BlobStore, fill, hash_text, short_hash

Answer = TypeVar("Answer")

SHARD_QUESTIONS = 32  # between two writes: at most this many answers are lost on a stop


class ChatModel(Protocol):
    """Anything that answers questions: a :class:`~graphrerank.language_models.client.LanguageModel`, cached or not."""

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever the answers would."""

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Answer]) -> list[Answer]:
        """Ask each question in a separate conversation; as ``LanguageModel.ask``."""


class AnswerCache:
    """A language model with a cache of answers on disk.

    Answers lie in one SQLite file per model, ``<folder>/<hash of its fingerprint>.sqlite``, under the SHA-256 of system
    message and question. Equal questions in one call are answered separately: eight requests to a model of positive
    temperature give eight answers, and the same eight in the next run.
    """

    def __init__(self, model: ChatModel, folder: str | Path) -> None:
        self.model = model
        self.folder = Path(folder)

    @property
    def fingerprint(self) -> str:
        """The wrapped model's fingerprint."""
        return self.model.fingerprint

    def in_form(self, form: str) -> "AnswerCache":
        """Keep the answers of a model that keeps to a form; see :func:`in_form`."""
        return AnswerCache(in_form(self.model, form), self.folder)

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / f"{short_hash(self.fingerprint)}.sqlite"

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Answer]) -> list[Answer]:
        """Ask each question, or read its answer from disk; an answer that ``read`` refuses is not kept."""

        def checked(answer: str) -> bytes:
            read(answer)
            return answer.encode("utf-8", "surrogatepass")

        def ask_shard(shard: list[str]) -> list[bytes]:
            return self.model.ask(shard, system=system, read=checked)

        store, keys = BlobStore(self.path, "answers"), _keys(questions, system)
        fill(store, keys, questions, ask_shard, shard_size=SHARD_QUESTIONS)
        return [read(store.contents[key].decode("utf-8", "surrogatepass")) for key in keys]


def remembering(model: ChatModel, folder: str | Path | None) -> ChatModel:
    """Wrap a model in an :class:`AnswerCache`; return it unchanged without a folder."""
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
