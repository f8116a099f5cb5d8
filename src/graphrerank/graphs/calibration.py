"""Calibrations turn a reranker's score into the probability that a candidate is relevant, and never change an order."""

from itertools import pairwise
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from graphrerank.checks import UserError

Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Calibration(BaseModel):
    model_config = ConfigDict(frozen=True)

    def module(self) -> nn.Module:
        raise NotImplementedError

    def probabilities(self, scores: Tensor) -> Tensor:
        """Map finite scores of any shape to float32 probabilities; never falls where the score rises."""
        probabilities: Tensor = self.module().to(scores.device)(scores.flatten())
        return probabilities.reshape(scores.shape)


class LogisticCalibration(_Calibration):
    r"""A temperature and a bias.

    .. math:: p(s) = \sigma(a s + b)

    Source: Platt, "Probabilistic Outputs for Support Vector Machines", 1999; with :math:`b = 0` and
    :math:`a = 1 / T` it is the temperature of Guo et al., "On Calibration of Modern Neural Networks", 2017.

    Example:
        >>> LogisticCalibration(slope=1.0, intercept=0.0).probabilities(torch.tensor([-2.0, 0.0]))
        tensor([0.1192, 0.5000])
    """

    method: Literal["logistic"] = "logistic"
    slope: Annotated[Finite, Field(ge=0)]  # `a`, not negative, so that no order changes
    intercept: Finite  # `b`

    def module(self) -> nn.Module:
        """Build the module of an exported model, which maps ``[N]`` to ``[N]``, scripts and exports."""
        return _Logistic(self.slope, self.intercept)


class IsotonicCalibration(_Calibration):
    """The non-decreasing function nearest to the labels, linear between knots and constant beyond the outer ones.

    Scores that share a probability keep their order, as a ranking goes by the scores.

    Source: Zadrozny and Elkan, "Transforming Classifier Scores into Accurate Multiclass Probability Estimates", 2002.

    Example:
        >>> calibration = IsotonicCalibration(knots=(0.0, 2.0), shares=(0.2, 0.6))
        >>> calibration.probabilities(torch.tensor([-9.0, 0.5, 9.0]))
        tensor([0.2000, 0.3000, 0.6000])
    """

    method: Literal["isotonic"] = "isotonic"
    knots: Annotated[tuple[Finite, ...], Field(min_length=1)]  # scores, rising
    shares: tuple[Annotated[float, Field(ge=0, le=1)], ...]  # the probability at each of them, not falling

    @model_validator(mode="after")
    def _check(self) -> "IsotonicCalibration":
        if any(low >= high for low, high in pairwise(self.knots)):
            raise UserError("`knots` must rise")
        if len(self.knots) != len(self.shares) or any(low > high for low, high in pairwise(self.shares)):
            raise UserError("`shares` must be as many as `knots`, and not fall")
        return self

    def module(self) -> nn.Module:
        """As of :meth:`LogisticCalibration.module`."""
        return _Isotonic(self.knots, self.shares)


Calibration = Annotated[LogisticCalibration | IsotonicCalibration, Field(discriminator="method")]


class _Logistic(nn.Module):
    slope: Tensor
    intercept: Tensor

    def __init__(self, slope: float, intercept: float) -> None:
        super().__init__()
        self.register_buffer("slope", torch.tensor(slope, dtype=torch.float64))
        self.register_buffer("intercept", torch.tensor(intercept, dtype=torch.float64))

    def forward(self, scores: Tensor) -> Tensor:
        return torch.sigmoid(self.slope * scores.double() + self.intercept).float()


class _Isotonic(nn.Module):
    """Interpolates without a binary search, for which ONNX has no operator: takes ``[N, K]`` comparisons."""

    knots: Tensor
    shares: Tensor

    def __init__(self, knots: tuple[float, ...], shares: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("knots", torch.tensor(knots, dtype=torch.float64))
        self.register_buffer("shares", torch.tensor(shares, dtype=torch.float64))

    def forward(self, scores: Tensor) -> Tensor:
        s = scores.double().clamp(self.knots.min(), self.knots.max())
        right = (self.knots.unsqueeze(0) < s.unsqueeze(1)).sum(1).clamp(min=1 if self.knots.shape[0] > 1 else 0)
        left = (right - 1).clamp(min=0)
        low, high = self.shares.index_select(0, left), self.shares.index_select(0, right)
        start, end = self.knots.index_select(0, left), self.knots.index_select(0, right)
        width = torch.where(end > start, end - start, torch.ones_like(start))
        share = low + (s - start) / width * (high - low)
        return torch.minimum(torch.maximum(share, low), high).float()  # rounding never passes the next knot's share
