"""The area under the ROC curve."""

from torch import Tensor


def area_under_roc(scores: Tensor, labels: Tensor) -> float:
    r"""Give the probability that a positive row scores above a negative one; a tie counts half.

    .. math:: \mathrm{AUC} = \frac{1}{n_1 n_0} \sum_{i: y_i = 1} \sum_{j: y_j = 0} [s_i > s_j] + \tfrac12 [s_i = s_j]

    Source: Hanley and McNeil, "The meaning and use of the area under a ROC curve", 1982.

    Args:
        scores: ``[n]``, in any unit.
        labels: ``[n]``, 0 or 1.

    Raises:
        ValueError: If there are not rows of both classes.

    Example:
        >>> import torch
        >>> area_under_roc(torch.tensor([0.9, 0.4, 0.4, 0.1]), torch.tensor([1, 1, 0, 0]))
        0.875
    """
    positive, negative = scores[labels == 1].double(), scores[labels == 0].double()
    if len(positive) == 0 or len(negative) == 0:
        raise ValueError(f"`labels` must hold both classes, got {len(positive)} ones and {len(negative)} zeros")
    difference = positive.unsqueeze(1) - negative
    return float(((difference > 0).double() + 0.5 * (difference == 0)).mean())
