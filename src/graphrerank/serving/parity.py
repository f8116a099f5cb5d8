"""The parity gate: every format of a model must have the eager model's scores, ranking and probabilities."""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from graphrerank.graphs.calibration import Calibration
from graphrerank.serving.parity_batches import Batch

TOLERANCE = 1e-5  # maximum absolute difference of a score or a probability
ROUNDING = 2e-6  # relative to the largest score, or to 1: closer scores may swap ranks
NUM_BATCHES = 500
REPEATS = 2  # of the first batches: TorchScript profiles a graph's first call and optimises it at the second
REPEATED = 8


def parity_differences(
    eager: nn.Module,
    others: Mapping[str, Callable[..., Tensor]],
    batches: Iterable[Batch],
    *,
    calibration: Calibration | None = None,
    tolerance: float = TOLERANCE,
) -> dict[str, float]:
    """Compare other forms of a model with the eager one.

    A ranking is the same if every candidate precedes those whose eager scores are lower by more than rounding.

    Args:
        eager: The model, in evaluation mode.
        others: Functions from the same tensors to scores, by their names in errors. One with ``outputs`` also returns
            probabilities if there is a calibration; one with ``calibration`` maps scores to them.
        batches: Named batches to score.
        calibration: The model's calibration; None for none.
        tolerance: Maximum absolute difference of a score, and of a probability from that of its own score.

    Returns:
        The largest absolute difference of a score, by name.

    Raises:
        ValueError: If a score is not finite, scores differ by more than ``tolerance`` or in shape or rank, or a model
            fails; names model and batch.
    """
    named = list(batches)
    with torch.inference_mode():
        expected = [_scores("the eager model", eager, batch) for batch in named]
        return {
            name: max(
                _compare(name, other, REPEATS if index < REPEATED else 1, batch, scores, calibration, tolerance)
                for index, (batch, scores) in enumerate(zip(named, expected, strict=True))
            )
            for name, other in others.items()
        }


def _compare(
    name: str,
    other: Callable[..., Tensor],
    repeats: int,
    batch: Batch,
    expected: Tensor,
    calibration: Calibration | None,
    tolerance: float,
) -> float:
    """Compare on one batch; return the largest difference."""
    largest = 0.0
    for _ in range(repeats):
        scores = _scores(name, other, batch)
        largest = max(largest, _difference(name, batch, scores, expected, tolerance))
        _check_ranking(name, batch, scores, expected)
    if calibration is not None:
        _check_probabilities(name, batch, other, calibration, tolerance)
    return largest


def _scores(name: str, model: Callable[..., Tensor], batch: Batch) -> Tensor:
    try:
        return model(*batch.inputs)
    except Exception as error:  # runtimes' errors share no class
        raise ValueError(f"{name} fails on the batch {batch.name!r}: {error}") from error


def _difference(name: str, batch: Batch, scores: Tensor, expected: Tensor, tolerance: float) -> float:
    if scores.shape != expected.shape:
        shapes = f"{list(scores.shape)}, not {list(expected.shape)}"
        raise ValueError(f"{name} gives scores of shape {shapes}, on the batch {batch.name!r}")
    difference = (scores - expected).abs().max().item()
    if not difference <= tolerance:  # or NaN
        raise ValueError(
            f"{name} and the eager model must agree within {tolerance}, "
            f"got a difference of {difference} on the batch {batch.name!r}"
        )
    return difference


def _check_ranking(name: str, batch: Batch, scores: Tensor, expected: Tensor) -> None:
    order = batch.order(scores)
    ordered = expected[order.clamp(min=0)].masked_fill(order < 0, -torch.inf)
    rise = (ordered - ordered.cummin(1).values).nan_to_num(nan=0.0)  # NaN in the padding
    rounding = ROUNDING * max(1.0, expected.abs().max().item())
    if rise.numel() and (largest := rise.max().item()) > rounding:
        raise ValueError(
            f"{name} and the eager model must rank scores alike that differ by more than {rounding:.1e}, "
            f"got a candidate {largest:.1e} too late on the batch {batch.name!r}"
        )


def _check_probabilities(
    name: str, batch: Batch, other: Callable[..., Tensor], calibration: Calibration, tolerance: float
) -> None:
    if hasattr(other, "outputs"):
        scores, probabilities = other.outputs(*batch.inputs)
    elif hasattr(other, "calibration"):
        scores = other(*batch.inputs)
        probabilities = other.calibration(scores)
    else:
        return
    difference = (probabilities - calibration.probabilities(scores)).abs().max().item()
    if not difference <= tolerance:
        raise ValueError(
            f"{name}: probabilities must be within {tolerance} of the calibration's, "
            f"got a difference of {difference} on the batch {batch.name!r}"
        )
