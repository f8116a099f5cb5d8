"""How far probabilities are from frequencies."""

import torch
from torch import Tensor


def expected_calibration_error(probabilities: Tensor, labels: Tensor, *, num_bins: int = 10) -> float:
    r"""Average, over bins of equal width, how far the mean probability is from the share of positives.

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} \left| \bar p_b - \bar y_b \right|

    Source: Naeini, Cooper and Hauskrecht, "Obtaining Well Calibrated Probabilities Using Bayesian Binning", 2015, for
    the probability of the positive class (not of the predicted one, as Guo et al., 2017). With few rows it is above 0
    even for the true probabilities.

    Args:
        probabilities: ``[n]`` in [0, 1], of class 1.
        labels: ``[n]``, 0 or 1.
        num_bins: Bins of [0, 1].

    Returns:
        In [0, 1].

    Raises:
        ValueError: If there is no row, a probability is outside [0, 1], or ``num_bins`` is not positive.

    Example:
        >>> round(expected_calibration_error(torch.tensor([0.9, 0.9, 0.9, 0.9]), torch.tensor([1, 1, 1, 0])), 2)
        0.15
    """
    if num_bins < 1:
        raise ValueError(f"`num_bins` must be a positive integer, got {num_bins}")
    if len(probabilities) == 0 or not bool(((probabilities >= 0) & (probabilities <= 1)).all()):
        raise ValueError(f"`probabilities` must be one or more numbers in [0, 1], got {probabilities.tolist()[:10]}")
    p, y = probabilities.detach().double(), labels.double()
    bins = (p * num_bins).long().clamp(max=num_bins - 1)
    gaps = torch.zeros(num_bins, dtype=torch.float64).index_add(0, bins, p - y)
    return float(gaps.abs().sum() / len(p))
