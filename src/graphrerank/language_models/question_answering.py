"""Answers of a language model to questions, each from a context of its own."""

from collections.abc import Sequence

from graphrerank.language_models.answer_cache import ChatModel

SYSTEM = "Answer the question from the passages, in as few words as you can, without a sentence around them."


def answer_questions(model: ChatModel, questions: Sequence[str], contexts: Sequence[str]) -> list[str]:
    """Let a language model answer ``Q`` questions from ``Q`` contexts.

    Args:
        model: Whom to ask; an ``AnswerCache`` remembers.
        questions: ``Q`` questions.
        contexts: What each is to be answered from.

    Returns:
        ``Q`` answers without white space around them.

    Raises:
        ValueError: If there are not as many contexts as questions, or the model gives no usable answer.
    """
    if len(contexts) != len(questions):
        raise ValueError(f"`contexts` must be one per question ({len(questions)}), got {len(contexts)}")
    asked = [f"{context}\n\nQuestion: {question}" for context, question in zip(contexts, questions, strict=True)]
    return [answer.strip() for answer in model.ask(asked, system=SYSTEM, read=str)]
