"""Fit calibrations from a reranker's scores to probabilities of relevance, on pairs outside its training."""

import math
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from graphrerank.graphs.calibration import Calibration, IsotonicCalibration, LogisticCalibration

NEWTON_STEPS = 100
HALVINGS = 40  # of a Newton step that goes too far
FLAT = 1e-10  # a gradient per pair that counts as zero
RIDGE = 1e-12  # so that the Hessian can be solved where all scores are one


def fit_logistic(scores: Tensor, labels: Tensor) -> LogisticCalibration:
    r"""Find the slope and intercept of the highest likelihood, of slopes that are not negative.

    .. math:: \min_{a \ge 0, b} \sum_i \mathrm{BCE}(\sigma(a s_i + b), t_i)

    with the targets :math:`t = (n_+ + 1) / (n_+ + 2)` of the :math:`n_+` relevant pairs and :math:`1 / (n_- + 2)` of
    the others, which keep the slope finite where scores tell both apart without error.

    Source: Platt, "Probabilistic Outputs for Support Vector Machines", 1999, section 2.2; Newton's method with halved
    steps as in Lin, Lin and Weng, "A Note on Platt's Probabilistic Outputs for Support Vector Machines", 2007. *Where
    we differ:* a slope below 0 becomes 0, and with it each probability the mean target.

    Args:
        scores: ``[n]``, finite.
        labels: ``[n]``, 1 where relevant, else 0.

    Raises:
        ValueError: If there is no pair, a score is not finite, or a label is neither 0 nor 1.

    Example:
        >>> fit = fit_logistic(torch.tensor([3.0, 1.0, 2.0, 0.0] * 50), torch.tensor([1, 0, 1, 0] * 50))
        >>> fit.probabilities(torch.tensor([0.0, 1.5, 3.0])).round(decimals=2)
        tensor([0.0000, 0.5000, 1.0000])
    """
    s, y = _checked_pairs(scores, labels)
    positive = float(y.sum())
    target = y * (positive + 1) / (positive + 2) + (1 - y) / (len(y) - positive + 2)
    mean, spread = float(s.mean()), float(s.std(correction=0)) or 1.0
    x = torch.stack([(s - mean) / spread, torch.ones_like(s)])  # scores of any scale, one step size
    share = float(target.mean())
    weights = torch.tensor([0.0, math.log(share / (1 - share))], dtype=torch.float64)
    weights = _newton(x, target, weights)
    slope = float(weights[0]) / spread
    if slope <= 0:  # convex: the best of the slopes that are not negative is 0
        return LogisticCalibration(0.0, math.log(share / (1 - share)))
    return LogisticCalibration(slope, float(weights[1]) - slope * mean)


def fit_isotonic(scores: Tensor, labels: Tensor) -> IsotonicCalibration:
    """Find the non-decreasing function of the score with the least squared error.

    Pools adjacent violators; each pool becomes one knot, or two where it spans several scores.

    Source: Zadrozny and Elkan, "Transforming Classifier Scores into Accurate Multiclass Probability Estimates", 2002.

    Args:
        scores: ``[n]``, finite.
        labels: ``[n]``, 1 where relevant, else 0.

    Raises:
        ValueError: As :func:`fit_logistic`.

    Example:
        >>> fit_isotonic(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0, 1, 0, 1]))
        IsotonicCalibration(knots=(1.0, 2.0, 3.0, 4.0), shares=(0.0, 0.5, 0.5, 1.0))
    """
    from scipy.optimize import isotonic_regression

    s, y = _checked_pairs(scores, labels)
    unique, group, count = torch.unique(s, return_inverse=True, return_counts=True)
    share = torch.zeros(len(unique), dtype=torch.float64).index_add(0, group, y) / count
    pools = isotonic_regression(share.numpy(), weights=count.double().numpy())
    knots: list[float] = []
    shares: list[float] = []
    for start, stop in pairwise(pools.blocks.tolist()):
        ends = unique[[start, stop - 1]].unique().tolist()
        p = min(1.0, max(0.0, float(pools.x[start])))
        knots += ends
        shares += [p] * len(ends)
    return IsotonicCalibration(tuple(knots), tuple(shares))


CALIBRATIONS: dict[str, Callable[[Tensor, Tensor], Calibration]] = {"logistic": fit_logistic, "isotonic": fit_isotonic}


def calibration_method(name: str) -> Callable[[Tensor, Tensor], Calibration]:
    """Return the function that fits a calibration, by its name; a ValueError if there is none of that name."""
    if name not in CALIBRATIONS:
        raise ValueError(f"`calibration` must be one of {list(CALIBRATIONS)} or null, got {name!r}")
    return CALIBRATIONS[name]


def _newton(x: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Minimise the mean cross-entropy of ``weights @ x`` (``x``: ``[2, n]``), a convex function."""

    def loss(at: Tensor) -> float:
        return float(F.binary_cross_entropy_with_logits(at @ x, target))

    best = loss(weights)
    for _ in range(NEWTON_STEPS):
        p = torch.sigmoid(weights @ x)
        gradient = x @ (p - target) / len(target)
        if float(gradient.abs().max()) < FLAT:
            break
        hessian = (x * (p * (1 - p))) @ x.T / len(target) + RIDGE * torch.eye(2, dtype=torch.float64)
        step = torch.linalg.solve(hessian, gradient)
        for _ in range(HALVINGS):
            if (now := loss(weights - step)) < best:
                weights, best = weights - step, now
                break
            step = step / 2
        else:
            break  # no step is lower: as near as rounding allows
    return weights


def _checked_pairs(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    if scores.shape != labels.shape or scores.dim() != 1 or not len(scores):
        raise ValueError(
            f"`scores` and `labels` must both be [n], n at least 1, got {list(scores.shape)} and {list(labels.shape)}"
        )
    if not bool(scores.isfinite().all()):
        raise ValueError(f"`scores` must be finite, got {scores[~scores.isfinite()].tolist()[:3]}")
    if not bool(((labels == 0) | (labels == 1)).all()):
        raise ValueError(f"`labels` must be 0 or 1, got {sorted(set(labels.tolist()))[:5]}")
    return scores.detach().cpu().double(), labels.cpu().double()
