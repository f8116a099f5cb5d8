import json
from collections.abc import Callable
from typing import Any

import pytest

from graphrerank.language_models.client import LanguageModel
from graphrerank.language_models.prompt import shipped_prompt
from graphrerank_papers.retag.language_model import (
    classify_questions,
    generate_keywords,
    mine_topics,
    parse_keywords,
    parse_relevant,
    parse_topic,
    parse_topics,
    relate_to_topics,
)

pytest.importorskip("httpx", reason="httpx is optional")

CITY = {"name": "Cities", "description": "Where they lie."}
CODE = {"name": "Code", "description": "Who writes it."}


def say(content: Any) -> tuple[int, dict[str, Any]]:
    return 200, {"choices": [{"message": {"content": content if isinstance(content, str) else json.dumps(content)}}]}


def model(endpoint: Any) -> LanguageModel:
    return LanguageModel(endpoint[0], "m", pause=0.0)


def test_topics_of_batches_are_put_together(endpoint: Any) -> None:
    endpoint[1].script = {
        "- a\n- b": [say({"topics": [CITY, CODE]})],
        "- c": [(429, ""), (500, ""), say({"topics": [CODE]})],
        "- Cities: Where they lie.\n- Code: Who writes it.": [say({"topics": [CODE, CITY]})],
    }
    found = mine_topics(model(endpoint), [["a", "b"], ["c"]], num_topics=2)
    assert found == (["Code: Who writes it.", "Cities: Where they lie."], 0)
    systems = [request["messages"][0]["content"] for request in endpoint[1].requests]
    assert set(systems) == {
        shipped_prompt(name).instructions(limit=2) for name in ("retag_topics", "retag_merged_topics")
    }


def test_one_batch_is_not_put_together(endpoint: Any) -> None:
    endpoint[1].script = {"- a": [say({"topics": [CITY]})]}
    assert mine_topics(model(endpoint), [["a"]], num_topics=2) == (["Cities: Where they lie."], 0)
    assert mine_topics(model(endpoint), [], num_topics=2) == ([], 0)
    assert len(endpoint[1].requests) == 1


def test_a_batch_without_a_usable_answer_is_skipped(endpoint: Any) -> None:
    endpoint[1].script = {"- a": [say("no")], "- b": [say({"topics": [CITY]})]}  # then it echoes
    assert mine_topics(model(endpoint), [["a"], ["b"]], num_topics=2, tries=2) == (["Cities: Where they lie."], 1)


def test_topics_that_cannot_be_put_together_are_an_error(endpoint: Any) -> None:
    endpoint[1].script = {"- a": [say({"topics": [CITY]})], "- b": [say({"topics": [CODE]})]}
    with pytest.raises(ValueError, match="no usable list of topics in 2 tries"):
        mine_topics(model(endpoint), [["a"], ["b"]], num_topics=2, tries=2)


def test_notes_are_related_to_topics(endpoint: Any) -> None:
    topics = "Topics:\n1. Cities\n2. Code\n\nNotes:\n"
    endpoint[1].script = {
        f"{topics}1. a\n2. b": [say({"relevant": [[2], []]})],
        f"{topics}1. c": [say({"relevant": [[2, 1]]})],
    }
    found = relate_to_topics(model(endpoint), ["a", "b", "c"], ["Cities", "Code"], batch_size=2)
    assert found == ([[1], [], [0, 1]], 0)
    assert relate_to_topics(model(endpoint), ["a"], []) == ([[]], 0)
    assert relate_to_topics(model(endpoint), [], ["Code"]) == ([], 0)


def test_notes_without_a_usable_answer_have_no_topic(endpoint: Any) -> None:
    topics = "Topics:\n1. Code\n\nNotes:\n"
    endpoint[1].script = {f"{topics}1. b": [say({"relevant": [[1]]})]}
    found = relate_to_topics(model(endpoint), ["a", "b"], ["Code"], batch_size=1, tries=2)
    assert found == ([[], [0]], 1)


@pytest.mark.parametrize(
    "bad",
    [
        "here", "[]", '{"topics": []}', '{"topics": {}}', '{"topics": [1]}', '{"topics": [{"name": "a"}]}',
        '{"topics": [{"name": "a", "description": " "}]}', '{"topics": [{"name": 1, "description": "a"}]}',
        json.dumps({"topics": [CITY, CODE]}), json.dumps({"topics": [CITY], "more": 1}),
    ],
)  # fmt: skip
def test_topics_of_another_form_are_refused(bad: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's among them
        parse_topics(bad, limit=1)


@pytest.mark.parametrize(
    "bad",
    [
        "[]", '{"relevant": [[1]]}', '{"relevant": [[1], [0]]}', '{"relevant": [[1], [3]]}', '{"relevant": [1, 2]}',
        '{"relevant": [["1"], []]}', '{"relevant": [[true], []]}', '{"relevant": [[1], [2]], "more": []}',
    ],
)  # fmt: skip
def test_relevance_of_another_form_is_refused(bad: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse_relevant(bad, num_notes=2, num_topics=2)


def test_a_question_has_one_topic_or_none(endpoint: Any) -> None:
    listed = "Topics:\n1. Cities\n2. Code\n\nQuestion: "
    endpoint[1].script = {
        f"{listed}a": [say({"topic": 2})],
        f"{listed}b": [say({"topic": 0})],
        f"{listed}c": [say({"topic": 3})],
    }
    questions = ["a", " ", "b", "c"]
    assert classify_questions(model(endpoint), questions, ["Cities", "Code"], tries=1) == [1, None, None, None]
    assert len(endpoint[1].requests) == 3
    assert classify_questions(model(endpoint), ["a"], []) == [None]
    for content in ("{}", '{"topic": true}', '{"topic": 3}', '{"topic": -1}', '{"topic": "1"}'):
        with pytest.raises(ValueError, match="must be"):
            parse_topic(content, num_topics=2)


def test_each_question_is_sent_with_its_description(scripted_model: Callable[..., Any]) -> None:
    model = scripted_model(lambda system, question: {"keywords": question.split()[-2:]})
    assert generate_keywords(model, ["who ran it", "", " "], ["talks"] * 3, num_keywords=1) == [["ran"], [], []]
    ((system, question),) = model.asked
    assert "at most 1," in system
    assert question == "Collection: talks\nQuestion: who ran it"


def test_keywords_without_a_usable_answer(endpoint: Any) -> None:
    endpoint[1].script = {"Collection: d\nQuestion: a": [(429, ""), (500, ""), say({"keywords": ["gpu"]})]}
    found = generate_keywords(model(endpoint), ["a", "b"], ["d", "d"], num_keywords=3, tries=2)
    assert found == [["gpu"], []]  # the other one gets echoes
    assert len(endpoint[1].requests) == 5


@pytest.mark.parametrize(
    "content", ["gpu", "[]", "{}", '{"keywords": "gpu"}', '{"keywords": [" "]}', '{"keywords": [1]}',
                '{"keywords": [], "more": 1}']
)  # fmt: skip
def test_keywords_of_another_form_are_refused(content: str) -> None:
    with pytest.raises(ValueError, match="the answer must be"):
        parse_keywords(content)
    assert parse_keywords('{"keywords": []}') == []
