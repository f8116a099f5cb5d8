from dataclasses import replace

import pytest
import torch

from graphrerank import RerankedList
from graphrerank.graphs.list_confidence import ListConfidence


def test_it_is_a_sequence_of_pairs() -> None:
    ranking = RerankedList(("b", "a", "c"), torch.tensor([1, 0, 2]), torch.tensor([2.0, 0.5, -1.0]))
    assert len(ranking) == 3
    assert list(ranking) == [("b", 2.0), ("a", 0.5), ("c", -1.0)]
    assert ranking[-1] == ("c", -1.0)
    assert ("a", 0.5) in ranking
    assert dict(ranking)["b"] == 2.0
    with pytest.raises(IndexError):
        ranking[3]


def test_a_slice_is_a_list_again() -> None:
    ranking = RerankedList(("b", "a", "c"), torch.tensor([1, 0, 2]), torch.tensor([2.0, 0.5, -1.0]))
    best = ranking[:2]
    assert isinstance(best, RerankedList)
    assert best.ids == ("b", "a")
    assert best.indices.tolist() == [1, 0]
    assert list(ranking[::-1]) == list(ranking)[::-1]
    assert list(ranking[5:]) == []


def test_its_relevance_is_a_probability_where_there_is_one() -> None:
    ranking = RerankedList(("b", "a"), torch.tensor([1, 0]), torch.tensor([2.0, 0.5]))
    assert torch.equal(ranking.relevance, ranking.scores)
    calibrated = replace(ranking, probabilities=torch.tensor([0.75, 0.25]))
    assert torch.equal(calibrated.relevance, calibrated.probabilities)


def test_how_likely_its_top_is_complete_counts_what_was_left_out() -> None:
    ranking = RerankedList(("b", "a", "c"), torch.tensor([1, 0, 2]), torch.tensor([2.0, 0.5, -1.0]))
    assert ranking.perfect_recall is None
    p, confidence = torch.tensor([0.75, 0.25, 0.125]), ListConfidence(beyond=-1.0, within=0.0, intercept=0.0)
    whole = replace(ranking, probabilities=p, candidates=p, confidence=confidence)
    assert torch.equal(whole.perfect_recall, confidence.perfect_recall(p))
    assert torch.equal(whole[:1].perfect_recall, whole.perfect_recall)
    assert whole[1:].candidates.tolist() == p.tolist()
