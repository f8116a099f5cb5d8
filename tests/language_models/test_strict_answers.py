from pathlib import Path
from typing import Any

import pytest

from graphrerank.language_models.answer_cache import AnswerCache
from graphrerank.language_models.client import LanguageModel
from graphrerank.language_models.strict_answers import REFUSED, ask_strictly

pytest.importorskip("httpx", reason="httpx is optional")


def say(text: Any) -> tuple[int, dict[str, Any]]:
    return 200, {"choices": [{"message": {"content": text}}]}


def even(answer: str) -> int:
    number = int(answer)
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


def test_a_refused_answer_is_asked_for_again_with_the_reason(endpoint: Any) -> None:
    url, handler = endpoint
    handler.script = {"a": [say("3")], "b": [say("4")], "a" + REFUSED.format(reason="3 is odd"): [say("8")]}
    assert ask_strictly(LanguageModel(url, "m"), ["a", "b"], system="s", parse=even) == [8, 4]
    assert len(handler.requests) == 3


def test_what_stays_useless_is_none(endpoint: Any) -> None:
    handler = endpoint[1]  # echoes what it has no script for
    found = ask_strictly(LanguageModel(endpoint[0], "m", pause=0.0), ["a"], system="s", parse=even, tries=2)
    assert found == [None]
    reason = "invalid literal for int() with base 10: '<a>'"
    assert [request["messages"][-1]["content"] for request in handler.requests] == [
        "a",
        "a" + REFUSED.format(reason=reason),
    ]


def test_a_look_at_the_answers_place_may_refuse_it_too(endpoint: Any) -> None:
    url, handler = endpoint
    again = "a" + REFUSED.format(reason="too small")
    handler.script = {"a": [say("2")], "b": [say("2")], again: [say("6")]}

    def check(place: int, number: int) -> None:
        if number < 4 - 2 * place:
            raise ValueError("too small")

    assert ask_strictly(LanguageModel(url, "m"), ["a", "b"], system="s", parse=even, check=check) == [6, 2]


def test_a_model_that_remembers_is_asked_once(endpoint: Any, tmp_path: Path) -> None:
    url, handler = endpoint
    handler.script = {"a": [say("3")], "a" + REFUSED.format(reason="3 is odd"): [say("8")]}
    model = AnswerCache(LanguageModel(url, "m"), tmp_path)
    assert [ask_strictly(model, ["a"], system="s", parse=even) for _ in range(2)] == [[8], [8]]
    assert len(handler.requests) == 2


@pytest.mark.parametrize("trouble", [(429, ""), (500, ""), say(None)])
def test_an_endpoint_that_stumbles_is_asked_again(endpoint: Any, trouble: Any, tmp_path: Path) -> None:
    url, handler = endpoint
    handler.script = {"a": [trouble, say("2")]}
    model = AnswerCache(LanguageModel(url, "m", pause=0.0), tmp_path)
    assert ask_strictly(model, ["a"], system="s", parse=even, tries=1) == [2]
