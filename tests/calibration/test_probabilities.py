"""Fits of the probabilities of candidates and lists on drawn lists, without a model."""

import math

import torch

from graphrerank.calibration.labelled_lists import LabelledLists
from graphrerank.calibration.list_confidence import ListConfidence
from graphrerank.calibration.logistic import Calibration
from graphrerank.calibration.probabilities import (
    calibration_errors,
    cross_validated_probabilities,
    fit_probabilities,
    predict_probabilities,
)


def _lists(num_queries: int, slope: float, intercept: float, seed: int = 0) -> LabelledLists:
    """Draw scores, and labels by a calibration."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(num_queries, 50, generator=generator).sort(dim=1, descending=True).values * 3
    p = Calibration(slope=slope, intercept=intercept).probabilities(scores)
    relevant = torch.rand(p.shape, generator=generator) < p
    scores[:, 45:] = -math.inf
    relevant[:, 45:] = False
    return LabelledLists(scores, relevant, relevant.sum(1))


def test_a_few_dozen_questions_mend_a_foreign_calibration() -> None:
    lists = _lists(30, slope=0.8, intercept=-3.0)
    before = calibration_errors(lists, lists.probabilities(Calibration(slope=0.8, intercept=-1.0)), None)
    p, complete = cross_validated_probabilities(lists, with_confidence=False)
    after = calibration_errors(lists, p, complete)
    assert before["ece"] > 0.1
    assert after["ece"] < 0.03
    assert after["ece_top"] < before["ece_top"] / 3
    assert after["brier"] < before["brier"]
    assert torch.equal(p[:, 45:], torch.zeros(30, 5))


def test_forty_questions_mend_a_foreign_confidence() -> None:
    lists, foreign = _lists(40, slope=1.5, intercept=-7.5), ListConfidence(beyond=-0.5, within=0.5, intercept=3.0)
    sure = calibration_errors(lists, *predict_probabilities(lists, Calibration(slope=1.5, intercept=-7.5), foreign))
    mended = calibration_errors(lists, *cross_validated_probabilities(lists, with_confidence=True))
    assert sure["ece_PR@5"] > 0.2
    assert mended["ece_PR@5"] < sure["ece_PR@5"] / 2


def test_lists_that_are_never_complete_give_no_confidence() -> None:
    lists = _lists(40, slope=0.8, intercept=-2.0)
    endless = LabelledLists(lists.scores, lists.relevant, lists.num_relevant + 1)
    _, confidence = fit_probabilities({"": endless})
    _, complete = cross_validated_probabilities(endless, with_confidence=True)
    assert confidence is None
    assert complete is None


def test_a_part_is_calibrated_without_its_own_labels() -> None:
    lists = _lists(20, slope=1.5, intercept=-7.5)
    turned = lists.relevant.clone()
    turned[::5] = ~turned[::5]  # the first part
    changed = LabelledLists(lists.scores, turned, turned.sum(1))
    whole, found = (cross_validated_probabilities(part, with_confidence=True) for part in (lists, changed))
    for before, after in zip(whole, found, strict=True):
        assert torch.equal(after[::5], before[::5])
        assert not torch.equal(after[1::5], before[1::5])
