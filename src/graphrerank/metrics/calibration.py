"""How far probabilities are from frequencies."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.checks import check_counts


@dataclass(frozen=True)
class ReliabilityBins:
    """Rows by their probability, in bins of [0, 1] of equal width: what a reliability plot shows."""

    count: Tensor  # `[num_bins]` int64, rows in the bin
    probability: Tensor  # `[num_bins]` float64, their mean probability; NaN in an empty bin
    share: Tensor  # `[num_bins]` float64, the share of positives among them; NaN in an empty bin


def reliability_bins(probabilities: Tensor, labels: Tensor, *, num_bins: int = 10) -> ReliabilityBins:
    """Sort rows into bins of equal width by their probability.

    Args:
        probabilities: ``[n]`` in [0, 1], of class 1.
        labels: ``[n]``, 0 or 1.
        num_bins: Bins of [0, 1]; a probability on a border is in the upper one, 1 in the last.

    Raises:
        ValueError: If there is no row, a probability is outside [0, 1], or ``num_bins`` is not positive.

    Example:
        >>> bins = reliability_bins(torch.tensor([0.1, 0.9, 0.7]), torch.tensor([0, 1, 0]), num_bins=2)
        >>> bins.count.tolist(), bins.share.tolist()
        ([1, 2], [0.0, 0.5])
    """
    check_counts(num_bins=num_bins)
    if len(probabilities) == 0 or not bool(((probabilities >= 0) & (probabilities <= 1)).all()):
        raise ValueError(f"`probabilities` must be one or more numbers in [0, 1], got {probabilities.tolist()[:10]}")
    p, y = probabilities.detach().double(), labels.double()
    bins = (p * num_bins).long().clamp(max=num_bins - 1)
    count = torch.bincount(bins, minlength=num_bins)
    sums = torch.zeros(2, num_bins, dtype=torch.float64).index_add(1, bins, torch.stack([p, y]))
    probability, share = sums / count  # 0 / 0 is NaN
    return ReliabilityBins(count, probability, share)


def expected_calibration_error(probabilities: Tensor, labels: Tensor, *, num_bins: int = 10) -> float:
    r"""Average, over bins of equal width, how far the mean probability is from the share of positives.

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} \left| \bar p_b - \bar y_b \right|

    Source: Naeini, Cooper and Hauskrecht, "Obtaining Well Calibrated Probabilities Using Bayesian Binning", 2015, for
    the probability of the positive class (not of the predicted one, as Guo et al., 2017). With few rows it is above 0
    even for the true probabilities.

    Example:
        >>> round(expected_calibration_error(torch.tensor([0.9, 0.9, 0.9, 0.9]), torch.tensor([1, 1, 1, 0])), 2)
        0.15
    """
    bins = reliability_bins(probabilities, labels, num_bins=num_bins)
    gaps = (bins.probability - bins.share).abs() * bins.count / bins.count.sum()
    return float(gaps.nansum())


def brier_score(probabilities: Tensor, labels: Tensor) -> float:
    r"""Average the squared difference of probability and label.

    .. math:: \frac{1}{n} \sum_i (p_i - y_i)^2

    Source: Brier, "Verification of Forecasts Expressed in Terms of Probability", 1950, for two classes.

    Returns:
        In [0, 1]; the base rate alone has ``share * (1 - share)``.

    Example:
        >>> brier_score(torch.tensor([1.0, 0.5]), torch.tensor([1, 0]))
        0.125
    """
    return float((probabilities.double() - labels.double()).square().mean())
