"""Answers by a chat model from packed contexts."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

from graphrerank.answers.packing import Context
from graphrerank.language_models import Prompt, Reply, ReplyCache, ReplyingModel, all_replies
from graphrerank.metrics import normalize_answer


class Writer(Protocol):
    """Anything that answers a question from a context."""

    @property
    def name(self) -> str:
        """Its name in reports."""

    def write(self, questions: Sequence[str], contexts: Sequence[Context]) -> list[Reply]:
        """Answer ``Q`` questions from a context each; the text of one that abstains is empty."""


@dataclass(eq=False)
class PromptedWriter:
    """Asks a chat model; equal questions with equal contexts are asked once."""

    model: ReplyingModel
    prompt: Prompt  # with the places `{context}` and `{question}`
    _: KW_ONLY
    cache: str | Path | None = None  # folder of replies, which a later run reads; None for no cache

    def __post_init__(self) -> None:
        self.prompt.fill(context="", question="")
        self.prompt.instructions()

    @property
    def name(self) -> str:
        """The prompt's name and fingerprint."""
        return f"{self.prompt.name} {self.prompt.fingerprint}"

    def write(self, questions: Sequence[str], contexts: Sequence[Context]) -> list[Reply]:
        """Answer ``Q`` questions; an empty context is asked about too, as the model may abstain."""
        messages = [
            self.prompt.fill(context=context.text, question=question)
            for question, context in zip(questions, contexts, strict=True)
        ]
        replies = all_replies(self._cached, messages, system=self.prompt.instructions())
        return [replace(reply, text=self._said(reply.text)) for reply in replies]

    def _said(self, text: str) -> str:
        abstention = normalize_answer(self.prompt.abstention or "")
        return "" if abstention and abstention in normalize_answer(text) else text.strip()

    @cached_property
    def _cached(self) -> ReplyCache:
        return ReplyCache(self.model, self.cache)
