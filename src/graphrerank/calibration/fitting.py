"""Fit calibrations of scores and of lists on held-out judgements."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphrerank.calibration.list_confidence import ListConfidence, list_statistics
from graphrerank.calibration.logistic import Calibration
from graphrerank.utils.checks import UserError

FLAT = 1e-10  # tolerance of the gradient at which the optimisation stops
RANKS = (1, 2, 3, 5, 10, 20)  # ranks of the training examples of the list confidence
MIN_COMPLETE = 0.1  # fraction of a data set's lists that must be complete at the last rank for the data set to be used
PENALTY = 1.0  # inverse regularisation strength, for statistics with unit variance


def fit_logistic(scores: Tensor, labels: Tensor) -> Calibration:
    r"""Fit a logistic calibration with a non-negative slope by maximum likelihood.

    .. math:: \min_{a \ge 0, b} \sum_i \mathrm{BCE}(\sigma(a s_i + b), t_i)

    The targets are :math:`t = (n_+ + 1) / (n_+ + 2)` for the :math:`n_+` relevant pairs and :math:`1 / (n_- + 2)` for
    the :math:`n_-` other pairs. They keep the slope finite if the scores separate the classes perfectly.

    Source: Platt, "Probabilistic Outputs for Support Vector Machines", 1999, section 2.2. *Differences from the paper:*
    a negative slope is replaced by 0, so that every probability is the mean target.

    Args:
        scores: ``[n]`` finite scores.
        labels: ``[n]`` labels, 1 for relevant pairs and 0 for all others.

    Returns:
        Fitted calibration.

    Raises:
        UserError: If there are no scores, if a score is not finite, or if a label is neither 0 nor 1.

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
    x = torch.stack([(s - mean) / spread, torch.ones_like(s)])  # standardised, so that any scale of scores converges

    def loss(weights: Any) -> tuple[float, Any]:
        logits = torch.as_tensor(weights) @ x
        gradient = x @ (torch.sigmoid(logits) - target) / len(target)
        return float(F.binary_cross_entropy_with_logits(logits, target)), gradient.numpy()

    def hessian(weights: Any) -> Any:
        p = torch.sigmoid(torch.as_tensor(weights) @ x)
        return ((x * (p * (1 - p))) @ x.T / len(target)).numpy()

    base = math.log(float(target.mean()) / (1 - float(target.mean())))
    solution = minimize(loss, [0.0, base], method="trust-exact", jac=True, hess=hessian, options={"gtol": FLAT})
    slope = float(solution.x[0]) / spread
    if slope <= 0:  # the loss is convex, so 0 is the best non-negative slope
        return Calibration(slope=0.0, intercept=base)
    return Calibration(slope=slope, intercept=float(solution.x[1]) - slope * mean)


def fit_list_confidence(lists: Mapping[str, tuple[Tensor, Tensor]], ranks: Sequence[int] = RANKS) -> ListConfidence:
    """Fit the probability that the top of a list contains every relevant passage.

    All data sets have the same weight. Data sets that :func:`teach_confidence` excludes are not used.

    Args:
        lists: Pair of tensors by name of the data set: probabilities of relevance ``[Q, K]``, best first, with
            padding 0; and completeness ``[Q, K]`` bool, where entry ``k - 1`` is True if the top ``k`` passages
            include every relevant passage of the query.
        ranks: Ranks ``k`` at which lists are used as training examples.

    Returns:
        Fitted model.

    Raises:
        UserError: If all training examples are complete, or if none is.
    """
    from sklearn.linear_model import LogisticRegression

    rows, labels, weights = [], [], []
    used = 3 if len(lists) > 1 else 2  # the best probability distinguishes corpora; within one corpus it is noise
    for name in teach_confidence({name: complete for name, (_, complete) in lists.items()}, ranks):
        probabilities, complete = lists[name]
        at = [rank - 1 for rank in ranks if rank <= probabilities.shape[1]]
        rows.append(list_statistics(probabilities)[:, at, :used].flatten(0, 1))
        labels.append(complete[:, at].flatten())
        weights.append(torch.full((len(labels[-1]),), 1 / max(1, len(labels[-1]))))
    count = sum(int(column.sum()) for column in labels)
    total = sum(map(len, labels))
    if not 0 < count < total:
        raise UserError(
            f"`lists` must be complete at some ranks and incomplete at others, got {count} complete examples of "
            f"{total} in {len(labels)} data sets. Of several data sets, only those with at least {MIN_COMPLETE:.0%} "
            "complete lists are used"
        )
    x, y, weight = torch.cat(rows), torch.cat(labels), torch.cat(weights).double()
    mean, spread = x.mean(0), x.std(0, correction=0).clamp(min=1e-9)
    model = LogisticRegression(C=PENALTY, max_iter=1000)
    model.fit(((x - mean) / spread).numpy(), y.numpy(), sample_weight=(weight / weight.mean()).numpy())
    slope = torch.from_numpy(model.coef_[0]) / spread
    named = dict(zip(("beyond", "within", "best"), slope.tolist(), strict=False))
    return ListConfidence(**named, intercept=float(model.intercept_[0] - slope @ mean))


def teach_confidence(complete: Mapping[str, Tensor], ranks: Sequence[int] = RANKS) -> list[str]:
    """Return the data sets on which the list confidence is fitted.

    A single data set is always used. Of several data sets, those with less than 10% complete lists at the last rank are
    excluded. Their queries have dozens of relevant passages, which the probabilities of a list do not reveal, so they
    would lower the confidence on all other data sets.

    Args:
        complete: Completeness ``[Q, K]`` bool by name of the data set.
        ranks: Ranks at which lists are used as training examples.

    Returns:
        Names of the data sets.
    """
    if len(complete) == 1:
        return list(complete)
    last = {name: max(rank for rank in ranks if rank <= rows.shape[1]) for name, rows in complete.items()}
    return [name for name, rows in complete.items() if float(rows[:, last[name] - 1].double().mean()) >= MIN_COMPLETE]


def _checked_pairs(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    if scores.dim() != 1 or not len(scores) or not bool(scores.isfinite().all()):
        bad = scores[~scores.isfinite()].tolist()[:3] or f"shape {list(scores.shape)}"
        raise UserError(f"`scores` must be [n] finite numbers with n >= 1, got {bad}")
    if labels.shape != scores.shape or not bool(((labels == 0) | (labels == 1)).all()):
        invalid = f"{sorted(set(labels.flatten().tolist()))[:5]} of shape {list(labels.shape)}"
        raise UserError(f"`labels` must be 0 or 1 for each of {len(scores)} scores, got {invalid}")
    return scores.detach().cpu().double(), labels.cpu().double()
