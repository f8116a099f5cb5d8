from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphrerank.language_models.answer_cache import AnswerCache
from graphrerank.language_models.strict_answers import REFUSED_ANSWER, ask_strictly, parse_object_answer


def even(answer: str) -> int:
    number = int(answer)
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


def asked_again(question: str, reason: str) -> str:
    return question + REFUSED_ANSWER.format(reason=reason)


def test_a_refused_answer_is_asked_for_again_with_the_reason(
    scripted_model: Callable[..., Any], tmp_path: Path
) -> None:
    script = {"a": "3", "b": "4", asked_again("a", "3 is odd"): "8"}
    model = scripted_model(lambda system, question: script[question])
    cache = AnswerCache(model, tmp_path)
    assert [ask_strictly(cache, ["a", "b"], system="s", parse=even) for _ in range(2)] == [[8, 4], [8, 4]]
    assert [question for _, question in model.asked] == list(script)  # a model that remembers is asked once


def test_what_stays_useless_is_none(scripted_model: Callable[..., Any]) -> None:
    model = scripted_model(lambda system, question: "no")
    assert ask_strictly(model, ["a"], system="s", parse=even, tries=2) == [None]
    reason = "invalid literal for int() with base 10: 'no'"
    assert [question for _, question in model.asked] == ["a", asked_again("a", reason)]
    silent: Any = SimpleNamespace(ask=lambda questions, *, system, read: [read(None)])
    with pytest.raises(ValueError, match="the answer must be a text, got None"):  # of a failed request
        ask_strictly(silent, ["a"], system="s", parse=even)


def test_a_look_at_the_answers_place_may_refuse_it_too(scripted_model: Callable[..., Any]) -> None:
    script = {"a": "2", "b": "2", asked_again("a", "too small"): "6"}

    def check(place: int, number: int) -> None:
        if number < 4 - 2 * place:
            raise ValueError("too small")

    model = scripted_model(lambda system, question: script[question])
    assert ask_strictly(model, ["a", "b"], system="s", parse=even, check=check) == [6, 2]


@pytest.mark.parametrize("content", ["[1]", '{"n": 1, "more": 2}', '{"n": true}', "{}", "nonsense"])
def test_an_object_of_other_entries(content: str) -> None:
    with pytest.raises(ValueError, match=r"the answer must be a JSON object of \['n'\], got"):
        parse_object_answer(content, n=int)
