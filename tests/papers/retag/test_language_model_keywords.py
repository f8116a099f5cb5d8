import json
from collections.abc import Callable
from typing import Any

import pytest

from graphrerank.language_models.client import LanguageModel
from graphrerank_papers.retag.language_model_keywords import LanguageModelKeywords, parse_keywords


def test_each_question_is_asked_with_its_description(scripted_model: Callable[..., Any]) -> None:
    model = scripted_model(lambda system, question: {"keywords": question.split()[-2:]})
    finder = LanguageModelKeywords(model, num_keywords=1)
    assert finder.find(["who ran it", "", " "], ["talks", "talks", "talks"]) == [["ran"], [], []]
    ((system, question),) = model.asked
    assert "at most 1," in system
    assert question == "Collection: talks\nQuestion: who ran it"


def test_bad_answers_are_asked_for_again_then_counted(endpoint: Any) -> None:
    def answer(content: str) -> tuple[int, Any]:
        return 200, {"choices": [{"message": {"content": content}}]}

    url, handler = endpoint
    good = answer(json.dumps({"keywords": ["gpu"]}))
    handler.script = {"Collection: d\nQuestion: a": [(429, ""), (500, ""), good]}  # the other one gets echoes
    finder = LanguageModelKeywords(LanguageModel(url, "m", pause=0.0), tries=2)
    assert finder.find(["a", "b"], ["d", "d"]) == [["gpu"], []]
    assert finder.skipped == ["b"]
    assert len(handler.requests) == 5


@pytest.mark.parametrize(
    "content", ["gpu", "[]", "{}", '{"keywords": "gpu"}', '{"keywords": [" "]}', '{"keywords": [1]}',
                '{"keywords": [], "more": 1}']
)  # fmt: skip
def test_strict_parsing(content: str) -> None:
    with pytest.raises(ValueError, match="the answer must be"):
        parse_keywords(content)


def test_no_keyword_is_an_answer() -> None:
    assert parse_keywords('{"keywords": []}') == []


def test_num_keywords_must_be_positive(scripted_model: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="`num_keywords` must be a positive integer, got 0"):
        LanguageModelKeywords(scripted_model(lambda *_: ""), num_keywords=0)
