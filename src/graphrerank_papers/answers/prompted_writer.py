"""Answers by a chat model from packed contexts."""

import json
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Protocol

from graphrerank.checks import UserError
from graphrerank.language_models.prompt import Prompt, is_schema
from graphrerank.language_models.reply import ANSWERED, UNUSABLE, Reply, ReplyingModel
from graphrerank.metrics.coverage import normalize_answer
from graphrerank_papers.answers.packing import Context
from graphrerank_papers.answers.replies import RecordedModel


class Writer(Protocol):
    """Anything that answers a question from a context."""

    @property
    def name(self) -> str:
        """Its name in reports."""

    def write(self, questions: Sequence[str], contexts: Sequence[Context]) -> list[Reply]:
        """Answer ``Q`` questions from a context each; the text of one that abstains is empty."""


@dataclass(eq=False)
class PromptedWriter:
    """Asks a chat model; equal questions with equal contexts are sent once.

    A prompt with a JSON schema as form asks for an object with the text ``answer``, one with a regular expression for
    an answer that matches it; any other text is blank and counted as ``unusable``.
    """

    model: ReplyingModel
    prompt: Prompt  # with the placeholders `{context}` and `{question}`
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
        """Answer ``Q`` questions; an empty context is sent too, as the model may abstain."""
        messages = [
            self.prompt.fill(context=context.text, question=question)
            for question, context in zip(questions, contexts, strict=True)
        ]
        model = RecordedModel(self.model, self.cache).in_form(self.prompt.form)
        replies = model.all_replies(messages, system=self.prompt.instructions())
        return [self._answer(reply) for reply in replies]

    def _answer(self, reply: Reply) -> Reply:
        """Extract the answer from the model's text."""
        text = reply.text
        if text and self.prompt.form is not None:
            try:
                text = answer_in_form(text, self.prompt.form)
            except ValueError:
                return replace(reply, text="", outcome=UNUSABLE)
        abstention = normalize_answer(self.prompt.abstention or "")
        if abstention and f" {abstention} " in f" {normalize_answer(text)} ":  # whole words: no "N/A" in "Canada"
            return replace(reply, text="", outcome=ANSWERED)  # also where the rest was cut
        return replace(reply, text=text.strip())


def answer_in_form(text: str, form: str) -> str:
    """Read an answer in a form; a ValueError if it has another.

    Example:
        >>> answer_in_form('{"answer": "Metz"}', '{"type": "object"}'), answer_in_form("yes", "yes|no")
        ('Metz', 'yes')
    """
    if not is_schema(form):
        if re.fullmatch(form, text.strip()) is None:
            raise UserError(f"the answer must match {form!r}, got {text[:80]!r}")
        return text
    content = json.loads(text)
    if not isinstance(content, dict) or not isinstance(content.get("answer"), str):
        raise UserError(f'the answer must be {{"answer": "..."}}, got {text[:80]!r}')
    return str(content["answer"])
