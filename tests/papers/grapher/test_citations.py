from collections.abc import Callable, Sequence
from typing import Any

import pytest

from graphrerank_papers.grapher.citations import CitationPatterns, LanguageModelCitations, Reference

SMITH = Reference("a", key="1", title="Ants of the North", authors=("Ann Smith", "Bo Lee", "Cy Roy"), year="2020")
LEE = Reference("b", key="[9]", title="Bees", authors=("Lee, Bo", "Smith, Ann"), year="2019b")
BERG = Reference("c", key="Berg18", title="", authors=("Jan van der Berg",), year="2018")
REFERENCES = [SMITH, LEE, BERG]


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("As shown [1].", [0]),
        ("As shown [3, 9; Berg18].", [1, 2]),
        ("As shown [7-10] and [berg18].", [1, 2]),
        ("As shown [10\u201312], (1) and 9.", []),
        ("Some say so (Smith et al., 2020).", [0]),
        ("Smith et al. (2020a) say so.", [0]),
        ("Smith and Lee (2020) say so; so did Smith & Roy, 2020.", [0]),
        ("Smith and Jones (2020) say so.", []),
        ("Smith (2019) and Lee (2020) say so.", []),
        ("Lee and Smith's (2017, 2019b) work", [1]),
        ("Lee and Smith (2019)", []),
        ("van der Berg (2018) and [Smith 2020]", [0, 2]),
        ("Blacksmith et al. (2020)", []),
        ("We repeat Ants of the north, with bees.", [0]),
        ("", []),
    ],
)
def test_patterns(text: str, cited: list[int]) -> None:
    assert CitationPatterns().detect([text], [REFERENCES]) == [cited]


def test_each_text_has_its_own_references() -> None:
    assert CitationPatterns().detect(["[1]", "[1]", "[1]"], [[SMITH], [], [BERG, SMITH]]) == [[0], [], [1]]


def test_a_language_model_is_asked_where_there_is_a_choice() -> None:
    listed = "References:\n1. [1]; Ann Smith, Bo Lee, Cy Roy; Ants of the North; 2020\n2. Jan van der Berg; 2018"
    berg = Reference("c", authors=BERG.authors, year="2018")
    answers = {
        "x": ['{"cited": [3]}', '{"cited": [2, 1, 2]}'],
        "y": ['{"cited": ["1"]}', "nothing", "[1]"],
        "z": ['{"cited": []}'],
    }

    class Scripted:
        fingerprint = "scripted"
        asked: list[str] = []  # noqa: RUF012

        def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Any]) -> list[Any]:
            self.asked += questions
            return [read(answers[question.removeprefix(before)[0]].pop(0)) for question in questions]

    before = f"{listed}\n\nPiece of the paper:\n"
    model = Scripted()
    references = [[SMITH, berg]] * 3
    assert LanguageModelCitations(model).detect(["x", "y", "z", "w"], [*references, []]) == [[0, 1], [], [], []]
    assert len(model.asked) == 2 + 3 + 1
    assert model.asked[3].startswith(f"{before}x\n\n")  # the second request names what was wrong with the first
