import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from graphrerank.language_models.prompt import shipped_prompt
from graphrerank.language_models.reply import Reply
from graphrerank_papers.answers.map_reduce_writer import (
    CitedReply,
    MapReduceWriter,
    parse_final_answer,
)
from graphrerank_papers.answers.packing import Context, Packing
from graphrerank_papers.answers.stage import AnswerStage, Price

MAP = shipped_prompt("retag_map").system
PASSAGES = tuple(f"Passage {number}: thing{number} matters" for number in range(1, 5))  # four words each


def shown(question: str) -> list[int]:
    return [int(number) for number in re.findall(r"^\[(\d+)\]", question, re.MULTILINE)]


class Reader:
    """Finds odd passages helpful, and puts partial answers together; ``broken`` gives other replies, by passage."""

    fingerprint = "reader"

    def __init__(self, broken: dict[int, Reply] | None = None) -> None:
        self.broken = broken or {}
        self.asked: list[str] = []
        self.parts: list[list[int]] = []

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        for index, question in enumerate(questions):
            self.asked.append(question)
            self.parts += [shown(question)] if system == MAP else []
            yield index, self._reply(system, question)

    def _reply(self, system: str | None, question: str) -> Reply:
        if system == MAP:
            if broken := next((self.broken[number] for number in shown(question) if number in self.broken), None):
                return broken
            odd = [number for number in shown(question) if number % 2]
            text = " ".join(f"thing{number}" for number in odd)
            content: dict[str, Any] = {"answer": text, "helpfulness": 10 * max(odd, default=0), "summaries": odd}
        else:
            numbers = [int(n) for listed in re.findall(r"summaries ([\d, ]+)\)", question) for n in listed.split(",")]
            content = {"answer": "; ".join(re.findall(r"\) (.*)$", question, re.MULTILINE)), "summaries": numbers}
        return Reply(json.dumps(content), "answered", "m", 10, 2)


def written(reader: Reader, *contexts: Sequence[str], **settings: Any) -> list[Any]:
    writer = MapReduceWriter(reader, **{"part_tokens": 4, **settings})  # a passage is a part
    replies = writer.write(["Which?"] * len(contexts), [Context(tuple(row), 0) for row in contexts])
    assert all(isinstance(reply, CitedReply) for reply in replies)
    return list(replies)


def test_parts_citations_tokens_and_requests_of_each_question() -> None:
    reader = Reader()
    first, second, again = written(reader, PASSAGES, PASSAGES[:1] * 0 + ("An even one of words",), PASSAGES)
    assert first == again
    assert (first.text, first.citations, sorted(first.helpfulness)) == ("thing3; thing1", (0, 2), [0, 0, 10, 30])
    assert (first.outcome, first.model, first.attempts) == ("answered", "m", 1)
    assert (first.input_tokens, first.output_tokens) == (50, 10)  # four parts, and what puts them together
    assert second.input_tokens == 20
    assert len(reader.asked) == 7  # equal questions with equal contexts once
    first, second = written(Reader(), PASSAGES[:1], PASSAGES[:2])  # an equal part of two contexts counts for both
    assert (first.input_tokens, second.input_tokens) == (20, 30)


def test_it_abstains_where_nothing_helps_and_without_passages() -> None:
    nothing = Reply('{"answer": "", "helpfulness": 0, "summaries": []}', "answered", "m", 10, 2)
    first, second = written(Reader({1: nothing}), PASSAGES[:1], ())
    assert (first.text, first.outcome, first.helpfulness, first.input_tokens) == ("", "answered", (0,), 10)
    assert (second.text, second.outcome, second.input_tokens, second.attempts) == ("", "answered", 0, 1)


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply("", "failed", attempts=3, problem="down"), "failed"),
        (Reply("", "rejected", problem="too long"), "rejected"),
        (Reply("rubbish", "answered", "m"), "unusable"),
    ],
)
def test_what_becomes_of_a_question_whose_parts_all_fail(reply: Reply, outcome: str) -> None:
    (answer,) = written(Reader({1: reply, 2: reply}), PASSAGES[:2], tries=2)
    assert (answer.text, answer.outcome, answer.helpfulness) == ("", outcome, (None, None))
    assert answer.attempts == 1 + 4 * reply.attempts - 2  # two parts, each asked twice
    assert answer.problem == reply.problem


def test_through_the_stage_and_its_cache(tmp_path: Path) -> None:
    counts = []
    for reader in (Reader(), Reader()):
        writer = MapReduceWriter(reader, part_tokens=4, cache=tmp_path)
        stage = AnswerStage(Packing(100, top_k=None), writer, price=Price(1.0, 1.0))
        (answers,) = stage.answer(["Which?"], {"one": stage.packing.pack([PASSAGES])}, [["thing1"]]).values()
        assert answers.values["Contain-Match"].tolist() == [1.0]
        counts.append(answers.counts)
    assert counts[0] == counts[1]
    assert counts[0].usd == pytest.approx(60e-6)
    assert not reader.asked  # the second time
    assert counts[0].writer.startswith("retag_map ")


SEVEN = tuple(f"Passage {number}: thing{number} matters" for number in range(1, 8))


def test_parts_are_shuffled_by_seed_and_question_alone() -> None:
    def parts(questions: list[str], seed: int) -> list[list[int]]:
        reader = Reader()
        MapReduceWriter(reader, part_tokens=10, seed=seed).write(questions, [Context(SEVEN, 28) for _ in questions])
        return reader.parts

    alone = parts(["Which things?"], 0)
    assert [len(part) for part in alone] == [2, 2, 2, 1]
    assert sorted(number for part in alone for number in part) == list(range(1, 8))
    assert [number for part in alone for number in part] != list(range(1, 8))
    assert parts(["And what?", "Which things?"], 0)[4:] == alone
    assert parts(["Which things?"], 1) != alone


def test_only_the_most_helpful_that_fit_are_merged() -> None:
    (answer,) = written(Reader(), SEVEN, part_tokens=1, context_tokens=2)  # a passage a part, a word each
    assert (answer.text, answer.citations, len(answer.helpfulness)) == ("thing7; thing5", (4, 6), 7)
    (answer,) = written(Reader(), SEVEN, part_tokens=100, context_tokens=1)
    assert answer.text.count("thing") == 4  # at least one


def test_a_merged_answer_needs_a_source() -> None:
    with pytest.raises(ValueError, match="must have a text and name the summaries"):
        parse_final_answer('{"answer": "a", "summaries": []}')


BAD = [
    "I think so.",
    {"answer": "a", "helpfulness": 3},
    {"answer": "a", "helpfulness": 101, "summaries": [1]},
    {"answer": "a", "helpfulness": True, "summaries": [1]},
    {"answer": "a", "helpfulness": 3, "summaries": []},
    {"answer": " ", "helpfulness": 3, "summaries": [1]},
    {"answer": "a", "helpfulness": 3, "summaries": [8]},  # not shown
    {"answer": 7, "helpfulness": 3, "summaries": [1]},
]


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_part_is_asked_for_again_and_left_out(bad: Any) -> None:
    reader = Reader({1: Reply(bad if isinstance(bad, str) else json.dumps(bad), "answered", "m")})
    (answer,) = written(reader, SEVEN, tries=2)
    assert answer.citations == (2, 4, 6)
    assert answer.helpfulness.count(None) == 1
    assert len(reader.parts) == 8


def test_an_answer_may_cite_only_what_its_parts_cite() -> None:
    class Inventing(Reader):
        def _reply(self, system: str | None, question: str) -> Reply:
            if system == MAP:
                return super()._reply(system, question)
            return Reply('{"answer": "all", "summaries": [1, 2]}', "answered", "m")

    (answer,) = written(Inventing(), SEVEN, part_tokens=100)
    assert (answer.text, answer.citations, answer.helpfulness, answer.outcome) == ("", (), (70,), "unusable")
