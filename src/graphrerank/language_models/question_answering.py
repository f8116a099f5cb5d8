"""Answers of a language model to questions, each from its own context."""

from collections.abc import Sequence

from graphrerank.language_models.answer_cache import ChatModel

SYSTEM = "Answer the question from the passages, in as few words as you can, without a sentence around them."


def answer_questions(model: ChatModel, questions: Sequence[str], contexts: Sequence[str]) -> list[str]:
    """Let a language model answer ``Q`` questions from ``Q`` contexts.

    Args:
        model: Language model, best wrapped in an ``AnswerCache``.
        questions: ``Q`` questions.
        contexts: ``Q`` contexts.

    Returns:
        ``Q`` answers without surrounding white space.

    Raises:
        ValueError: If there are not as many contexts as questions, or the model gives no usable answer.
    """
    if len(contexts) != len(questions):
        raise ValueError(f"`contexts` must be one per question ({len(questions)}), got {len(contexts)}")
    messages = [f"{context}\n\nQuestion: {question}" for context, question in zip(contexts, questions, strict=True)]
    return [answer.strip() for answer in model.ask(messages, system=SYSTEM, read=str)]
