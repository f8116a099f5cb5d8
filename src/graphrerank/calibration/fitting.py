"""Fit calibrations of scores and of lists to judged pairs and lists outside of the training."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphrerank.calibration.list_confidence import ListConfidence, list_statistics
from graphrerank.calibration.logistic import Calibration
from graphrerank.utils.checks import UserError

FLAT = 1e-10  # a gradient per pair that counts as zero
RANKS = (1, 2, 3, 5, 10, 20)  # at which lists are judged; one function serves all
MIN_COMPLETE = 0.1  # share of a data set's lists that must be complete at the last rank for them to teach anything
PENALTY = 1.0  # inverse weight of the squared weights, of statistics with unit variance


def fit_logistic(scores: Tensor, labels: Tensor) -> Calibration:
    r"""Find the slope and intercept of the highest likelihood, of slopes that are not negative.

    .. math:: \min_{a \ge 0, b} \sum_i \mathrm{BCE}(\sigma(a s_i + b), t_i)

    with the targets :math:`t = (n_+ + 1) / (n_+ + 2)` of the :math:`n_+` relevant pairs and :math:`1 / (n_- + 2)` of
    the others, which keep the slope finite where scores tell both apart without error.

    Source: Platt, "Probabilistic Outputs for Support Vector Machines", 1999, section 2.2. *Where we differ:* a slope
    below 0 becomes 0, and with it each probability the mean target.

    Scores ``[n]`` are finite, otherwise a ValueError; labels ``[n]`` are 1 where relevant, else 0.

    Example:
        >>> fit = fit_logistic(torch.tensor([3.0, 1.0, 2.0, 0.0] * 50), torch.tensor([1, 0, 1, 0] * 50))
        >>> fit.probabilities(torch.tensor([0.0, 1.5, 3.0])).round(decimals=2)
        tensor([0.0000, 0.5000, 1.0000])
    """
    from scipy.optimize import minimize

    s, y = _checked_pairs(scores, labels)
    positive = float(y.sum())
    target = y * (positive + 1) / (positive + 2) + (1 - y) / (len(y) - positive + 2)
    mean, spread = float(s.mean()), float(s.std(correction=0)) or 1.0
    x = torch.stack([(s - mean) / spread, torch.ones_like(s)])  # scores of any scale, one step size

    def loss(weights: Any) -> tuple[float, Any]:
        logits = torch.as_tensor(weights) @ x
        gradient = x @ (torch.sigmoid(logits) - target) / len(target)
        return float(F.binary_cross_entropy_with_logits(logits, target)), gradient.numpy()

    def hessian(weights: Any) -> Any:
        p = torch.sigmoid(torch.as_tensor(weights) @ x)
        return ((x * (p * (1 - p))) @ x.T / len(target)).numpy()

    base = math.log(float(target.mean()) / (1 - float(target.mean())))
    found = minimize(loss, [0.0, base], method="trust-exact", jac=True, hess=hessian, options={"gtol": FLAT})
    slope = float(found.x[0]) / spread
    if slope <= 0:  # convex: the best of the slopes that are not negative is 0
        return Calibration(slope=0.0, intercept=base)
    return Calibration(slope=slope, intercept=float(found.x[1]) - slope * mean)


def fit_list_confidence(lists: Mapping[str, tuple[Tensor, Tensor]], ranks: Sequence[int] = RANKS) -> ListConfidence:
    """Fit the probability that a list's top is complete, on lists of several data sets, each of which counts the same.

    ``lists`` are, by data set, ``[Q, K]`` probabilities of relevance, best first, 0 where padded; and ``[Q, K]`` bool,
    whether all relevant passages of the query are among the first 1, 2, ..., K. Data sets that
    :func:`teach_confidence` leaves out do not count. A ValueError if lists are complete at no or at all ``ranks``.
    """
    from sklearn.linear_model import LogisticRegression

    rows, labels, weights = [], [], []
    used = 3 if len(lists) > 1 else 2  # the best probability tells corpora apart; within one it adds noise
    for name in teach_confidence({name: complete for name, (_, complete) in lists.items()}, ranks):
        probabilities, complete = lists[name]
        at = [rank - 1 for rank in ranks if rank <= probabilities.shape[1]]
        rows.append(list_statistics(probabilities)[:, at, :used].flatten(0, 1))
        labels.append(complete[:, at].flatten())
        weights.append(torch.full((len(labels[-1]),), 1 / max(1, len(labels[-1]))))
    count = sum(int(of.sum()) for of in labels)
    total = sum(map(len, labels))
    if not 0 < count < total:
        raise UserError(
            f"`lists` must be complete at some ranks and incomplete at others, got {count} of {total} in "
            f"{len(labels)} data sets, of several those with a complete list in ten"
        )
    x, y, weight = torch.cat(rows), torch.cat(labels), torch.cat(weights).double()
    mean, spread = x.mean(0), x.std(0, correction=0).clamp(min=1e-9)
    model = LogisticRegression(C=PENALTY, max_iter=1000)
    model.fit(((x - mean) / spread).numpy(), y.numpy(), sample_weight=(weight / weight.mean()).numpy())
    slope = torch.from_numpy(model.coef_[0]) / spread
    named = dict(zip(("beyond", "within", "best"), slope.tolist(), strict=False))
    return ListConfidence(**named, intercept=float(model.intercept_[0] - slope @ mean))


def teach_confidence(complete: Mapping[str, Tensor], ranks: Sequence[int] = RANKS) -> list[str]:
    """Name the data sets that a fit is taught by: the only one, or of several those with a tenth of complete lists.

    Where queries have dozens of relevant passages, hardly a list ever is complete at the last of the ``ranks``. Nothing
    in a list tells these from others, so that they would lower the confidence everywhere.
    """
    if len(complete) == 1:
        return list(complete)
    last = {name: max(rank for rank in ranks if rank <= of.shape[1]) for name, of in complete.items()}
    return [name for name, of in complete.items() if float(of[:, last[name] - 1].double().mean()) >= MIN_COMPLETE]


def _checked_pairs(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    if scores.dim() != 1 or not len(scores) or not bool(scores.isfinite().all()):
        bad = scores[~scores.isfinite()].tolist()[:3] or f"shape {list(scores.shape)}"
        raise UserError(f"`scores` must be [n] finite numbers, n at least 1, got {bad}")
    if labels.shape != scores.shape or not bool(((labels == 0) | (labels == 1)).all()):
        found = f"{sorted(set(labels.flatten().tolist()))[:5]} of shape {list(labels.shape)}"
        raise UserError(f"`labels` must be 0 or 1 for each of {len(scores)} scores, got {found}")
    return scores.detach().cpu().double(), labels.cpu().double()
