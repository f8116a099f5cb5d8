import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from graphrerank.language_models.client import LanguageModel
from graphrerank.language_models.prompt import shipped_prompt
from graphrerank_papers.retag.language_model import (
    ReTAGPrompts,
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

PROMPTS = ReTAGPrompts()
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
    found = mine_topics(model(endpoint), PROMPTS, [["a", "b"], ["c"]], num_topics=2)
    assert found == (["Code: Who writes it.", "Cities: Where they lie."], 0)
    systems = [request["messages"][0]["content"] for request in endpoint[1].requests]
    assert set(systems) == {
        shipped_prompt(name).instructions(limit=2) for name in ("retag_topics", "retag_merged_topics")
    }


def test_one_batch_and_batches_without_a_usable_answer(endpoint: Any) -> None:
    endpoint[1].script = {
        "- a": [say({"topics": [CITY]})], "- b": [say("no")], "- c": [say({"topics": [CITY]})],
        "- d": [say({"topics": [CITY]})], "- e": [say({"topics": [CODE]})],
    }  # fmt: skip
    asked, city = partial(mine_topics, model(endpoint), PROMPTS, num_topics=2), ["Cities: Where they lie."]
    assert asked([["a"]]) == (city, 0)
    assert asked([]) == ([], 0)
    assert len(endpoint[1].requests) == 1
    assert asked([["b"], ["c"]]) == (city, 1)  # it echoes, and is skipped
    with pytest.raises(ValueError, match="no usable list of topics in 3 tries"):
        asked([["d"], ["e"]])


def test_notes_are_related_to_topics(endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphrerank_papers.retag.language_model.BATCH_NOTES", 2)
    topics = "Topics:\n1. Cities\n2. Code\n\nNotes:\n"
    endpoint[1].script = {
        f"{topics}1. a\n2. b": [say({"relevant": [[2], []]})],
        f"{topics}1. e": [say({"relevant": [[2, 1]]})],
    }  # it echoes the other batch
    found = relate_to_topics(model(endpoint), PROMPTS.relevance, list("abcde"), ["Cities", "Code"])
    assert found == ([[1], [], [], [], [0, 1]], 1)
    assert relate_to_topics(model(endpoint), PROMPTS.relevance, ["a"], []) == ([[]], 0)
    assert relate_to_topics(model(endpoint), PROMPTS.relevance, [], ["Code"]) == ([], 0)


@pytest.mark.parametrize(
    ("parse", "bad"),
    [
        *((partial(parse_topics, limit=1), bad) for bad in (
            "here", "[]", '{"topics": []}', '{"topics": [{"name": "a"}]}',
            '{"topics": [{"name": "a", "description": " "}]}',
            json.dumps({"topics": [CITY, CODE]}), json.dumps({"topics": [CITY], "more": 1}),
        )),
        *((partial(parse_relevant, num_topics=2), bad) for bad in (
            '{"relevant": [1]}', '{"relevant": [[1], [0]]}', '{"relevant": [[1], [3]]}', '{"relevant": [[true], []]}',
        )),
        *((partial(parse_topic, num_topics=2), bad) for bad in ('{"topic": true}', '{"topic": 3}', '{"topic": -1}')),
        *((parse_keywords, bad) for bad in ('{"keywords": "gpu"}', '{"keywords": [" "]}')),
    ],
)  # fmt: skip
def test_answers_of_another_form_are_refused(parse: Callable[[str], Any], bad: str) -> None:
    with pytest.raises(ValueError, match="the answer must be a JSON object of"):
        parse(bad)


def test_a_question_has_one_topic_or_none(endpoint: Any) -> None:
    listed = "Topics:\n1. Cities\n2. Code\n\nQuestion: "
    endpoint[1].script = {
        f"{listed}a": [say({"topic": 2})],
        f"{listed}b": [say({"topic": 0})],
        f"{listed}c": [say({"topic": 3})],
    }
    questions = ["a", " ", "b", "c"]
    assert classify_questions(model(endpoint), PROMPTS.classification, ["Cities", "Code"], questions) == [
        1,
        None,
        None,
        None,
    ]
    assert len(endpoint[1].requests) == 3 + 2  # the third answer is no topic, and asked for again
    assert classify_questions(model(endpoint), PROMPTS.classification, [], ["a"]) == [None]


def test_each_question_is_sent_with_its_description(endpoint: Any) -> None:
    endpoint[1].script = {"Collection: d\nQuestion: a": [(429, ""), (500, ""), say({"keywords": ["gpu", "cpu"]})]}
    questions = ["a", "", " ", "b"]
    found = generate_keywords(model(endpoint), PROMPTS.keywords, questions, ["d"] * 4, num_keywords=1)
    assert found == [["gpu"], [], [], []]  # the last one gets echoes
    assert len(endpoint[1].requests) == 3 + 3
    assert "at most 1," in endpoint[1].requests[0]["messages"][0]["content"]
