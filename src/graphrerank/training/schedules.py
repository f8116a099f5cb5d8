"""Learning-rate schedules as exchangeable parts, with a warm-up that is bounded by the length of the training.

A schedule is a callable that receives the optimiser, and the arguments ``total_steps`` and ``warmup_steps`` if it has
them. It returns a scheduler of ``torch.optim.lr_scheduler``, a Lightning configuration (``{"scheduler": ...,
"interval": "epoch"}``), or a list of either. Schedulers of torch can be used as they are, such as
``functools.partial(torch.optim.lr_scheduler.StepLR, step_size=1)``.
"""

import math
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LinearLR, LRScheduler, ReduceLROnPlateau

from graphrerank.training.optimizers import accepted_arguments
from graphrerank.utils.checks import UserError

#: Scheduler, configuration of a scheduler for Lightning, or a list of either.
Schedule = LRScheduler | dict[str, Any] | list[LRScheduler | dict[str, Any]]
#: Callable that receives the optimiser and returns a :data:`Schedule`.
SchedulerFactory = Callable[..., Schedule]

#: Largest share of the optimiser steps that a warm-up may take.
LONGEST_WARMUP = 0.1


def bounded_warmup(warmup_steps: int, total_steps: float) -> int:
    """Return the number of warm-up steps for a training of a given length, at most a tenth of it.

    A longer warm-up would leave too few steps at the peak learning rate.

    Args:
        warmup_steps: Number of steps that the settings ask for.
        total_steps: Number of optimiser steps of the training. Infinite if unknown.

    Returns:
        Number of warm-up steps.

    Example:
        >>> [bounded_warmup(100, total_steps) for total_steps in (2000, 452, 4)]
        [100, 45, 0]
    """
    if warmup_steps <= LONGEST_WARMUP * total_steps:
        return warmup_steps
    return int(LONGEST_WARMUP * total_steps)


def cosine(optimizer: Optimizer, *, total_steps: int, warmup_steps: int = 0) -> LRScheduler:
    """Return a schedule with a linear warm-up and a cosine decay to zero.

    Args:
        optimizer: Optimiser whose groups have the peak learning rates.
        total_steps: Number of optimiser steps of the training.
        warmup_steps: Number of steps of the warm-up.

    Returns:
        Schedule to update after each optimiser step.

    Example:
        >>> import torch
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        >>> rates = rates_of(cosine(optimizer, total_steps=4, warmup_steps=2), num_steps=5)
        >>> [round(rate, 3) for rate in rates]
        [0.5, 1.0, 1.0, 0.5, 0.0]
    """

    def decay(step: int) -> float:
        done = (step - warmup_steps) / max(1, total_steps - warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    return _after_warmup(optimizer, warmup_steps, decay)


def linear(optimizer: Optimizer, *, total_steps: int, warmup_steps: int = 0) -> LRScheduler:
    """Return a schedule with a linear warm-up and a linear decay to zero.

    Args:
        optimizer: Optimiser whose groups have the peak learning rates.
        total_steps: Number of optimiser steps of the training.
        warmup_steps: Number of steps of the warm-up.

    Returns:
        Schedule to update after each optimiser step.

    Example:
        >>> import torch
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        >>> rates_of(linear(optimizer, total_steps=6, warmup_steps=2), num_steps=6)
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """

    def decay(step: int) -> float:
        return max(0.0, (total_steps - step) / max(1, total_steps - warmup_steps))

    return _after_warmup(optimizer, warmup_steps, decay)


def constant(optimizer: Optimizer, *, warmup_steps: int = 0) -> dict[str, Any]:
    """Return a schedule with a linear warm-up and a constant learning rate afterwards.

    Args:
        optimizer: Optimiser whose groups have the peak learning rates.
        warmup_steps: Number of steps of the warm-up.

    Returns:
        Configuration of a schedule to update after each optimiser step.

    Example:
        >>> import torch
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        >>> rates_of(constant(optimizer, warmup_steps=2)["scheduler"], num_steps=4)
        [0.5, 1.0, 1.0, 1.0]
    """
    return {"scheduler": _after_warmup(optimizer, warmup_steps, lambda step: 1.0), "interval": "step"}


def _after_warmup(optimizer: Optimizer, warmup_steps: int, decay: Callable[[int], float]) -> LambdaLR:
    """Return a schedule with a linear warm-up, whose factor in each later step is ``decay(step)``."""

    def factor(step: int) -> float:
        return (step + 1) / warmup_steps if step < warmup_steps else decay(step)

    return LambdaLR(optimizer, factor)


def plateau(
    optimizer: Optimizer,
    *,
    warmup_steps: int = 0,
    monitor: str = "val/ndcg@10",
    mode: str = "max",
    factor: float = 0.5,
    patience: int = 1,
    threshold: float = 1e-4,
    min_lr: float = 0.0,
) -> list[LRScheduler | dict[str, Any]]:
    """Return a schedule with a linear warm-up, whose rate is reduced when a validation measure stops improving.

    Args:
        optimizer: Optimiser whose groups have the peak learning rates.
        warmup_steps: Number of steps of the warm-up.
        monitor: Log key of the measure.
        mode: ``"max"`` if higher is better, ``"min"`` if lower is better.
        factor: Factor of each reduction, in (0, 1).
        patience: Number of epochs without improvement before a reduction.
        threshold: Relative improvement that counts.
        min_lr: Smallest learning rate.

    Returns:
        The warm-up, which is updated after each step, and the reduction, which is updated after each epoch.
    """
    schedules: list[LRScheduler | dict[str, Any]] = []
    if warmup_steps > 1:
        ramp = LinearLR(optimizer, start_factor=1 / warmup_steps, total_iters=warmup_steps - 1)
        schedules.append({"scheduler": ramp, "interval": "step"})
    reduction = ReduceLROnPlateau(
        optimizer, mode=_direction(mode), factor=factor, patience=patience, threshold=threshold, min_lr=min_lr
    )
    return [*schedules, {"scheduler": reduction, "monitor": monitor}]


def _direction(mode: str) -> Any:
    if mode not in ("min", "max"):
        raise UserError(f"`scheduler.mode` must be min or max, got {mode!r}")
    return mode


def rates_of(scheduler: LRScheduler, num_steps: int) -> list[float]:
    """Return the learning rates of the first steps of a schedule. The schedule is advanced.

    Args:
        scheduler: New schedule.
        num_steps: Number of steps.

    Returns:
        Learning rate of the first parameter group at each step.
    """
    rates = []
    for _ in range(num_steps):
        rates.append(float(scheduler.optimizer.param_groups[0]["lr"]))
        scheduler.optimizer.step()
        scheduler.step()
    return rates


def build_schedules(
    factory: SchedulerFactory, optimizer: Optimizer, *, total_steps: float, warmup_steps: int, steps_per_epoch: int
) -> list[dict[str, Any]]:
    """Build the schedules of a training as configurations for Lightning.

    Args:
        factory: Callable that receives the optimiser, and ``total_steps`` and ``warmup_steps`` if it accepts them.
        optimizer: Optimiser of the training.
        total_steps: Number of optimiser steps of the training. Infinite if the training has no end.
        warmup_steps: Number of steps of the warm-up.
        steps_per_epoch: Number of batches per epoch.

    Returns:
        One configuration per schedule. The rate is updated after each optimiser step if the factory accepts
        ``total_steps``, and otherwise after each epoch, unless a configuration has an ``interval``.

    Raises:
        ValueError: If the factory needs the number of steps and the training has no end.
    """
    arguments = accepted_arguments(factory, {"total_steps": total_steps, "warmup_steps": warmup_steps})
    if "total_steps" in arguments:
        if math.isinf(total_steps):
            raise UserError(
                "`max_epochs` or `max_steps` must be set for a schedule that needs the number of steps, got none. "
                "scheduler=constant does not need it"
            )
        arguments["total_steps"] = int(total_steps)
    schedules = factory(optimizer, **arguments)
    interval = "step" if "total_steps" in arguments else "epoch"
    return [
        _configuration(schedule, interval, steps_per_epoch)
        for schedule in (schedules if isinstance(schedules, list) else [schedules])
    ]


def _configuration(schedule: LRScheduler | dict[str, Any], interval: str, steps_per_epoch: int) -> dict[str, Any]:
    """Return the configuration of a schedule for Lightning."""
    configuration = schedule if isinstance(schedule, dict) else {"scheduler": schedule}
    scheduler = configuration["scheduler"]
    if not isinstance(scheduler, ReduceLROnPlateau):
        return {"interval": interval, **configuration}
    # Lightning updates a plateau schedule of an epoch after it has saved the checkpoint of the epoch, so that a resumed
    # training would miss the update. A schedule of steps is updated before.
    monitor = "val/loss" if scheduler.mode == "min" else "val/ndcg@10"
    return {"monitor": monitor, **configuration, "interval": "step", "frequency": max(1, steps_per_epoch)}
