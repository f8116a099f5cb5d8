"""The probability that the top of a query's list holds everything that is relevant to the query."""

from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor

FLOOR = 1e-3  # of an expected number of relevant passages, before its logarithm


def list_statistics(probabilities: Tensor) -> Tensor:
    """Compute, at each rank, the logarithms of how many relevant passages are expected beyond it and up to it.

    Args:
        probabilities: ``[..., K]`` in [0, 1], of relevance, best first; 0 where padded.

    Returns:
        ``[..., K, 2]`` float64.
    """
    p = probabilities.double()
    within = p.cumsum(-1)
    beyond = (p.sum(-1, keepdim=True) - within).clamp(min=0)
    return torch.stack([beyond, within], dim=-1).add(FLOOR).log()


@dataclass(frozen=True)
class ListConfidence:
    r"""A logistic regression on a list's probabilities of relevance.

    .. math:: P(\text{PR@}k = 1) = \max_{j \le k} \sigma(w_1 \log \sum_{i > j} p_i + w_2 \log \sum_{i \le j} p_i + b)

    The maximum changes nothing where :math:`w_1 \le 0 \le w_2`.

    Source: query performance prediction from the scores of a list, as in Shtok, Kurland, Carmel, Raiber and Markovits,
    "Predicting Query Performance by Query-Drift Estimation", 2012. *Where we differ:* the scores are calibrated
    probabilities, and the result is one too, not a correlate of a measure.

    Attributes:
        beyond: :math:`w_1`.
        within: :math:`w_2`.
        intercept: :math:`b`.

    Example:
        >>> confidence = ListConfidence(beyond=-1.0, within=0.0, intercept=0.0)
        >>> confidence.perfect_recall(torch.tensor([0.9, 0.5, 0.5])).round(decimals=2)
        tensor([0.5000, 0.6700, 1.0000])
    """

    beyond: float
    within: float
    intercept: float

    def __post_init__(self) -> None:
        if not all(map(isfinite, (self.beyond, self.within, self.intercept))):
            raise ValueError(f"`beyond`, `within` and `intercept` must be finite, got {self}")

    def perfect_recall(self, probabilities: Tensor) -> Tensor:
        """Map probabilities of relevance to the probability that all relevant passages are among the first.

        Args:
            probabilities: ``[..., K]`` in [0, 1], best first; 0 where padded.

        Returns:
            ``[..., K]`` float32: at position ``k - 1`` the probability that PR@k is 1; does not fall.
        """
        if probabilities.numel() == 0:
            return probabilities.float()
        weights = torch.tensor([self.beyond, self.within], dtype=torch.float64, device=probabilities.device)
        logits = list_statistics(probabilities) @ weights + self.intercept
        return torch.sigmoid(logits).cummax(-1).values.float()

    def to_json(self) -> dict[str, Any]:
        """Return the entry of a manifest."""
        return asdict(self)

    @classmethod
    def from_json(cls, entry: Any) -> "ListConfidence":
        """Read the entry of a manifest.

        Raises:
            ValueError: If it cannot be read.
        """
        try:
            return cls(float(entry["beyond"]), float(entry["within"]), float(entry["intercept"]))
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"the manifest's `list_confidence` cannot be read: {error!r}") from error
