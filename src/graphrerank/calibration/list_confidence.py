"""The probability that the top of a query's list holds everything that is relevant, and where to end a list."""

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from graphrerank.calibration.logistic import Finite
from graphrerank.utils.checks import UserError, check_share

FLOOR = 1e-3  # of an expected number of relevant passages, before its logarithm
CALIBRATE = "`graphrerank calibrate checkpoint=CHECKPOINT` adds it to one that has none"


def list_statistics(probabilities: Tensor) -> Tensor:
    """Compute logarithms at each rank: of how many relevant passages are expected beyond it and up to it, and of `p_1`.

    ``probabilities`` ``[..., K]`` of relevance are best first, 0 where padded. Returns ``[..., K, 3]`` float64.
    """
    p = probabilities.double()
    within = p.cumsum(-1)
    beyond = (p.sum(-1, keepdim=True) - within).clamp(min=0)
    return torch.stack([beyond, within, p[..., :1].expand_as(p)], dim=-1).add(FLOOR).log()


class ListConfidence(BaseModel):
    r"""A logistic regression on a list's probabilities of relevance.

    .. math:: P(\text{PR@}k = 1) = \max_{j \le k}
        \sigma(w_1 \log \sum_{i > j} p_i + w_2 \log \sum_{i \le j} p_i + w_3 \log p_1 + b)

    The maximum changes nothing where :math:`w_1 \le 0 \le w_2`.

    Source: query performance prediction from the scores of a list, as in Shtok, Kurland, Carmel, Raiber and Markovits,
    "Predicting Query Performance by Query-Drift Estimation", 2012. *Where we differ:* scores and result are
    probabilities.

    Example:
        >>> confidence = ListConfidence(beyond=-1.0, within=0.0, intercept=0.0)
        >>> confidence.perfect_recall(torch.tensor([0.9, 0.5, 0.5])).round(decimals=2)
        tensor([0.5000, 0.6700, 1.0000])
    """

    model_config = ConfigDict(frozen=True)
    beyond: Finite  # `w_1`
    within: Finite  # `w_2`
    intercept: Finite  # `b`
    best: Finite = 0.0  # `w_3`; 0 where a checkpoint was fitted without it

    def perfect_recall(self, probabilities: Tensor) -> Tensor:
        """Map probabilities ``[..., K]`` of relevance, best first and 0 where padded, to those that PR@k is 1.

        Returns ``[..., K]`` float32, which does not fall: position ``k - 1`` is for PR@k.
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
    """Return how many passages of a ranking to keep: the smaller number if both ends are given, None if neither is.

    ``probabilities`` ``[K]`` are of relevance, best first; None for a model that is not calibrated. Those of at least
    ``min_probability`` are kept; or as few as hold all that is relevant with the probability ``min_perfect_recall``,
    all ``K`` if no number of them does.

    Example:
        >>> adaptive_k(torch.tensor([0.9, 0.5, 0.1]), None, min_probability=0.5)
        2
    """
    check_share(min_probability=min_probability, min_perfect_recall=min_perfect_recall)
    kept = None
    if min_probability is not None:
        if probabilities is None:
            raise UserError(f"`min_probability` needs a calibrated model, this one is not; {CALIBRATE}")
        kept = int((probabilities >= min_probability).sum())
    if min_perfect_recall is not None:
        if probabilities is None or confidence is None:
            raise UserError(f"`min_perfect_recall` needs a model with `list_confidence`, this has none; {CALIBRATE}")
        short = int((confidence.perfect_recall(probabilities) < min_perfect_recall).sum())  # it does not fall
        enough = min(short + 1, len(probabilities))
        kept = enough if kept is None else min(kept, enough)
    return kept
