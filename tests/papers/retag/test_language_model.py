import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

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

PROMPTS = ReTAGPrompts()
CITY = {"name": "Cities", "description": "Where they lie."}
CODE = {"name": "Code", "description": "Who writes it."}


def scripted(scripted_model: Any, answers: dict[str, Any]) -> Any:
    """Answer questions by their text, others unusably."""
    return scripted_model(lambda system, question: answers.get(question, "no"))


def test_topics_of_batches_are_put_together(scripted_model: Any) -> None:
    answers = {
        "- a\n- b": {"topics": [CITY, CODE]},
        "- c": {"topics": [CODE]},
        "- d": {"topics": [CITY]},
        "- Cities: Where they lie.\n- Code: Who writes it.": {"topics": [CODE, CITY]},
    }
    model = scripted(scripted_model, answers)
    mine = partial(mine_topics, model, PROMPTS, num_topics=2)
    assert mine([["a", "b"], ["c"]]) == (["Code: Who writes it.", "Cities: Where they lie."], 0)
    assert {system for system, _ in model.asked} == {
        shipped_prompt(name).instructions(limit=2) for name in ("retag_topics", "retag_merged_topics")
    }
    assert mine([["d"]]) == (["Cities: Where they lie."], 0)
    assert mine([["x"], ["d"]]) == (["Cities: Where they lie."], 1)  # one batch without a usable answer
    assert mine([]) == ([], 0)
    with pytest.raises(ValueError, match="no usable list of topics in 3 tries"):
        mine([["c"], ["d"]])


def test_notes_are_related_to_topics(scripted_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphrerank_papers.retag.language_model.BATCH_NOTES", 2)
    topics = "Topics:\n1. Cities\n2. Code\n\nNotes:\n"
    answers = {
        f"{topics}1. a\n2. b": {"relevant": [[2], []]},
        f"{topics}1. c\n2. d": {"relevant": [[2]]},  # one note is missing
        f"{topics}1. e": {"relevant": [[2, 1]]},
    }
    relate = partial(relate_to_topics, scripted(scripted_model, answers), PROMPTS.relevance)
    assert relate(list("abcde"), ["Cities", "Code"]) == ([[1], [], [], [], [0, 1]], 1)
    assert relate(["a"], []) == ([[]], 0)
    assert relate([], ["Code"]) == ([], 0)


@pytest.mark.parametrize(
    ("parse", "bad"),
    [
        *((partial(parse_topics, limit=1), bad) for bad in (
            "here", "[]", '{"topics": []}', '{"topics": [{"name": "a", "description": " "}]}',
            json.dumps({"topics": [CITY, CODE]}), json.dumps({"topics": [CITY], "more": 1}),
        )),
        *((partial(parse_relevant, num_topics=2), f'{{"relevant": {bad}}}') for bad in ("[1]", "[[0]]", "[[3]]")),
        *((partial(parse_topic, num_topics=2), f'{{"topic": {bad}}}') for bad in ("true", "3", "-1")),
        *((parse_keywords, f'{{"keywords": {bad}}}') for bad in ('"gpu"', '[" "]')),
    ],
)  # fmt: skip
def test_answers_of_another_form_are_refused(parse: Callable[[str], Any], bad: str) -> None:
    with pytest.raises(ValueError, match="the answer must be a JSON object of"):
        parse(bad)


def test_a_question_has_one_topic_or_none(scripted_model: Any) -> None:
    listed, topics = "Topics:\n1. Cities\n2. Code\n\nQuestion: ", {"a": 2, "b": 0, "c": 3}
    model = scripted(scripted_model, {f"{listed}{name}": {"topic": topic} for name, topic in topics.items()})
    classify = partial(classify_questions, model, PROMPTS.classification)
    assert classify(["Cities", "Code"], ["a", " ", "b", "c"]) == [1, None, None, None]
    assert len(model.asked) == 3 + 2  # the third answer is no topic, and asked for again
    assert classify([], ["a"]) == [None]


def test_each_question_is_sent_with_its_description(scripted_model: Any) -> None:
    model = scripted(scripted_model, {"Collection: d\nQuestion: a": {"keywords": ["gpu", "cpu"]}})
    found = generate_keywords(model, PROMPTS.keywords, ["a", "", " ", "b"], ["d"] * 4, num_keywords=1)
    assert found == [["gpu"], [], [], []]
    assert len(model.asked) == 2 + 2
    assert "at most 1," in model.asked[0][0]
