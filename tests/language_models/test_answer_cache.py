from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from graphrerank.language_models import answer_cache
from graphrerank.language_models.answer_cache import AnswerCache


class Counting:
    """A model that numbers its answers; it stops for good after some."""

    def __init__(self, *, fingerprint: str = "counting", stop_after: int | None = None) -> None:
        self.fingerprint = fingerprint
        self.stop_after = stop_after
        self.asked: list[str] = []

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Any]) -> list[Any]:
        if self.stop_after is not None and len(self.asked) + len(questions) > self.stop_after:
            raise KeyboardInterrupt
        self.asked += questions
        return [read(f"{system} {question} {len(self.asked)}") for question in questions]


def test_nothing_is_asked_twice(tmp_path: Path) -> None:
    model = Counting()
    first = AnswerCache(model, tmp_path).ask(["a", "b"], system=None, read=str)
    again = AnswerCache(model, str(tmp_path)).ask(["b", "c", "a"], system=None, read=str)
    assert model.asked == ["a", "b", "c"]
    assert again == [first[1], "None c 3", first[0]]


def test_equal_questions_of_one_call_have_answers_of_their_own(tmp_path: Path) -> None:
    numbered = Counting()
    numbered.ask = lambda questions, *, system, read: [read(f"{q}{i}") for i, q in enumerate(questions)]  # type: ignore[method-assign]
    cache = AnswerCache(numbered, tmp_path)
    assert cache.ask(["a", "a", "b", "a"], system=None, read=str) == ["a0", "a1", "b2", "a3"]
    assert AnswerCache(Counting(stop_after=0), tmp_path).ask(["b", "a", "a"], system=None, read=str) == [
        "b2",
        "a0",
        "a1",
    ]


@pytest.mark.parametrize("change", ["system", "model", "question"])
def test_another_model_or_message_is_asked(tmp_path: Path, change: str) -> None:
    AnswerCache(Counting(), tmp_path).ask(["ab"], system="c", read=str)
    other = Counting(fingerprint="other" if change == "model" else "counting")
    system, question = {"system": ("d", "ab"), "model": ("c", "ab"), "question": ("ca", "b")}[change]
    AnswerCache(other, tmp_path).ask([question], system=system, read=str)
    assert other.asked == [question]


def test_interrupted_run_goes_on_from_its_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_cache, "SHARD_QUESTIONS", 2)
    questions = [f"question {i}" for i in range(7)]
    stopped = Counting(stop_after=5)
    with pytest.raises(KeyboardInterrupt):
        AnswerCache(stopped, tmp_path).ask(questions, system=None, read=str)
    resumed = Counting()
    found = AnswerCache(resumed, tmp_path).ask(questions, system=None, read=str)
    assert (stopped.asked, resumed.asked) == (questions[:4], questions[4:])
    assert [answer.rsplit(" ", 1)[0] for answer in found] == [f"None {question}" for question in questions]


def test_refused_answers_are_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        AnswerCache(Counting(), tmp_path).ask(["a"], system=None, read=int)
    model = Counting()
    AnswerCache(model, tmp_path).ask(["a"], system=None, read=str)
    assert model.asked == ["a"]


def test_nothing_asked_and_surrogates(tmp_path: Path) -> None:
    cache = AnswerCache(Counting(), tmp_path)
    assert cache.ask([], system=None, read=str) == []
    assert not cache.path.exists()
    assert cache.ask(["\ud800"], system=None, read=str) == cache.ask(["\ud800"], system=None, read=str)


def test_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    cache = AnswerCache(Counting(), tmp_path)
    cache.path.write_bytes(b"noise" * 99)
    with pytest.raises(ValueError, match=rf"{cache.path.name}: damaged cache .*; delete this file and run again"):
        cache.ask(["a"], system=None, read=str)
