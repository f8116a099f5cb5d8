import math

import pytest
import torch

from graphrerank.calibration.labelled_lists import LabelledLists
from graphrerank.calibration.list_confidence import ListConfidence
from graphrerank.calibration.logistic import Calibration
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.reliability import judge_confidence, judge_reliability
from graphrerank.evaluation.reranking import labelled_lists
from graphrerank.evaluation.systems import System, base_ranking


def test_every_candidate_is_a_pair_and_padding_is_none(prepared: PreparedDataset) -> None:
    lists = labelled_lists(prepared, "val", System("base", base_ranking, reads_graph=False))
    scores, labels = lists.pairs
    # candidates [3, 0, 4, 1], [3, 0, 4], [2, 0, 1, 3]; relevant: 0 and 1; 3 and 4; 2 and 5
    assert scores.tolist() == pytest.approx([0.9, 0.8, 0.7, 0.6, 0.9, 0.8, 0.7, 0.9, 0.8, 0.7, 0.6])
    assert labels.tolist() == [0, 1, 0, 1, 1, 0, 1, 1, 0, 0, 0]
    assert lists.complete.int().tolist() == [[0, 0, 0, 1], [0, 0, 1, 1], [0, 0, 0, 0]]  # 5 is no candidate
    p = lists.probabilities(Calibration(slope=0.0, intercept=0.0))
    assert p.tolist() == [[0.5] * 4, [0.5, 0.5, 0.5, 0.0], [0.5] * 4]


def test_confidence_worked_by_hand() -> None:
    scores, relevant = torch.zeros(4, 5), torch.zeros(4, 5, dtype=torch.bool)
    relevant[:3, 0] = True
    lists = LabelledLists(scores, relevant, torch.tensor([1, 1, 1, 2]))
    sure = ListConfidence(beyond=0.0, within=0.0, intercept=100.0)
    (found,) = judge_confidence("a", Calibration(slope=1.0, intercept=0.0), sure, lists)  # no rank 10 in lists of 5
    assert (found.system, found.measure, found.num_queries) == ("a", "PR@5", 4)
    assert (found.share_complete, found.mean_probability, found.ece, found.brier) == (0.75, 1.0, 0.25, 0.25)
    assert found.auc == 0.5
    complete = LabelledLists(scores[:3], relevant[:3], torch.tensor([1, 1, 1]))
    assert math.isnan(judge_confidence("a", Calibration(slope=1.0, intercept=0.0), sure, complete)[0].auc)


def test_numbers_worked_by_hand() -> None:
    calibration = Calibration(slope=math.log(17 / 3) + math.log(19), intercept=-math.log(19))
    found = judge_reliability("a", calibration, torch.tensor([0.0, 0.0, 1.0, 1.0]), torch.tensor([0.0, 0.0, 1.0, 0.0]))
    assert (found.system, found.method, found.num_pairs, found.share_relevant) == ("a", "logistic", 4, 0.25)
    assert found.counts == (2, 0, 0, 0, 0, 0, 0, 0, 2, 0)
    assert [found.shares[bin] for bin in (0, 8)] == [0.0, 0.5]
    assert found.ece == pytest.approx(0.5 * 0.05 + 0.5 * 0.35)
    assert found.brier == pytest.approx((2 * 0.05**2 + 0.15**2 + 0.85**2) / 4)
