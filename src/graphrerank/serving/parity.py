"""The parity gate: every format of a model gives the eager model's scores, ranking and probabilities."""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from graphrerank.graphs.calibration import Calibration
from graphrerank.serving.parity_batches import Batch

TOLERANCE = 1e-5  # largest difference of a score or a probability, absolute
ROUNDING = 2e-6  # of the largest score, at least of 1: nearer scores may change places
NUM_BATCHES = 500
REPEATS = 2  # of the first batches: TorchScript profiles a graph's first call and optimises from the second
REPEATED = 8


def parity_differences(
    eager: nn.Module,
    others: Mapping[str, Callable[..., Tensor]],
    batches: Iterable[Batch],
    *,
    calibration: Calibration | None = None,
    tolerance: float = TOLERANCE,
) -> dict[str, float]:
    """Measure how far other forms of a model are from the eager one.

    A ranking is the same where every candidate stands before those whose eager scores are lower by more than rounding.

    Args:
        eager: The model, in evaluation mode.
        others: By the name that errors give them: what takes the same tensors and gives scores. One with ``outputs``
            also gives probabilities where there is a calibration, one with ``calibration`` maps scores to them.
        batches: Named batches to score.
        calibration: The model's; None where it has none.
        tolerance: Largest absolute difference of a score, and of a probability from that of its own score.

    Returns:
        The largest absolute difference of a score, by name.

    Raises:
        ValueError: If a score is not finite, scores differ by more than ``tolerance`` or in shape, rank otherwise, or a
            model fails; names model and batch.
    """
    named = list(batches)
    with torch.inference_mode():
        expected = [_scores("the eager model", eager, batch) for batch in named]
        return {
            name: max(
                _compare(name, other, place, batch, scores, calibration, tolerance)
                for place, (batch, scores) in enumerate(zip(named, expected, strict=True))
            )
            for name, other in others.items()
        }


def _compare(
    name: str,
    other: Callable[..., Tensor],
    place: int,
    batch: Batch,
    expected: Tensor,
    calibration: Calibration | None,
    tolerance: float,
) -> float:
    """Compare on one batch; returns the largest difference."""
    worst = 0.0
    for _ in range(REPEATS if place < REPEATED else 1):
        found = _scores(name, other, batch)
        worst = max(worst, _difference(name, batch, found, expected, tolerance))
        _check_ranking(name, batch, found, expected)
    if calibration is not None:
        _check_probabilities(name, batch, other, calibration, tolerance)
    return worst


def _scores(name: str, model: Callable[..., Tensor], batch: Batch) -> Tensor:
    try:
        return model(*batch.inputs)
    except Exception as error:  # the errors of runtimes share no class
        raise ValueError(f"{name} fails on the batch {batch.name!r}: {error}") from error


def _difference(name: str, batch: Batch, found: Tensor, expected: Tensor, tolerance: float) -> float:
    if found.shape != expected.shape:
        shapes = f"{list(found.shape)}, not {list(expected.shape)}"
        raise ValueError(f"{name} gives scores of shape {shapes}, on the batch {batch.name!r}")
    difference = (found - expected).abs().max().item()
    if not difference <= tolerance:  # also where it is NaN
        raise ValueError(
            f"{name} and the eager model must agree within {tolerance}, "
            f"got a difference of {difference} on the batch {batch.name!r}"
        )
    return difference


def _check_ranking(name: str, batch: Batch, found: Tensor, expected: Tensor) -> None:
    order = batch.order(found)
    ordered = expected[order.clamp(min=0)].masked_fill(order < 0, -torch.inf)
    risen = (ordered - ordered.cummin(1).values).nan_to_num(nan=0.0)  # -inf behind the last is no rise
    rounding = ROUNDING * max(1.0, expected.abs().max().item())
    if risen.numel() and (most := risen.max().item()) > rounding:
        raise ValueError(
            f"{name} and the eager model must rank alike where scores differ by more than {rounding:.1e}, "
            f"got a candidate {most:.1e} too late on the batch {batch.name!r}"
        )


def _check_probabilities(
    name: str, batch: Batch, other: Callable[..., Tensor], calibration: Calibration, tolerance: float
) -> None:
    if hasattr(other, "outputs"):
        scores, found = other.outputs(*batch.inputs)
    elif hasattr(other, "calibration"):
        scores = other(*batch.inputs)
        found = other.calibration(scores)
    else:
        return
    difference = (found - calibration.probabilities(scores)).abs().max().item()
    if not difference <= tolerance:
        raise ValueError(
            f"{name}: probabilities must be within {tolerance} of the calibration's, "
            f"got a difference of {difference} on the batch {batch.name!r}"
        )
