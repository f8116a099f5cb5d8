import pytest
import torch

from graphrerank.data import PreparedDataset
from graphrerank.evaluation import System, base_ranking
from graphrerank.evaluation.reliability import judge_reliability, labelled_scores
from graphrerank.graphs.calibration import IsotonicCalibration, LogisticCalibration


def test_every_candidate_is_a_pair_and_padding_is_none(prepared: PreparedDataset) -> None:
    scores, labels = labelled_scores(prepared, "val", System("base", base_ranking, reads_graph=False))
    # candidates [3, 0, 4, 1], [3, 0, 4], [2, 0, 1, 3]; relevant: 0 and 1; 3 and 4; 2 and 5
    assert scores.tolist() == pytest.approx([0.9, 0.8, 0.7, 0.6, 0.9, 0.8, 0.7, 0.9, 0.8, 0.7, 0.6])
    assert labels.tolist() == [0, 1, 0, 1, 1, 0, 1, 1, 0, 0, 0]


def test_numbers_worked_by_hand() -> None:
    calibration = IsotonicCalibration((0.0, 1.0), (0.05, 0.85))
    found = judge_reliability("a", calibration, torch.tensor([0.0, 0.0, 1.0, 1.0]), torch.tensor([0.0, 0.0, 1.0, 0.0]))
    assert (found.system, found.method, found.num_pairs, found.share_relevant) == ("a", "isotonic", 4, 0.25)
    assert found.counts == (2, 0, 0, 0, 0, 0, 0, 0, 2, 0)
    assert [found.shares[bin] for bin in (0, 8)] == [0.0, 0.5]
    assert found.ece == pytest.approx(0.5 * 0.05 + 0.5 * 0.35)
    assert found.brier == pytest.approx((2 * 0.05**2 + 0.15**2 + 0.85**2) / 4)


def test_sure_of_nothing_but_the_base_rate() -> None:
    labels = (torch.arange(100) < 30).double()
    found = judge_reliability("a", LogisticCalibration(0.0, -0.8473), torch.arange(100.0), labels)
    assert found.ece == pytest.approx(0, abs=1e-4)
    assert found.brier == pytest.approx(0.3 * 0.7, abs=1e-6)
