from dataclasses import replace

import pytest
import torch

from graphrerank import RerankedList
from graphrerank.calibration.list_confidence import ListConfidence


def test_it_is_a_sequence_of_pairs_and_a_slice_is_a_list_again() -> None:
    ranking = RerankedList(("b", "a", "c"), torch.tensor([1, 0, 2]), torch.tensor([2.0, 0.5, -1.0]))
    assert list(ranking) == [("b", 2.0), ("a", 0.5), ("c", -1.0)]
    assert ("a", 0.5) in ranking
    assert (len(ranking), ranking[-1], dict(ranking)["b"]) == (3, ("c", -1.0), 2.0)
    with pytest.raises(IndexError):
        ranking[3]
    best = ranking[:2]
    assert (best.ids, best.indices.tolist()) == (("b", "a"), [1, 0])
    assert list(ranking[::-1]) == list(ranking)[::-1]
    assert list(ranking[5:]) == []


def test_probabilities_count_what_was_left_out() -> None:
    ranking = RerankedList(("b", "a", "c"), torch.tensor([1, 0, 2]), torch.tensor([2.0, 0.5, -1.0]))
    assert ranking.perfect_recall is None
    assert torch.equal(ranking.relevance, ranking.scores)
    p, confidence = torch.tensor([0.75, 0.25, 0.125]), ListConfidence(beyond=-1.0, within=0.0, intercept=0.0)
    whole = replace(ranking, probabilities=p, candidates=p, confidence=confidence)
    assert torch.equal(whole.relevance, p)
    assert torch.equal(whole.perfect_recall, confidence.perfect_recall(p))
    assert torch.equal(whole[:1].perfect_recall, whole.perfect_recall)
    assert whole[1:].candidates.tolist() == p.tolist()
