"""Calibrations as modules, which an exported model holds inside itself."""

import torch
from torch import Tensor, nn

from graphrerank.graphs.calibration import Calibration, LogisticCalibration


class LogisticModule(nn.Module):
    """:class:`~graphrerank.graphs.calibration.LogisticCalibration` in float64, given out in float32.

    Args:
        slope: Not negative.
        intercept: Any number.
    """

    slope: Tensor
    intercept: Tensor

    def __init__(self, slope: float, intercept: float) -> None:
        super().__init__()
        self.register_buffer("slope", torch.tensor(slope, dtype=torch.float64))
        self.register_buffer("intercept", torch.tensor(intercept, dtype=torch.float64))

    def forward(self, scores: Tensor) -> Tensor:
        """Map scores ``[N]`` to probabilities ``[N]``."""
        return torch.sigmoid(self.slope * scores.double() + self.intercept).float()


class IsotonicModule(nn.Module):
    """:class:`~graphrerank.graphs.calibration.IsotonicCalibration` in float64, given out in float32; no binary search.

    Args:
        knots: ``[K]`` rising.
        shares: ``[K]`` in [0, 1], not falling.
    """

    knots: Tensor
    shares: Tensor

    def __init__(self, knots: Tensor, shares: Tensor) -> None:
        super().__init__()
        self.register_buffer("knots", knots.double())
        self.register_buffer("shares", shares.double())

    def forward(self, scores: Tensor) -> Tensor:
        """Map scores ``[N]`` to probabilities ``[N]``; takes ``[N, K]`` comparisons."""
        s = scores.double().clamp(self.knots.min(), self.knots.max())
        below = (self.knots.unsqueeze(0) < s.unsqueeze(1)).sum(1)
        right = below.clamp(min=1 if self.knots.shape[0] > 1 else 0)
        left = (right - 1).clamp(min=0)
        low, high = self.shares.index_select(0, left), self.shares.index_select(0, right)
        start, end = self.knots.index_select(0, left), self.knots.index_select(0, right)
        width = torch.where(end > start, end - start, torch.ones_like(start))
        return torch.minimum(torch.maximum(low + (s - start) / width * (high - low), low), high).float()


def calibration_module(calibration: Calibration) -> LogisticModule | IsotonicModule:
    """Make the module of a calibration; it scripts and exports.

    Example:
        >>> calibration_module(LogisticCalibration(1.0, 0.0))(torch.tensor([-2.0, 0.0]))
        tensor([0.1192, 0.5000])
    """
    if isinstance(calibration, LogisticCalibration):
        return LogisticModule(calibration.slope, calibration.intercept)
    return IsotonicModule(
        torch.tensor(calibration.knots, dtype=torch.float64), torch.tensor(calibration.shares, dtype=torch.float64)
    )
