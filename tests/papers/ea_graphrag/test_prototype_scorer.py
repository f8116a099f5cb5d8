import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank_papers.ea_graphrag.prototype_scorer import PrototypeScorer
from tests.support.encoders import HashEncoder

DENSE = ["who is the king", "who is the queen", "what is a river"]
GRAPH = ["who is the father of the king of the river", "where was the mother of the queen born"]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    file = tmp_path / "disagreements.jsonl"
    entries: list[dict[str, Any]] = [{"text": text, "right": "dense", "part": "training", "label": 0} for text in DENSE]
    entries += [{"text": text, "right": "graph"} for text in GRAPH]
    entries.append({"text": "who is the duke", "right": "graph", "part": "validation"})
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return file


@pytest.mark.parametrize("num_nearest", [1, 2, 9])
def test_against_the_equation(num_nearest: int, questions: Path) -> None:
    encoder = HashEncoder(dim=32, by_word=True)
    scorer = PrototypeScorer(questions, encoder=encoder, num_nearest=num_nearest, temperature=0.2)
    texts = ["who is the duke", "where was the father of the queen born", "river"]
    for text, score in zip(texts, scorer.score(texts).tolist(), strict=True):
        vector = encoder.encode([text])[0]
        near = []
        for own in (DENSE, GRAPH):
            cosines = sorted((float(vector @ encoder.encode([other])[0]) for other in own), reverse=True)[:num_nearest]
            near.append(sum(cosines) / len(cosines))
        assert score == pytest.approx(1 / (1 + math.exp(-(near[1] - near[0]) / 0.2)), abs=1e-5)
    first, second, _ = scorer.score(texts).tolist()
    assert first < second
    assert scorer.score([]).shape == (0,)


def test_a_query_without_a_word_is_undecided(questions: Path) -> None:
    scorer = PrototypeScorer(questions, encoder=HashEncoder(dim=32, by_word=True))
    torch.testing.assert_close(scorer.score([""]), torch.tensor([0.5]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]\n", r":1: needed an object with `text` and `right`"),
        ('{"text": "a", "right": "both"}\n', r":1: needed a text, and `right` of \['dense', 'graph'\]"),
        ('{"text": "a", "right": "graph"}\n', "that the path 'dense' gets right, got none"),
    ],
)
def test_files_of_another_form_are_refused(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        PrototypeScorer(file, encoder=HashEncoder())


def test_settings_out_of_range_are_refused(questions: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`low` must be below `high`, got 0\.7 and 0\.6"):
        PrototypeScorer(questions, encoder=HashEncoder(), low=0.7)
    with pytest.raises(ValueError, match="`num_nearest` must be at least 1 and `temperature` positive, got 0"):
        PrototypeScorer(questions, encoder=HashEncoder(), num_nearest=0)
    with pytest.raises(ValueError, match="needed a file of questions"):
        PrototypeScorer(tmp_path / "nothing", encoder=HashEncoder())
