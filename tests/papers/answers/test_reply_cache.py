from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from graphrerank.language_models.reply import Reply
from graphrerank_papers.answers.reply_cache import ReplyCache, all_replies


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
        all_replies(ReplyCache(first, tmp_path), questions, system="s")
    replies = all_replies(ReplyCache(second, tmp_path), questions, system="s")
    assert [reply.text for reply in replies] == [f"S Q{i}" for i in range(6)]
    assert sorted(first.asked + second.asked) == questions


def test_equal_questions_are_asked_once_and_other_systems_anew(tmp_path: Path) -> None:
    model = Stopping(9)
    for system in ("s", "t", None, "s"):
        assert len(set(all_replies(ReplyCache(model, tmp_path), ["a", "b", "a"], system=system))) == 2
    assert sorted(model.asked) == ["a", "a", "a", "b", "b", "b"]


def test_what_failed_is_asked_again(tmp_path: Path) -> None:
    model = Stopping(9)
    for _ in range(2):
        assert all_replies(ReplyCache(model, tmp_path), ["a", "bad"], system=None)[1].outcome == "failed"
    assert sorted(model.asked) == ["a", "bad", "bad"]


def test_nothing_is_kept_without_a_folder() -> None:
    model = Stopping(9)
    for _ in range(2):
        all_replies(ReplyCache(model, None), ["a"], system=None)
    assert model.asked == ["a", "a"]
