"""Measures of probabilities: how far they are from frequencies, and how well they order."""

import torch
from torch import Tensor

from graphrerank.utils.checks import UserError

NUM_BINS = 10


def reliability_bins(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sort rows with probabilities ``[n]`` of class 1 and labels ``[n]``, 0 or 1, into ten bins of equal width.

    A probability on a border is in the upper bin, 1 in the last. Returns, ``[10]`` each, the int64 number of rows, and
    in float64 their mean probability and the share of positives; NaN in an empty bin. A ValueError if there is no row,
    or a probability is outside [0, 1].

    Example:
        >>> count, probability, share = reliability_bins(torch.tensor([0.12, 0.95, 0.97]), torch.tensor([0, 1, 0]))
        >>> count.tolist(), share[9].item()
        ([0, 1, 0, 0, 0, 0, 0, 0, 0, 2], 0.5)
    """
    if len(probabilities) == 0 or not bool(((probabilities >= 0) & (probabilities <= 1)).all()):
        raise UserError(f"`probabilities` must be one or more numbers in [0, 1], got {probabilities.tolist()[:10]}")
    p, y = probabilities.detach().double(), labels.double()
    bins = (p * NUM_BINS).long().clamp(max=NUM_BINS - 1)
    count = torch.bincount(bins, minlength=NUM_BINS)
    sums = torch.zeros(2, NUM_BINS, dtype=torch.float64).index_add(1, bins, torch.stack([p, y]))
    probability, share = sums / count  # 0 / 0 is NaN
    return count, probability, share


def expected_calibration_error(probabilities: Tensor, labels: Tensor) -> float:
    r"""Average, over ten bins of equal width, how far the mean probability is from the share of positives.

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} \left| \bar p_b - \bar y_b \right|

    Source: Naeini, Cooper and Hauskrecht, "Obtaining Well Calibrated Probabilities Using Bayesian Binning", 2015, for
    the probability of the positive class (not of the predicted one, as Guo et al., 2017). With few rows it is above 0
    even for the true probabilities.

    Example:
        >>> round(expected_calibration_error(torch.tensor([0.9, 0.9, 0.9, 0.9]), torch.tensor([1, 1, 1, 0])), 2)
        0.15
    """
    count, probability, share = reliability_bins(probabilities, labels)
    return float(((probability - share).abs() * count / count.sum()).nansum())


def brier_score(probabilities: Tensor, labels: Tensor) -> float:
    r"""Average the squared difference of probability and label.

    .. math:: \frac{1}{n} \sum_i (p_i - y_i)^2

    Source: Brier, "Verification of Forecasts Expressed in Terms of Probability", 1950, for two classes. The base rate
    alone has ``share * (1 - share)``.

    Example:
        >>> brier_score(torch.tensor([1.0, 0.5]), torch.tensor([1, 0]))
        0.125
    """
    return float((probabilities.double() - labels.double()).square().mean())


def area_under_roc(scores: Tensor, labels: Tensor) -> float:
    r"""Give the probability that a positive row scores above a negative one; a tie counts half.

    .. math:: \mathrm{AUC} = \frac{1}{n_1 n_0} \sum_{i: y_i = 1} \sum_{j: y_j = 0} [s_i > s_j] + \tfrac12 [s_i = s_j]

    Source: Hanley and McNeil, "The meaning and use of the area under a ROC curve", 1982. Scores and labels, 0 or 1, are
    ``[n]``; a ValueError if there are not rows of both classes.

    Example:
        >>> area_under_roc(torch.tensor([0.9, 0.4, 0.4, 0.1]), torch.tensor([1, 1, 0, 0]))
        0.875
    """
    positive, negative = scores[labels == 1].double(), scores[labels == 0].double()
    if len(positive) == 0 or len(negative) == 0:
        raise UserError(f"`labels` must hold both classes, got {len(positive)} ones and {len(negative)} zeros")
    difference = positive.unsqueeze(1) - negative
    return float(((difference > 0).double() + 0.5 * (difference == 0)).mean())
