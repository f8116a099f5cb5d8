"""Probability that the top of a query's list contains every relevant passage, and adaptive lengths of lists."""

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from graphrerank.calibration.logistic import Finite
from graphrerank.utils.checks import UserError, check_share

FLOOR = 1e-3  # added to expected numbers of relevant passages before taking the logarithm
CALIBRATE = "Add it with `graphrerank calibrate checkpoint=CHECKPOINT`"


def list_statistics(probabilities: Tensor) -> Tensor:
    """Compute the statistics of a list at each rank, the inputs of :class:`ListConfidence`.

    Args:
        probabilities: ``[..., K]`` probabilities of relevance, best first, with padding 0.

    Returns:
        ``[..., K, 3]`` float64: at each rank, the logarithms of the expected number of relevant passages after the
        rank, of the expected number up to the rank, and of the best probability.
    """
    p = probabilities.double()
    within = p.cumsum(-1)
    beyond = (p.sum(-1, keepdim=True) - within).clamp(min=0)
    return torch.stack([beyond, within, p[..., :1].expand_as(p)], dim=-1).add(FLOOR).log()


class ListConfidence(BaseModel):
    r"""Logistic regression from a list's probabilities of relevance to the probability of perfect recall.

    .. math:: P(\text{PR@}k = 1) = \max_{j \le k}
        \sigma(w_1 \log \sum_{i > j} p_i + w_2 \log \sum_{i \le j} p_i + w_3 \log p_1 + b)

    The maximum makes the probability non-decreasing in :math:`k`. It has no effect if :math:`w_1 \le 0 \le w_2`.

    Source: query performance prediction from the scores of a list, as in Shtok, Kurland, Carmel, Raiber and Markovits,
    "Predicting Query Performance by Query-Drift Estimation", 2012. *Differences from the paper:* scores and result are
    probabilities.

    Attributes:
        beyond: Weight :math:`w_1` of the expected number of relevant passages after the rank.
        within: Weight :math:`w_2` of the expected number of relevant passages up to the rank.
        intercept: Intercept :math:`b`.
        best: Weight :math:`w_3` of the best probability. 0 for checkpoints that were fitted without it.

    Example:
        >>> confidence = ListConfidence(beyond=-1.0, within=0.0, intercept=0.0)
        >>> confidence.perfect_recall(torch.tensor([0.9, 0.5, 0.5])).round(decimals=2)
        tensor([0.5000, 0.6700, 1.0000])
    """

    model_config = ConfigDict(frozen=True)
    beyond: Finite
    within: Finite
    intercept: Finite
    best: Finite = 0.0

    def perfect_recall(self, probabilities: Tensor) -> Tensor:
        """Return the probability of perfect recall at each rank.

        Args:
            probabilities: ``[..., K]`` probabilities of relevance, best first, with padding 0.

        Returns:
            Non-decreasing tensor ``[..., K]`` (float32). Entry ``k - 1`` is the probability that PR@k is 1.
        """
        if probabilities.numel() == 0:
            return probabilities.float()
        weights = torch.tensor([self.beyond, self.within, self.best], dtype=torch.float64, device=probabilities.device)
        logits = list_statistics(probabilities) @ weights + self.intercept
        return torch.sigmoid(logits).cummax(-1).values.float()


def adaptive_k(
    probabilities: Tensor | None,
    confidence: ListConfidence | None,
    *,
    min_probability: float | None = None,
    min_perfect_recall: float | None = None,
) -> int | None:
    """Return the number of passages of a ranking to return.

    If both thresholds are set, the smaller of the two numbers is returned.

    Args:
        probabilities: ``[K]`` probabilities of relevance, best first. None for a model that is not calibrated.
        confidence: Model of the probability of perfect recall. None if the checkpoint has none.
        min_probability: Minimum probability of relevance of a returned passage, in [0, 1]. If None, it is not limited.
        min_perfect_recall: Probability, in [0, 1], that the returned passages include every relevant passage. The
            shortest such prefix of the ranking is used, or all ``K`` passages if no prefix reaches the probability. If
            None, it is not required.

    Returns:
        Number of passages. None if both thresholds are None.

    Raises:
        UserError: If a threshold is outside [0, 1], or if the model has no calibration or no list confidence for it.

    Example:
        >>> adaptive_k(torch.tensor([0.9, 0.5, 0.1]), None, min_probability=0.5)
        2
    """
    check_share(min_probability=min_probability, min_perfect_recall=min_perfect_recall)
    length = None
    if min_probability is not None:
        if probabilities is None:
            raise UserError(f"`min_probability` requires a calibrated model, got one without calibration. {CALIBRATE}")
        length = int((probabilities >= min_probability).sum())
    if min_perfect_recall is not None:
        if probabilities is None or confidence is None:
            raise UserError(
                f"`min_perfect_recall` requires a model with `list_confidence`, got one without it. {CALIBRATE}"
            )
        too_short = int((confidence.perfect_recall(probabilities) < min_perfect_recall).sum())  # non-decreasing
        sufficient = min(too_short + 1, len(probabilities))
        length = sufficient if length is None else min(length, sufficient)
    return length
