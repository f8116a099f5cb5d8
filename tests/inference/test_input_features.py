from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphrerank.features.text_match import MATCH_FEATURES, TextMatch
from graphrerank.inference import input_features
from graphrerank.inference.rerank_input import RerankInput
from graphrerank.operators.bm25 import BM25

QUERY, PASSAGES = "director of Solaris born in", ["Solaris. A film by Tarkovsky.", "Tarkovsky. Born in Russia.", "Rome"]
EDGES = torch.tensor([[0, 1], [1, 0]])
ALL = ["base_score", "bm25_score", *MATCH_FEATURES]


def features(given: RerankInput, names: list[str], check: Callable[[], None] = lambda: None) -> dict[str, torch.Tensor]:
    return input_features.text_features(given, names, EDGES, check=check)


def test_against_bm25_and_text_match() -> None:
    found = features(RerankInput(QUERY, PASSAGES), ALL)
    scores = BM25(PASSAGES).score_all([QUERY])[0]
    expected = TextMatch(PASSAGES).score([QUERY], torch.arange(3), EDGES.T.flip(0), torch.tensor([0, 3]))
    assert torch.equal(found.pop("bm25_score"), scores / scores.max())
    assert torch.equal(torch.stack([found[name] for name in MATCH_FEATURES], dim=1), expected)


@pytest.mark.parametrize("names", [[], ["base_score", "hops"], ["bm25_score"], [MATCH_FEATURES[1]]])
def test_only_what_is_needed(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("was not needed")

    if "bm25_score" not in names:
        monkeypatch.setattr(input_features, "bm25_scores", refuse)
    if MATCH_FEATURES[1] not in names:
        monkeypatch.setattr(input_features, "TextMatch", refuse)
    found = features(RerankInput(QUERY, PASSAGES), names)
    assert set(found) == {name for name in ALL[1:] if name in names or (len(found) == 3 and name in MATCH_FEATURES)}


def test_nothing_without_passages() -> None:
    assert features(RerankInput(QUERY, scores=[1.0, 2.0]), ALL) == {}


def test_it_can_be_stopped() -> None:
    def stop() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        features(RerankInput(QUERY, PASSAGES), ALL, stop)
