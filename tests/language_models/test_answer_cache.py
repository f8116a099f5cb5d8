from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from graphrerank.language_models.answer_cache import AnswerCache


class Counting:
    """A model that numbers its answers."""

    def __init__(self, *, fingerprint: str = "counting") -> None:
        self.fingerprint = fingerprint
        self.asked: list[str] = []

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Any]) -> list[Any]:
        self.asked += questions
        first = len(self.asked) - len(questions) + 1
        return [read(f"{system} {question} {number}") for number, question in enumerate(questions, first)]


def test_nothing_is_asked_twice_and_equal_questions_have_answers_of_their_own(tmp_path: Path) -> None:
    model = Counting()
    found = AnswerCache(model, tmp_path).ask(["a", "a", "\ud800", "a"], system=None, read=str)
    assert (found[0], found[1], found[3]) == ("None a 1", "None a 2", "None a 4")
    again = AnswerCache(model, str(tmp_path)).ask(["\ud800", "c", "a", "a"], system=None, read=str)
    assert again == [found[2], "None c 5", found[0], found[1]]
    empty = AnswerCache(Counting(fingerprint="none"), tmp_path)
    assert empty.ask([], system=None, read=str) == []
    assert not empty.path.exists()


@pytest.mark.parametrize("change", ["system", "model", "question"])
def test_another_model_or_message_is_asked(tmp_path: Path, change: str) -> None:
    AnswerCache(Counting(), tmp_path).ask(["ab"], system="c", read=str)
    other = Counting(fingerprint="other" if change == "model" else "counting")
    system, question = {"system": ("d", "ab"), "model": ("c", "ab"), "question": ("ca", "b")}[change]
    AnswerCache(other, tmp_path).ask([question], system=system, read=str)
    assert other.asked == [question]


def test_refused_answers_and_damaged_files(tmp_path: Path) -> None:
    model = Counting()
    cache = AnswerCache(model, tmp_path)
    with pytest.raises(ValueError, match="invalid literal"):
        cache.ask(["a"], system=None, read=int)
    cache.ask(["a"], system=None, read=str)
    assert model.asked == ["a", "a"]  # the refused answer was not kept
    cache.path.write_bytes(b"noise" * 99)
    with pytest.raises(ValueError, match=rf"{cache.path.name}: damaged cache .*; delete this file and run again"):
        cache.ask(["a"], system=None, read=str)
