"""Temperature scaling: one number that turns a trained adapter's scores into probabilities."""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphrerank.metrics import expected_calibration_error
from graphrerank_papers.ea_graphrag.adapter_rows import LabelledRows

MAX_TEMPERATURE = 20.0  # its inverse is the smallest: rows all right, or worse than chance, have no optimum
HALVINGS = 50  # of log T between the bounds


@dataclass(frozen=True)
class Calibration:
    """Effect of a calibration on the rows that it was fitted on."""

    temperature: float  # the logit is divided by it
    nll_before: float  # mean negative log-likelihood without it, in nats
    nll_after: float  # with it
    ece_before: float  # expected calibration error without it, ten bins
    ece_after: float  # with it; not always lower, since the likelihood is what is fitted


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    r"""Find the temperature of the highest likelihood, in [1/20, 20], of logits ``[n]`` and labels ``[n]``, 0 or 1.

    .. math:: \min_T \sum_i \mathrm{BCE}(\sigma(z_i / T), y_i)

    Source: Guo et al., "On Calibration of Modern Neural Networks", 2017, section 4.2. The loss is convex in
    :math:`1 / T`, so that halving on its slope finds the optimum.
    """
    if len(logits) == 0 or not bool(logits.isfinite().all()):
        raise ValueError(f"`logits` must be one or more finite numbers, got {logits.tolist()[:10]}")
    z, y = logits.detach().double(), labels.double()
    low, high = -math.log(MAX_TEMPERATURE), math.log(MAX_TEMPERATURE)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        slope_in_inverse = float(((torch.sigmoid(z / math.exp(middle)) - y) * z).sum())
        low, high = (middle, high) if slope_in_inverse > 0 else (low, middle)  # too sure: a higher temperature
    return math.exp((low + high) / 2)


@torch.inference_mode()
def calibrate(model: Any, validation: LabelledRows) -> Calibration:
    """Fit the temperature of an adapter on validation rows and set it in the model.

    Args:
        model: In evaluation mode, with ``logits(features)`` and a buffer ``temperature``.
        validation: Rows that the weights were not trained on.
    """
    logits, labels = model.logits(validation.features).double(), validation.labels.double()
    temperature = fit_temperature(logits, labels)
    model.temperature.fill_(temperature)
    nll = [float(F.binary_cross_entropy_with_logits(logits / t, labels)) for t in (1.0, temperature)]
    ece = [expected_calibration_error(torch.sigmoid(logits / t), labels) for t in (1.0, temperature)]
    return Calibration(temperature, nll[0], nll[1], ece[0], ece[1])
