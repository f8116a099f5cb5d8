import math
from pathlib import Path
from typing import Any

import pytest

from graphrerank_papers.ea_graphrag.prototype_scorer import PrototypeScorer
from tests.papers.ea_graphrag.questions import write_questions
from tests.support.encoders import HashEncoder

DENSE = ["who is the king", "who is the queen", "what is a river"]
GRAPH = ["who is the father of the king of the river", "where was the mother of the queen born"]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return write_questions(tmp_path, DENSE, GRAPH, {"who is the duke": "graph"})


@pytest.mark.parametrize("num_nearest", [1, 2, 9])
def test_against_the_equation(num_nearest: int, questions: Path) -> None:
    encoder = HashEncoder(dim=32, by_word=True)
    scorer = PrototypeScorer(questions, encoder=encoder, num_nearest=num_nearest, temperature=0.2)
    texts = ["who is the duke", "where was the father of the queen born", "river"]
    for text, score in zip(texts, scorer.score(texts).tolist(), strict=True):
        vector = encoder.encode([text])[0]
        near = []
        for path in (DENSE, GRAPH):
            cosines = sorted((float(vector @ encoder.encode([other])[0]) for other in path), reverse=True)
            near.append(sum(cosines[:num_nearest]) / len(cosines[:num_nearest]))
        assert score == pytest.approx(1 / (1 + math.exp(-(near[1] - near[0]) / 0.2)), abs=1e-5)


def test_a_query_takes_the_path_of_questions_like_it(questions: Path) -> None:
    scorer = PrototypeScorer(questions, encoder=HashEncoder(dim=32, by_word=True))
    first, second = scorer.score(["who is the duke", "where was the father of the queen born"]).tolist()
    assert first < second


def test_no_queries(questions: Path) -> None:
    assert PrototypeScorer(questions, encoder=HashEncoder()).score([]).shape == (0,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_nearest": 0}, "`num_nearest` must be a positive integer, got 0"),
        ({"temperature": 0.0}, "`temperature` must be"),
    ],
)
def test_invalid_numbers_are_refused(settings: dict[str, Any], message: str, questions: Path) -> None:
    with pytest.raises(ValueError, match=message):
        PrototypeScorer(questions, encoder=HashEncoder(), **settings)
