"""Answers of a language model to questions, each from its own context."""

from collections.abc import Sequence

from graphrerank.language_models.answer_cache import ChatModel

SYSTEM = "Answer the question from the passages, in as few words as you can, without a sentence around them."


def answer_questions(model: ChatModel, questions: Sequence[str], contexts: Sequence[str]) -> list[str]:
    """Let a language model, best wrapped in an ``AnswerCache``, answer ``Q`` questions from one context each.

    Returns:
        ``Q`` answers without surrounding white space.
    """
    if len(contexts) != len(questions):
        raise ValueError(f"`contexts` must be one per question ({len(questions)}), got {len(contexts)}")
    messages = [f"{context}\n\nQuestion: {question}" for context, question in zip(contexts, questions, strict=True)]
    return [answer.strip() for answer in model.ask(messages, system=SYSTEM, read=str)]
