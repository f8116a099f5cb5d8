from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from graphrerank.language_models.client import LanguageModel
from graphrerank.language_models.reply import Reply
from graphrerank.language_models.strict_answers import ask_strictly
from graphrerank_papers.answers.judges import PairwiseJudge
from graphrerank_papers.answers.replies import RecordedModel


class Scripted:
    """Replies by a table of lists, one reply after the other; counts what it was asked."""

    fingerprint = "scripted"

    def __init__(self, table: dict[str, list[Reply]]) -> None:
        self.table, self.asked = table, 0

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        for index, question in enumerate(questions):
            self.asked += 1
            first = question.partition("\n\nAn earlier")[0]
            yield index, self.table[first].pop(0)


def test_replies_are_found_under_the_message_that_was_asked_first(tmp_path: Path) -> None:
    script = {"a": [Reply("x", "answered", "m"), Reply("7", "answered", "m", 5, 1)], "b": [Reply("", "failed")] * 3}
    model = RecordedModel(Scripted(script), tmp_path)
    assert ask_strictly(model, ["a", "b", "a"], system=None, parse=int, tries=3) == [7, None, 7]
    assert [reply.text for reply in model.replies_to(["a"])] == ["x", "7"]  # equal messages were asked once
    assert [reply.outcome for reply in model.replies_to(["b"])] == ["failed"] * 3
    assert len(model.recorded) == 5
    again = Scripted({"b": [Reply("8", "answered", "m")]})  # what failed was not kept
    assert ask_strictly(RecordedModel(again, tmp_path), ["a", "b"], system=None, parse=int) == [7, 8]
    assert again.asked == 1


def test_an_endpoint_that_breaks_down_costs_verdicts_and_not_the_run(endpoint: tuple[str, Any]) -> None:
    pytest.importorskip("httpx", reason="httpx is optional")
    url, handler = endpoint
    handler.answer = lambda self, question, echo: {"error": "overloaded"}  # rubbish with status 200
    model = RecordedModel(LanguageModel(url, "m", max_retries=1, pause=0.0))
    judge = PairwiseJudge(model, criteria={"directness": "How direct?"}, tries=2)
    verdicts = judge.compare(["q"], ["Metz"], ["Nancy"])
    assert bool(verdicts.scores.isnan().all())
    assert {reply.outcome for reply in model.recorded} == {"failed"}
    assert len(handler.requests) == 8  # both orders, both tries, each asked twice


class Stopping:
    """Replies with the question in capitals; dies after some replies."""

    fingerprint = "stopping"

    def __init__(self, alive: int) -> None:
        self.alive = alive
        self.asked: list[str] = []

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        for index, question in reversed(list(enumerate(questions))):  # in no order
            if len(self.asked) == self.alive:
                raise RuntimeError("power cut")
            self.asked.append(question)
            outcome = "failed" if question == "bad" else "answered"
            yield index, Reply(f"{system} {question}".upper(), outcome)


def test_each_reply_is_kept_when_it_comes(tmp_path: Path) -> None:
    questions = [f"q{i}" for i in range(6)]
    first, second = Stopping(4), Stopping(9)
    with pytest.raises(RuntimeError, match="power cut"):
        RecordedModel(first, tmp_path).all_replies(questions, system="s")
    replies = RecordedModel(second, tmp_path).all_replies(questions, system="s")
    assert [reply.text for reply in replies] == [f"S Q{i}" for i in range(6)]
    assert sorted(first.asked + second.asked) == questions


def test_equal_questions_are_asked_once_per_system_message_and_what_failed_again(tmp_path: Path) -> None:
    model = Stopping(9)
    for system in ("s", "t", None, "s"):
        assert len(set(RecordedModel(model, tmp_path).all_replies(["a", "bad", "a"], system=system))) == 2
    assert sorted(model.asked) == ["a", "a", "a", "bad", "bad", "bad", "bad"]
