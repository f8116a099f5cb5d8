"""Answers of a language model that must have a form: asked for again where they have not, and skipped in the end."""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from graphrerank.language_models.answer_cache import ChatModel

Answer = TypeVar("Answer")

REFUSED = "\n\nAn earlier answer could not be used: {reason}. Answer again, in the form that was asked for."


def ask_strictly(
    model: ChatModel,
    questions: Sequence[str],
    *,
    system: str,
    parse: Callable[[str], Answer],
    check: Callable[[int, Answer], None] | None = None,
    tries: int = 3,
) -> list[Answer | None]:
    """Ask each question until its answer can be read, and tell a model that is asked again what was wrong.

    A repeated request is another question, so that an :class:`~graphrerank.language_models.AnswerCache` keeps every
    answer, and an interrupted run takes the same way again.

    Args:
        model: Whom to ask.
        questions: The user's messages.
        system: System message before each.
        parse: Reads an answer's text; raises ``ValueError`` for one that is of no use.
        check: Looks at what was read, with its question's place in ``questions``; raises ``ValueError`` likewise.
        tries: How often to ask for a usable answer, at least once.

    Returns:
        What ``parse`` made of the answers; None for a question that has no usable one.

    Raises:
        ValueError: If ``tries`` is below 1; or the endpoint refuses, or fails or answers without a text in spite of the
            client's retries.
    """
    if tries < 1:
        raise ValueError(f"`tries` must be a positive integer, got {tries}")

    def read(content: str) -> tuple[Answer | None, str]:
        if not isinstance(content, str):
            raise ValueError(f"needed a text, got {content!r}")  # as an endpoint's other failures: nothing to keep
        try:
            return parse(content), ""
        except (ValueError, RecursionError) as error:
            return None, str(error)

    found: list[Answer | None] = [None] * len(questions)
    waiting, asked = list(range(len(questions))), list(questions)
    for _ in range(tries):
        answers = model.ask([asked[place] for place in waiting], system=system, read=read)
        for place, (answer, reason) in zip(waiting, answers, strict=True):
            refusal = _refusal(check, place, answer) if answer is not None else reason
            found[place] = answer if refusal is None else None
            asked[place] = questions[place] + REFUSED.format(reason=refusal)
        waiting = [place for place in waiting if found[place] is None]
        if not waiting:
            break
    return found


def read_json(content: str) -> Any:
    """Read an answer that must be JSON.

    Raises:
        ValueError: If it is anything else; the message shows how it begins, as a model that is asked again is told.

    Example:
        >>> read_json('{"winner": 2}')
        {'winner': 2}
    """
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        raise ValueError(f"the answer must be JSON and nothing else, got {content[:80]!r}") from error


def _refusal(check: Callable[[int, Answer], None] | None, place: int, answer: Answer) -> str | None:
    try:
        if check is not None:
            check(place, answer)
    except ValueError as error:
        return str(error)
    return None
