"""Calibrations turn a reranker's score into the probability that a candidate is relevant, and never change an order."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn


class Calibration(ABC):
    """A non-decreasing function of the score with values in [0, 1]."""

    method: str

    @abstractmethod
    def probabilities(self, scores: Tensor) -> Tensor:
        """Map finite scores of any shape to float32 probabilities; never falls where the score rises."""

    @abstractmethod
    def module(self) -> nn.Module:
        """Build the module that an exported model holds: it maps ``[N]`` to ``[N]``, scripts and exports."""

    def to_json(self) -> dict[str, Any]:
        """Return the entry of a manifest."""
        values = asdict(self)  # type: ignore[call-overload]
        return {"method": self.method, **{k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}}

    @classmethod
    def from_json(cls, entry: Any) -> "Calibration":
        """Read the entry of a manifest.

        Raises:
            ValueError: If it cannot be read.

        Example:
            >>> Calibration.from_json({"method": "logistic", "slope": 2.0, "intercept": -1.0})
            LogisticCalibration(slope=2.0, intercept=-1.0)
        """
        try:
            if (method := entry["method"]) == LogisticCalibration.method:
                return LogisticCalibration(float(entry["slope"]), float(entry["intercept"]))
            if method == IsotonicCalibration.method:
                return IsotonicCalibration(tuple(map(float, entry["knots"])), tuple(map(float, entry["shares"])))
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"the manifest's `calibration` cannot be read: {error!r}") from error
        known = [LogisticCalibration.method, IsotonicCalibration.method]
        raise ValueError(f"the manifest's `calibration.method` must be one of {known}, got {method!r}")


@dataclass(frozen=True)
class LogisticCalibration(Calibration):
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
        """Map scores to probabilities; as :meth:`Calibration.probabilities`."""
        return torch.sigmoid(self.slope * scores.double() + self.intercept).float()

    def module(self) -> "LogisticModule":
        """Build the module; as :meth:`Calibration.module`."""
        return LogisticModule(self)


@dataclass(frozen=True)
class IsotonicCalibration(Calibration):
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
        """Map scores to probabilities; as :meth:`Calibration.probabilities`."""
        knots = torch.tensor(self.knots, dtype=torch.float64, device=scores.device)
        shares = torch.tensor(self.shares, dtype=torch.float64, device=scores.device)
        s = scores.double().flatten().clamp(knots[0], knots[-1])
        return interpolate(s, knots, shares, torch.searchsorted(knots, s)).reshape(scores.shape)

    def module(self) -> "IsotonicModule":
        """Build the module; as :meth:`Calibration.module`."""
        return IsotonicModule(self)


def interpolate(scores: Tensor, knots: Tensor, shares: Tensor, below: Tensor) -> Tensor:
    """Interpolate linearly between knots.

    Args:
        scores: ``[N]`` float64, from the first knot to the last.
        knots: ``[K]`` float64, rising.
        shares: ``[K]`` float64, not falling.
        below: ``[N]`` int64, how many knots are smaller than each score.

    Returns:
        ``[N]`` float32; rounding never passes the next knot's share.
    """
    right = below.clamp(min=1 if knots.shape[0] > 1 else 0)
    left = (right - 1).clamp(min=0)
    low, high = shares.index_select(0, left), shares.index_select(0, right)
    start, end = knots.index_select(0, left), knots.index_select(0, right)
    width = torch.where(end > start, end - start, torch.ones_like(start))
    return torch.minimum(torch.maximum(low + (scores - start) / width * (high - low), low), high).float()


class LogisticModule(nn.Module):
    """:class:`LogisticCalibration` as a module.

    Args:
        calibration: The calibration.
    """

    slope: Tensor
    intercept: Tensor

    def __init__(self, calibration: LogisticCalibration) -> None:
        super().__init__()
        self.register_buffer("slope", torch.tensor(calibration.slope, dtype=torch.float64))
        self.register_buffer("intercept", torch.tensor(calibration.intercept, dtype=torch.float64))

    def forward(self, scores: Tensor) -> Tensor:
        """Map scores ``[N]`` to probabilities ``[N]``."""
        return torch.sigmoid(self.slope * scores.double() + self.intercept).float()


class IsotonicModule(nn.Module):
    """:class:`IsotonicCalibration` as a module, without a binary search, for which ONNX has no operator.

    Args:
        calibration: The calibration.
    """

    knots: Tensor
    shares: Tensor

    def __init__(self, calibration: IsotonicCalibration) -> None:
        super().__init__()
        self.register_buffer("knots", torch.tensor(calibration.knots, dtype=torch.float64))
        self.register_buffer("shares", torch.tensor(calibration.shares, dtype=torch.float64))

    def forward(self, scores: Tensor) -> Tensor:
        """Map scores ``[N]`` to probabilities ``[N]``; takes ``[N, K]`` comparisons."""
        s = scores.double().clamp(self.knots.min(), self.knots.max())
        below = (self.knots.unsqueeze(0) < s.unsqueeze(1)).sum(1)
        return interpolate(s, self.knots, self.shares, below)
