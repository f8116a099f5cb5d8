"""Logistic calibration of a reranker's scores to probabilities of relevance. It does not change the ranking."""

from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Calibration(BaseModel):
    r"""Logistic calibration of scores, also known as Platt scaling.

    .. math:: p(s) = \sigma(a s + b)

    Source: Platt, "Probabilistic Outputs for Support Vector Machines", 1999. With :math:`b = 0` and :math:`a = 1 / T`
    it is the temperature scaling of Guo et al., "On Calibration of Modern Neural Networks", 2017.

    Attributes:
        method: Name of the method.
        slope: Slope :math:`a`. Must not be negative, so that the ranking does not change.
        intercept: Intercept :math:`b`.

    Example:
        >>> Calibration(slope=1.0, intercept=0.0).probabilities(torch.tensor([-2.0, 0.0]))
        tensor([0.1192, 0.5000])
    """

    model_config = ConfigDict(frozen=True)

    method: Literal["logistic"] = "logistic"
    slope: Annotated[Finite, Field(ge=0)]
    intercept: Finite

    def module(self) -> nn.Module:
        """Return a module that maps scores ``[N]`` to probabilities ``[N]``. It can be scripted and exported."""
        return _Logistic(self.slope, self.intercept)

    def probabilities(self, scores: Tensor) -> Tensor:
        """Convert scores to probabilities of relevance.

        Args:
            scores: Finite scores of any shape.

        Returns:
            Probabilities (float32) of the same shape. They are non-decreasing in the score.
        """
        return torch.sigmoid(self.slope * scores.double() + self.intercept).float()  # same computation as the module


class _Logistic(nn.Module):
    slope: Tensor
    intercept: Tensor

    def __init__(self, slope: float, intercept: float) -> None:
        super().__init__()
        self.register_buffer("slope", torch.tensor(slope, dtype=torch.float64))
        self.register_buffer("intercept", torch.tensor(intercept, dtype=torch.float64))

    def forward(self, scores: Tensor) -> Tensor:
        return torch.sigmoid(self.slope * scores.double() + self.intercept).float()
