"""Answers of a required form. Questions with unusable answers are asked again, and skipped after several attempts."""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic import ConfigDict, ValidationError, create_model

from graphrerank._moved import moved_names
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import in_form
from graphrerank.utils.checks import UserError, check_counts

__getattr__ = moved_names(__name__)

Answer = TypeVar("Answer")

ASK_AGAIN = "\n\nAn earlier answer could not be used: "
REFUSED_ANSWER = ASK_AGAIN + "{reason}. Answer again, in the form that was asked for."


def ask_strictly(
    model: ChatModel,
    questions: Sequence[str],
    *,
    system: str | None,
    parse: Callable[[str], Answer],
    check: Callable[[int, Answer], None] | None = None,
    tries: int = 3,
    form: str | None = None,
) -> list[Answer | None]:
    """Ask each question until its answer can be parsed. Each new attempt quotes the last error.

    Args:
        model: Language model.
        questions: ``n`` user messages.
        system: System message of each conversation. If None, there is none.
        parse: Function that parses the text of an answer. It raises a ValueError for unusable answers.
        check: Function that receives the index of a question and its parsed answer. It raises a ValueError for unusable
            answers. If None, all parsed answers are accepted.
        tries: Maximum number of attempts per question.
        form: JSON schema or regular expression of the answers (:func:`in_form`). If None, any text is allowed.

    Returns:
        Parsed answers of the ``n`` questions, in order. None for questions without a usable answer.

    Raises:
        ValueError: If ``tries`` is not positive.
    """
    check_counts(tries=tries)
    model = in_form(model, form)

    def read(content: str) -> tuple[Answer | None, str]:
        if not isinstance(content, str):
            raise UserError(
                f"the answer must be a text, got {content!r}"
            )  # Raised as a failed request, which is not cached.
        try:
            return parse(content), ""
        except (ValueError, RecursionError) as error:
            return None, str(error)

    results: list[Answer | None] = [None] * len(questions)
    pending, messages = list(range(len(questions))), list(questions)
    for _ in range(tries):
        answers = model.ask([messages[index] for index in pending], system=system, read=read)
        for index, (answer, reason) in zip(pending, answers, strict=True):
            try:
                if answer is not None and check is not None:
                    check(index, answer)
                results[index] = answer
            except ValueError as error:
                reason = str(error)
            messages[index] = questions[index] + REFUSED_ANSWER.format(reason=reason)
        pending = [index for index in pending if results[index] is None]
        if not pending:
            break
    return results


def first_message(message: str) -> str:
    """Return the original question of a message that :func:`ask_strictly` sent, without the errors of earlier attempts.

    Args:
        message: Message of any attempt.

    Returns:
        Original question.
    """
    return message.partition(ASK_AGAIN)[0]


def parse_json_answer(content: str) -> Any:
    """Parse an answer that must be JSON.

    Args:
        content: Text of the answer.

    Returns:
        Parsed JSON.

    Raises:
        ValueError: If the answer is not JSON. The message quotes its beginning, so that the model can correct it.
    """
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        raise UserError(f"the answer must be JSON and nothing else, got {content[:80]!r}") from error


def parse_object_answer(content: str, **types: Any) -> Any:
    """Parse an answer that must be a JSON object with exactly the given entries.

    Args:
        content: Text of the answer.
        **types: Pydantic type of each entry. Values are not converted.

    Returns:
        Record with the entries as attributes.

    Raises:
        ValueError: If the answer is not such an object. The message names the first invalid entries.

    Example:
        >>> parse_object_answer('{"topic": 2, "words": [" a "]}', topic=int, words=list[str]).words
        ['a']
    """
    config = ConfigDict(extra="forbid", strict=True, str_strip_whitespace=True)
    fields: Any = {name: (kind, ...) for name, kind in types.items()}
    record = create_model("Answer", __config__=config, **fields)
    try:
        return record.model_validate_json(content)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, each['loc']))} {each['msg']}" for each in error.errors()[:3]]
        raise UserError(
            f"the answer must be a JSON object of {[*types]}, got {content[:80]!r}: {'; '.join(problems)}"
        ) from error
