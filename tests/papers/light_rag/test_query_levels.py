import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from graphrerank_papers.light_rag.query_levels import LanguageModelQueryLevels, parse_levels


class Scripted:
    fingerprint = "scripted"

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers, self.asked = answers, []

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Any]) -> list[Any]:
        self.asked += questions
        return [read(self.answers[question.split("\n")[0]]) for question in questions]


def test_keywords_of_both_levels_and_questions_without() -> None:
    model = Scripted(
        {"Who?": json.dumps({"low_level": ["Metz", "Metz"], "high_level": ["rule over a city"]}), "What?": "none"}
    )
    levels = LanguageModelQueryLevels(model, tries=2)
    assert levels.find(["Who?", " ", "What?"]) == [(["Metz"], ["rule over a city"]), ([], []), ([], [])]
    assert levels.skipped == ["What?"]
    assert len(model.asked) == 3  # the unusable answer was asked for again, the blank question not at all


@pytest.mark.parametrize(
    "content",
    ["[]", '{"low_level": []}', '{"low_level": [1], "high_level": []}', '{"low_level": [" "], "high_level": []}'],
)
def test_answers_of_another_form_are_refused(content: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_levels(content)
