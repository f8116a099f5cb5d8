import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphrerank.language_models.answer_cache import AnswerCache
from graphrerank.language_models.client import LanguageModel
from graphrerank.language_models.prompt import shipped_prompt
from graphrerank.text import WordTokenizer
from graphrerank_papers.answers.map_reduce import (
    CitedAnswer,
    MapReduceAnswers,
    Summary,
    parse_final_answer,
    parse_partial_answer,
)

SUMMARIES = [Summary(f"c{i}", f"Summary {i}: thing{i} matters") for i in range(1, 8)]  # four words each

MAP, REDUCE = (shipped_prompt(name).system for name in ("retag_map", "retag_reduce"))


def shown(question: str) -> list[int]:
    return [int(number) for number in re.findall(r"^\[(\d+)\]", question, re.MULTILINE)]


def helpful(system: str, question: str) -> Any:
    """Find odd summaries helpful, by their number; put all partial answers together."""
    if system == MAP:
        odd = [number for number in shown(question) if number % 2]
        text = " ".join(f"thing{number}" for number in odd)
        return {"answer": text, "helpfulness": 10 * max(odd, default=0), "summaries": odd}
    numbers = [int(n) for listed in re.findall(r"summaries ([\d, ]+)\)", question) for n in listed.split(",")]
    return {"answer": "; ".join(re.findall(r"\) (.*)$", question, re.MULTILINE)), "summaries": numbers}


def test_parts_are_answered_and_put_together(scripted_model: Callable[..., Any]) -> None:
    model = scripted_model(helpful)
    (answer,) = MapReduceAnswers(model, WordTokenizer(), part_tokens=10).answer(["Which things?"], [SUMMARIES])
    parts = [shown(question) for system, question in model.asked if system == MAP]
    assert sorted(number for part in parts for number in part) == list(range(1, 8))
    assert [len(part) for part in parts] == [2, 2, 2, 1]
    assert [number for part in parts for number in part] != list(range(1, 8))  # shuffled
    assert answer.citations == ("c1", "c3", "c5", "c7")
    assert answer.helpfulness == tuple(10 * max((n for n in part if n % 2), default=0) for part in parts)
    assert answer.tokens_read == 28
    ((_, last),) = [asked for asked in model.asked if asked[0] == REDUCE]
    order = [int(number) for number in re.findall(r"helpfulness (\d+)", last)]
    assert order == sorted((number for number in answer.helpfulness if number), reverse=True)


def test_the_order_hangs_on_seed_and_question_alone(scripted_model: Callable[..., Any]) -> None:
    def read(questions: list[str], seed: int) -> list[str]:
        model = scripted_model(helpful)
        MapReduceAnswers(model, WordTokenizer(), part_tokens=10, seed=seed).answer(
            questions, [SUMMARIES for _ in questions]
        )
        return [question for _, question in model.asked if question.startswith("Question: Which")]

    alone = read(["Which things?"], 0)
    assert read(["And what?", "Which things?"], 0) == alone
    assert read(["Which things?"], 1) != alone


def test_only_what_fits_is_put_together(scripted_model: Callable[..., Any]) -> None:
    model = scripted_model(helpful)
    answers = MapReduceAnswers(model, WordTokenizer(), part_tokens=1, context_tokens=2)  # a summary a part, a word each
    (answer,) = answers.answer(["Which things?"], [SUMMARIES])
    assert answer == CitedAnswer("thing7; thing5", ("c5", "c7"), answer.helpfulness, 28)
    assert len(answer.helpfulness) == 7
    tight = MapReduceAnswers(model, WordTokenizer(), part_tokens=100, context_tokens=1)
    assert tight.answer(["Which things?"], [SUMMARIES])[0].text.count("thing") == 4  # one at least


def test_nothing_to_read_nothing_asked(scripted_model: Callable[..., Any]) -> None:
    model = scripted_model(helpful)
    answers = MapReduceAnswers(model, WordTokenizer())
    assert answers.answer(["Which things?", "  "], [[], SUMMARIES]) == [CitedAnswer(""), CitedAnswer("")]
    assert answers.answer([], []) == []
    assert model.asked == []


def test_nothing_helps(scripted_model: Callable[..., Any]) -> None:
    model = scripted_model(lambda system, question: {"answer": "", "helpfulness": 0, "summaries": []})
    (answer,) = MapReduceAnswers(model, WordTokenizer()).answer(["Which things?"], [SUMMARIES])
    assert answer == CitedAnswer("", (), (0,), 28)
    assert len(model.asked) == 1


BAD = [
    "I think so.",
    "[]",
    {"answer": "a", "helpfulness": 3},
    {"answer": "a", "helpfulness": 101, "summaries": [1]},
    {"answer": "a", "helpfulness": 3.5, "summaries": [1]},
    {"answer": "a", "helpfulness": True, "summaries": [1]},
    {"answer": "a", "helpfulness": 3, "summaries": []},
    {"answer": " ", "helpfulness": 3, "summaries": [1]},
    {"answer": "a", "helpfulness": 3, "summaries": ["1"]},
    {"answer": "a", "helpfulness": 3, "summaries": [8]},  # not shown
    {"answer": 7, "helpfulness": 3, "summaries": [1]},
]


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_part_is_asked_for_again_counted_and_left_out(bad: Any, scripted_model: Callable[..., Any]) -> None:
    def reply(system: str, question: str) -> Any:
        return bad if system == MAP and 1 in shown(question) else helpful(system, question)

    model = scripted_model(reply)
    answers = MapReduceAnswers(model, WordTokenizer(), part_tokens=1, tries=2)
    (answer,) = answers.answer(["Which things?"], [SUMMARIES])
    assert answer.citations == ("c3", "c5", "c7")
    assert answer.helpfulness.count(None) == 1
    assert len(answers.skipped) == 1
    assert sum(system == MAP for system, _ in model.asked) == 8


def test_an_answer_may_cite_only_what_its_parts_cite(scripted_model: Callable[..., Any]) -> None:
    def reply(system: str, question: str) -> Any:
        return helpful(system, question) if system == MAP else {"answer": "all", "summaries": [1, 2]}

    answers = MapReduceAnswers(scripted_model(reply), WordTokenizer())
    (answer,) = answers.answer(["Which things?"], [SUMMARIES])
    assert (answer.text, answer.citations, answer.helpfulness) == ("", (), (70,))
    assert len(answers.skipped) == 1


def test_over_http_and_from_disk(endpoint: Any, tmp_path: Path) -> None:
    url, handler = endpoint
    model = AnswerCache(LanguageModel(url, "m", pause=0.0), tmp_path)
    first = f"Question: Which?\n\n[1] {SUMMARIES[0].text}"
    good = {"answer": "one", "helpfulness": 50, "summaries": [1]}
    last = "Question: Which?\n\n(helpfulness 50; summaries 1) one"
    final = {"answer": "It is one.", "summaries": [1]}
    contents = [{"choices": [{"message": {"content": json.dumps(content)}}]} for content in (good, final)]
    handler.script = {first: [(429, ""), (500, ""), (200, contents[0])], last: [(503, ""), (200, contents[1])]}
    for _ in range(2):
        (answer,) = MapReduceAnswers(model, WordTokenizer()).answer(["Which?"], [SUMMARIES[:1]])
        assert answer == CitedAnswer("It is one.", ("c1",), (50,), 4)
    assert len(handler.requests) == 5


@pytest.mark.parametrize("name", ["part_tokens", "context_tokens"])
def test_settings_out_of_range(name: str, scripted_model: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer, got 0"):
        MapReduceAnswers(scripted_model(helpful), WordTokenizer(), **{name: 0})


def test_messages_of_the_parsers() -> None:
    with pytest.raises(ValueError, match="the answer must be JSON and nothing else, got 'I think so'"):
        parse_partial_answer("I think so")
    with pytest.raises(ValueError, match="keys \\['answer', 'helpfulness', 'summaries'\\]"):
        parse_partial_answer('{"answer": "a"}')
    with pytest.raises(ValueError, match="must have a text and name the summaries"):
        parse_final_answer('{"answer": "a", "summaries": []}')
