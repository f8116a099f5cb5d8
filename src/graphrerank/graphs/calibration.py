"""What turns a reranker's score into the probability that a candidate is relevant; it never changes an order."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class LogisticCalibration:
    r"""A temperature and a bias.

    .. math:: p(s) = \sigma(a s + b)

    Source: Platt, "Probabilistic Outputs for Support Vector Machines", 1999; with :math:`b = 0` and
    :math:`a = 1 / T` it is the temperature of Guo et al., "On Calibration of Modern Neural Networks", 2017.

    Attributes:
        slope: :math:`a`, not negative, so that no order changes.
        intercept: :math:`b`.

    Example:
        >>> LogisticCalibration(slope=1.0, intercept=0.0).probabilities(torch.tensor([-2.0, 0.0]))
        tensor([0.1192, 0.5000])
    """

    slope: float
    intercept: float
    method = "logistic"

    def __post_init__(self) -> None:
        if not (isfinite(self.slope) and isfinite(self.intercept) and self.slope >= 0):
            raise ValueError(f"`slope` must be finite and not negative, `intercept` finite, got {self}")

    def probabilities(self, scores: Tensor) -> Tensor:
        """Map finite scores of any shape to float32 probabilities; never falls where the score rises."""
        return torch.sigmoid(self.slope * scores.double() + self.intercept).float()

    def to_json(self) -> dict[str, Any]:
        """Return what a manifest holds."""
        return {"method": self.method, "slope": self.slope, "intercept": self.intercept}


@dataclass(frozen=True)
class IsotonicCalibration:
    """The non-decreasing function nearest to the labels, linear between knots and constant beyond the outer ones.

    Scores that share a probability keep their order, as a ranking goes by the scores.

    Source: Zadrozny and Elkan, "Transforming Classifier Scores into Accurate Multiclass Probability Estimates", 2002.

    Attributes:
        knots: Scores, rising.
        shares: The probability at each of them, in [0, 1], not falling.

    Example:
        >>> IsotonicCalibration((0.0, 2.0), (0.2, 0.6)).probabilities(torch.tensor([-9.0, 0.5, 9.0]))
        tensor([0.2000, 0.3000, 0.6000])
    """

    knots: tuple[float, ...]
    shares: tuple[float, ...]
    method = "isotonic"

    def __post_init__(self) -> None:
        if not self.knots or len(self.knots) != len(self.shares):
            raise ValueError(
                f"`knots` and `shares` must be as many, at least one, got {len(self.knots)} and {len(self.shares)}"
            )
        if not all(map(isfinite, self.knots)) or any(low >= high for low, high in pairwise(self.knots)):
            raise ValueError("`knots` must be finite and rise")
        if not all(0 <= share <= 1 for share in self.shares) or any(p > q for p, q in pairwise(self.shares)):
            raise ValueError("`shares` must lie in [0, 1] and not fall")

    def probabilities(self, scores: Tensor) -> Tensor:
        """Map finite scores of any shape to float32 probabilities; never falls where the score rises."""
        knots = torch.tensor(self.knots, dtype=torch.float64, device=scores.device)
        shares = torch.tensor(self.shares, dtype=torch.float64, device=scores.device)
        s = scores.double().clamp(knots[0], knots[-1])
        right = torch.searchsorted(knots, s.contiguous()).clamp(min=1 if len(knots) > 1 else 0)
        left = (right - 1).clamp(min=0)
        width = (knots[right] - knots[left]).clamp(min=torch.finfo(torch.float64).tiny)
        p = shares[left] + (s - knots[left]) / width * (shares[right] - shares[left])
        return p.clamp(shares[left], shares[right]).float()  # rounding must not pass the next knot

    def to_json(self) -> dict[str, Any]:
        """Return what a manifest holds."""
        return {"method": self.method, "knots": list(self.knots), "shares": list(self.shares)}


Calibration = LogisticCalibration | IsotonicCalibration


def read_calibration(manifest: Mapping[str, Any]) -> Calibration | None:
    """Read the calibration that a model's manifest holds; None where it has none.

    Raises:
        ValueError: If there is one that cannot be read.

    Example:
        >>> read_calibration({"calibration": {"method": "logistic", "slope": 2.0, "intercept": -1.0}})
        LogisticCalibration(slope=2.0, intercept=-1.0)
    """
    entry = manifest.get("calibration")
    if entry is None:
        return None
    try:
        if entry["method"] == LogisticCalibration.method:
            return LogisticCalibration(float(entry["slope"]), float(entry["intercept"]))
        if entry["method"] == IsotonicCalibration.method:
            return IsotonicCalibration(tuple(map(float, entry["knots"])), tuple(map(float, entry["shares"])))
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"the manifest's `calibration` cannot be read: {error!r}") from error
    known = [LogisticCalibration.method, IsotonicCalibration.method]
    raise ValueError(f"the manifest's `calibration.method` must be one of {known}, got {entry['method']!r}")
