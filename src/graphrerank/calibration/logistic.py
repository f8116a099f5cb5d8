"""A calibration turns a reranker's score into the probability that a candidate is relevant; no order changes."""

from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Calibration(BaseModel):
    r"""A temperature and a bias.

    .. math:: p(s) = \sigma(a s + b)

    Source: Platt, "Probabilistic Outputs for Support Vector Machines", 1999; with :math:`b = 0` and
    :math:`a = 1 / T` it is the temperature of Guo et al., "On Calibration of Modern Neural Networks", 2017.

    Example:
        >>> Calibration(slope=1.0, intercept=0.0).probabilities(torch.tensor([-2.0, 0.0]))
        tensor([0.1192, 0.5000])
    """

    model_config = ConfigDict(frozen=True)

    method: Literal["logistic"] = "logistic"
    slope: Annotated[Finite, Field(ge=0)]  # `a`, not negative, so that no order changes
    intercept: Finite  # `b`

    def module(self) -> nn.Module:
        """Build the module of an exported model, which maps ``[N]`` to ``[N]``, scripts and exports."""
        return _Logistic(self.slope, self.intercept)

    def probabilities(self, scores: Tensor) -> Tensor:
        """Map finite scores of any shape to float32 probabilities; never falls where the score rises."""
        return torch.sigmoid(self.slope * scores.double() + self.intercept).float()  # as the module computes it


class _Logistic(nn.Module):
    slope: Tensor
    intercept: Tensor

    def __init__(self, slope: float, intercept: float) -> None:
        super().__init__()
        self.register_buffer("slope", torch.tensor(slope, dtype=torch.float64))
        self.register_buffer("intercept", torch.tensor(intercept, dtype=torch.float64))

    def forward(self, scores: Tensor) -> Tensor:
        return torch.sigmoid(self.slope * scores.double() + self.intercept).float()
