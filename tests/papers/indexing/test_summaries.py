import json
from typing import Any

import pytest

from graphrerank.language_models.client import LanguageModel
from graphrerank.language_models.prompt import shipped_prompt
from graphrerank.language_models.strict_answers import REFUSED
from graphrerank.text import WordTokenizer
from graphrerank_papers.indexing.summaries import parse_summary, write_summaries

pytest.importorskip("httpx", reason="httpx is optional")


def say(text: Any) -> tuple[int, dict[str, Any]]:
    return 200, {"choices": [{"message": {"content": json.dumps({"summary": text})}}]}


def test_a_summary_that_is_too_long_is_asked_for_again(endpoint: Any) -> None:
    again = "- a\n- b" + REFUSED.format(reason="the summary must have at most 2 tokens, got 3")
    endpoint[1].script = {"- a\n- b": [say("one two three")], again: [(500, ""), say("one two")], "- c": [say("x")]}
    model = LanguageModel(endpoint[0], "m", pause=0.0)
    assert write_summaries(model, [["a", "b"], ["c"]], WordTokenizer(), limit=2) == ["one two", "x"]
    told = {request["messages"][0]["content"] for request in endpoint[1].requests}
    assert told == {shipped_prompt("summary").instructions(words=1)}


def test_what_stays_useless_is_none(endpoint: Any) -> None:
    endpoint[1].script = {"- b": [say("fine")]}
    model = LanguageModel(endpoint[0], "m", pause=0.0)
    assert write_summaries(model, [["a"], ["b"]], WordTokenizer(), limit=9, tries=2) == [None, "fine"]
    assert len(endpoint[1].requests) == 3


@pytest.mark.parametrize("bad", ["text", "[]", '{"summary": ""}', '{"summary": 3}', '{"summary": "a", "more": 1}'])
def test_answers_of_another_form_are_refused(bad: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's among them
        parse_summary(bad, tokenizer=WordTokenizer(), limit=9)
