"""Measures of predicted probabilities: calibration error, Brier score and area under the ROC curve."""

import torch
from torch import Tensor

from graphrerank.utils.checks import UserError

#: Number of bins of equal width in [0, 1].
NUM_BINS = 10


def reliability_bins(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Group predictions into ten bins of equal width by their probability.

    A probability on the boundary of two bins belongs to the upper bin. A probability of 1 belongs to the last bin.

    Args:
        probabilities: Predicted probabilities of the positive class, ``[n]``.
        labels: True labels, 0 or 1, ``[n]``.

    Returns:
        Number of predictions in each bin, ``[10]`` int64; mean probability in each bin, ``[10]`` float64; and fraction
        of positive labels in each bin, ``[10]`` float64. The last two are NaN for empty bins.

    Raises:
        UserError: If there are no predictions, or if a probability is outside [0, 1].

    Example:
        >>> count, probability, share = reliability_bins(torch.tensor([0.12, 0.95, 0.97]), torch.tensor([0, 1, 0]))
        >>> count.tolist(), share[9].item()
        ([0, 1, 0, 0, 0, 0, 0, 0, 0, 2], 0.5)
    """
    count, *sums = bin_sums(probabilities, labels)
    probability, share = torch.stack(sums) / count  # 0 / 0 is NaN
    return count.long(), probability, share


def bin_sums(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Sum predictions in the bins of :func:`reliability_bins`. Sums of several batches can be added.

    Args:
        probabilities: Predicted probabilities of the positive class, ``[n]``.
        labels: True labels, 0 or 1, ``[n]``.

    Returns:
        Number of predictions, sum of the probabilities and sum of the labels in each bin, ``[3, 10]`` float64.

    Raises:
        UserError: If there are no predictions, or if a probability is outside [0, 1].
    """
    if len(probabilities) == 0 or not bool(((probabilities >= 0) & (probabilities <= 1)).all()):
        raise UserError(f"`probabilities` must be one or more numbers in [0, 1], got {probabilities.tolist()[:10]}")
    p, y = probabilities.detach().cpu().double(), labels.cpu().double()
    bins = (p * NUM_BINS).long().clamp(max=NUM_BINS - 1)
    return torch.zeros(3, NUM_BINS, dtype=torch.float64).index_add(1, bins, torch.stack([torch.ones_like(p), p, y]))


def expected_calibration_error(probabilities: Tensor, labels: Tensor) -> float:
    r"""Return the expected calibration error (ECE) over ten bins of equal width.

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} \left| \bar p_b - \bar y_b \right|

    with :math:`\bar p_b` the mean probability and :math:`\bar y_b` the fraction of positive labels in bin :math:`b`.
    With few predictions, the ECE is above 0 even for the true probabilities.

    Source: Naeini, Cooper and Hauskrecht, "Obtaining Well Calibrated Probabilities Using Bayesian Binning", 2015, for
    the probability of the positive class. Guo et al., 2017, use the probability of the predicted class instead.

    Args:
        probabilities: Predicted probabilities of the positive class, ``[n]``.
        labels: True labels, 0 or 1, ``[n]``.

    Returns:
        Calibration error in [0, 1].

    Raises:
        UserError: If there are no predictions, or if a probability is outside [0, 1].

    Example:
        >>> round(expected_calibration_error(torch.tensor([0.9, 0.9, 0.9, 0.9]), torch.tensor([1, 1, 1, 0])), 2)
        0.15
    """
    count, probability, share = reliability_bins(probabilities, labels)
    return float(((probability - share).abs() * count / count.sum()).nansum())


def brier_score(probabilities: Tensor, labels: Tensor) -> float:
    r"""Return the mean squared difference between probability and label.

    .. math:: \frac{1}{n} \sum_i (p_i - y_i)^2

    A constant prediction of the base rate ``r`` scores ``r * (1 - r)``.

    Source: Brier, "Verification of Forecasts Expressed in Terms of Probability", 1950, for two classes.

    Args:
        probabilities: Predicted probabilities of the positive class, ``[n]``.
        labels: True labels, 0 or 1, ``[n]``.

    Returns:
        Brier score in [0, 1]. Lower is better.

    Example:
        >>> brier_score(torch.tensor([1.0, 0.5]), torch.tensor([1, 0]))
        0.125
    """
    return float((probabilities.double() - labels.double()).square().mean())


def area_under_roc(scores: Tensor, labels: Tensor) -> float:
    r"""Return the area under the ROC curve: the probability that a positive scores higher than a negative.

    .. math:: \mathrm{AUC} = \frac{1}{n_1 n_0} \sum_{i: y_i = 1} \sum_{j: y_j = 0} [s_i > s_j] + \tfrac12 [s_i = s_j]

    Ties count as one half.

    Source: Hanley and McNeil, "The meaning and use of the area under a ROC curve", 1982.

    Args:
        scores: Scores ``[n]`` of any scale.
        labels: True labels, 0 or 1, ``[n]``.

    Returns:
        Area in [0, 1].

    Raises:
        UserError: If one of the classes has no label.

    Example:
        >>> area_under_roc(torch.tensor([0.9, 0.4, 0.4, 0.1]), torch.tensor([1, 1, 0, 0]))
        0.875
    """
    positive, negative = scores[labels == 1].double(), scores[labels == 0].double()
    if len(positive) == 0 or len(negative) == 0:
        raise UserError(f"`labels` must contain both classes, got {len(positive)} ones and {len(negative)} zeros")
    difference = positive.unsqueeze(1) - negative
    return float(((difference > 0).double() + 0.5 * (difference == 0)).mean())
