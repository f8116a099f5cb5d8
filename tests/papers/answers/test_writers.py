import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.reply import Reply
from graphrerank.language_models.strict_answers import ask_strictly
from graphrerank_papers.answers.packing import Context, Packing
from graphrerank_papers.answers.price import Price
from graphrerank_papers.answers.stage import AnswerStage
from graphrerank_papers.answers.writers import CitedReply, MapReduceWriter, PromptedWriter, RecordedModel
from tests.support.language_models import ScriptedReplies


def in_turn(table: dict[str, list[Reply]]) -> ScriptedReplies:
    """Reply by a table of lists, one reply after the other."""
    return ScriptedReplies(lambda question: table[question.partition("\n\nAn earlier")[0]].pop(0))


def test_replies_are_found_under_the_first_message(tmp_path: Path) -> None:
    script = {"a": [Reply("x", "answered", "m"), Reply("7", "answered", "m", 5, 1)], "b": [Reply("", "failed")] * 3}
    model = RecordedModel(in_turn(script), tmp_path)
    assert ask_strictly(model, ["a", "b", "a"], system=None, parse=int, tries=3) == [7, None, 7]
    assert [reply.text for reply in model.replies_to(["a"])] == ["x", "7"]  # equal messages are sent once
    assert [reply.outcome for reply in model.replies_to(["b"])] == ["failed"] * 3
    assert len(model.recorded) == 5
    again = in_turn({"b": [Reply("8", "answered", "m")]})  # what failed was not kept
    assert ask_strictly(RecordedModel(again, tmp_path), ["a", "b"], system=None, parse=int) == [7, 8]
    assert len(again.asked) == 1


class Stopping(ScriptedReplies):
    """Replies with the question in capitals, in no order; dies after some replies."""

    def __init__(self, alive: int) -> None:
        super().__init__(lambda question: Reply(question.upper(), "failed" if question == "bad" else "answered"))
        self.alive = alive

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        for index, question in reversed(list(enumerate(questions))):
            if len(self.asked) == self.alive:
                raise RuntimeError("power cut")
            yield index, next(super().replies([question], system=system))[1]


def test_each_reply_is_kept_when_it_comes(tmp_path: Path) -> None:
    questions = [f"q{i}" for i in range(6)]
    first, second = Stopping(4), Stopping(9)
    with pytest.raises(RuntimeError, match="power cut"):
        RecordedModel(first, tmp_path).all_replies(questions, system="s")
    replies = RecordedModel(second, tmp_path).all_replies(questions, system="s")
    assert [reply.text for reply in replies] == [f"Q{i}" for i in range(6)]
    assert sorted(first.asked + second.asked) == [("s", question) for question in questions]
    model = Stopping(9)  # equal questions are sent once per system message, and failed ones again
    for system in ("s", "t", None, "s"):
        assert len(set(RecordedModel(model, tmp_path / "other").all_replies(["a", "bad", "a"], system=system))) == 2
    assert sorted(question for _, question in model.asked) == ["a", "a", "a", "bad", "bad", "bad", "bad"]


def test_each_filled_prompt_is_sent_once() -> None:
    model = ScriptedReplies({"c: q": " Metz\n", ": q": "I do NOT know it; sorry."})
    prompt = Prompt("short", "{context}: {question}", system="be short", abstention="I do not know")
    writer = PromptedWriter(model, prompt)
    replies = writer.write(["q", "q", "q"], [Context(("c",), 1), Context((), 0), Context(("c",), 1)])
    assert [reply.text for reply in replies] == ["Metz", "", "Metz"]
    assert model.asked == [("be short", "c: q"), ("be short", ": q")]
    assert writer.name == f"short {prompt.fingerprint}"
    with pytest.raises(ValueError, match=r"must have the placeholders \['context', 'question'\], got \['query'\]"):
        PromptedWriter(model, Prompt("p", "{query}"))


def test_a_sentence_of_not_knowing_is_whole_words() -> None:
    model = ScriptedReplies({": a": "Canada", ": b": "N/A.", ": c": "It is N/A here", ": d": "the end is nigh"})
    writer = PromptedWriter(model, Prompt("p", "{context}: {question}", abstention="N/A"))
    replies = writer.write(["a", "b", "c", "d"], [Context((), 0)] * 4)
    assert [reply.text for reply in replies] == ["Canada", "", "", "the end is nigh"]


MAP = shipped_prompt("retag_map").system
SEVEN = tuple(f"Passage {number}: thing{number} matters" for number in range(1, 8))  # four words each
PASSAGES = SEVEN[:4]


def shown(question: str) -> list[int]:
    return [int(number) for number in re.findall(r"^\[(\d+)\]", question, re.MULTILINE)]


class Reader:
    """Finds odd passages helpful, and merges partial answers; ``broken`` and ``merged`` give other replies."""

    fingerprint = "reader"

    def __init__(self, broken: dict[int, Reply] | None = None, merged: dict[str, Any] | None = None) -> None:
        self.broken, self.merged = broken or {}, merged  # by passage; of all partial answers
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
        elif self.merged is not None:
            content = self.merged
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
    first, second, again = written(reader, PASSAGES, ("An even one of words",), PASSAGES)
    assert first == again
    assert (first.text, first.citations, sorted(first.helpfulness)) == ("thing3; thing1", (0, 2), [0, 0, 10, 30])
    assert (first.outcome, first.model, first.attempts) == ("answered", "m", 1)
    assert (first.input_tokens, first.output_tokens) == (50, 10)  # four parts, and the merged answer
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
def test_a_question_whose_parts_all_fail(reply: Reply, outcome: str) -> None:
    (answer,) = written(Reader({1: reply, 2: reply}), PASSAGES[:2], tries=2)
    assert (answer.text, answer.outcome, answer.helpfulness) == ("", outcome, (None, None))
    assert answer.attempts == 1 + 4 * reply.attempts - 2  # two parts, each sent twice
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
def test_a_bad_part_is_requested_again_and_left_out(bad: Any) -> None:
    reader = Reader({1: Reply(bad if isinstance(bad, str) else json.dumps(bad), "answered", "m")})
    (answer,) = written(reader, SEVEN, tries=2)
    assert answer.citations == (2, 4, 6)
    assert answer.helpfulness.count(None) == 1
    assert len(reader.parts) == 8


@pytest.mark.parametrize("summaries", [[1, 2], []])  # one that no part cites, or none
def test_an_answer_cites_what_its_parts_cite(summaries: list[int]) -> None:
    (answer,) = written(Reader(merged={"answer": "all", "summaries": summaries}), SEVEN, part_tokens=100)
    assert (answer.text, answer.citations, answer.helpfulness, answer.outcome) == ("", (), (70,), "unusable")
