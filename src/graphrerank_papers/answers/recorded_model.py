"""A model whose every reply is kept and counted, for tasks that read texts: none that fails stops a run."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from graphrerank.language_models.prompt import in_form
from graphrerank.language_models.reply import KEPT, Reply, ReplyingModel
from graphrerank.language_models.strict_answers import first_message
from graphrerank_papers.answers.reply_cache import ReplyCache, all_replies

Answer = TypeVar("Answer")


class RecordedModel:
    """A :class:`ChatModel` over a replying one, which remembers its replies.

    What failed, was rejected or refused is read as an empty text: a task that asks strictly counts it as unusable, asks
    again as it does then, and goes on without it.

    Args:
        model: What is asked.
        cache: Folder of replies, which a later run reads; None for no cache.
    """

    def __init__(self, model: ReplyingModel, cache: str | Path | None = None) -> None:
        self.model, self.cache = model, cache
        # by the message that was asked first: what was asked in its place, and the reply
        self._replies: dict[str, list[tuple[str, Reply]]] = defaultdict(list)

    @property
    def fingerprint(self) -> str:
        """The wrapped model's fingerprint."""
        return self.model.fingerprint

    def in_form(self, form: str) -> "RecordedModel":
        """Return the same record of a model that keeps to a form; see :func:`in_form`."""
        twin = RecordedModel(in_form(self.model, form), self.cache)
        twin._replies = self._replies
        return twin

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Answer]) -> list[Answer]:
        """Ask each question in a conversation of its own, equal ones once; ``read`` must accept any text."""
        replies = all_replies(ReplyCache(self.model, self.cache), questions, system=system)
        for question, reply in dict(zip(questions, replies, strict=True)).items():
            known = self._replies[first_message(question)]
            if not any(asked == question and earlier.outcome in KEPT for asked, earlier in known):
                known.append((question, reply))  # else it was read again, not asked
        return [read(reply.text) for reply in replies]

    def replies_to(self, messages: Iterable[str] | None = None) -> list[Reply]:
        """List the replies to some messages, with those to them when they were asked again; all when None."""
        asked = self._replies if messages is None else messages
        return [reply for message in asked for _, reply in self._replies[message]]
