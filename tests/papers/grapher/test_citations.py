import json
from typing import Any

import pytest

from graphrerank.language_models.client import LanguageModel
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


def answer(content: Any) -> tuple[int, dict[str, Any]]:
    return 200, {"choices": [{"message": {"content": content if isinstance(content, str) else json.dumps(content)}}]}


def test_a_language_model_is_asked_where_there_is_a_choice(endpoint: Any) -> None:
    pytest.importorskip("httpx", reason="httpx is optional")
    url, handler = endpoint
    listed = "References:\n1. [1]; Ann Smith, Bo Lee, Cy Roy; Ants of the North; 2020\n2. Jan van der Berg; 2018"
    berg = Reference("c", authors=BERG.authors, year="2018")
    first, second, third = (f"{listed}\n\nPiece of the paper:\n{text}" for text in ("x", "y", "z"))
    bad = [answer({"cited": [3]}), answer({"cited": ["1"]}), answer("nothing"), answer([1])]
    handler.script = {first: [bad[0], answer({"cited": [2, 1, 2]})], second: bad[1:], third: [answer({"cited": []})]}
    detector = LanguageModelCitations(LanguageModel(url, "m", pause=0.0))
    references = [[SMITH, berg]] * 3
    assert detector.detect(["x", "y", "z", "w"], [*references, []]) == [[0, 1], [], [], []]
    assert (detector.num_skipped, len(handler.requests)) == (1, 2 + 3 + 1)


def test_tries_out_of_range() -> None:
    with pytest.raises(ValueError, match="`tries` must be a positive integer, got 0"):
        LanguageModelCitations(LanguageModel("http://localhost/v1", "m"), tries=0)
