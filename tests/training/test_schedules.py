import math
from functools import partial
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import OneCycleLR, ReduceLROnPlateau, StepLR

from graphrerank.config.components import ComponentFactory
from graphrerank.training.schedules import bounded_warmup, build_schedules, cosine, plateau, rates_of


def optimizer(rate: float = 1.0) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.zeros(1)], lr=rate)


@pytest.mark.parametrize(
    ("warmup_steps", "total_steps", "expected"),
    [(100, 2000, 100), (100, 1000, 100), (100, 452, 45), (100, 4, 0), (0, 4, 0), (2, 8, 0), (100, math.inf, 100)],
)
def test_a_long_warmup_is_shortened_to_a_tenth(warmup_steps: int, total_steps: float, expected: int) -> None:
    assert bounded_warmup(warmup_steps, total_steps) == expected


def configurations(factory: Any, **changes: Any) -> list[dict[str, Any]]:
    arguments: dict[str, Any] = {"total_steps": 20, "warmup_steps": 2, "steps_per_epoch": 5}
    return build_schedules(factory, optimizer(), **arguments | changes)


@pytest.mark.parametrize("name", ["cosine", "linear", "constant", "plateau"])
def test_every_schedule_of_conf_warms_up_each_step(name: str) -> None:
    first = configurations(ComponentFactory().build("scheduler", name))[0]
    assert first["interval"] == "step"
    assert rates_of(first["scheduler"], 3) == [0.5, 1.0, 1.0]


def test_a_plateau_reduces_the_rate_after_the_warmup() -> None:
    (warmup, reduction) = configurations(partial(plateau, monitor="val/loss", mode="min", patience=0))
    assert (reduction["monitor"], reduction["interval"], reduction["frequency"]) == ("val/loss", "step", 5)
    assert rates_of(warmup["scheduler"], 2) == [0.5, 1.0]
    for loss in (1.0, 2.0, 2.0):
        reduction["scheduler"].step(loss)
    warmup["scheduler"].step()  # the warm-up does not undo the reductions
    assert warmup["scheduler"].optimizer.param_groups[0]["lr"] == 0.25


@pytest.mark.parametrize(
    ("factory", "interval", "monitor"),
    [
        (partial(StepLR, step_size=1), "epoch", None),
        (partial(OneCycleLR, max_lr=1.0), "step", None),  # it accepts total_steps
        (partial(ReduceLROnPlateau, mode="max"), "step", "val/ndcg@10"),
        (ReduceLROnPlateau, "step", "val/loss"),
    ],
)
def test_schedulers_of_torch(factory: Any, interval: str, monitor: str | None) -> None:
    (found,) = configurations(factory)
    assert (found["interval"], found.get("monitor")) == (interval, monitor)


def test_a_configuration_of_the_caller_is_used() -> None:
    (found,) = configurations(lambda optimizer: {"scheduler": StepLR(optimizer, 1), "interval": "step", "frequency": 3})
    assert (found["interval"], found["frequency"]) == ("step", 3)


def test_a_training_without_end_needs_a_schedule_without_end() -> None:
    with pytest.raises(ValueError, match=r"`max_epochs` or `max_steps` must be set.*scheduler=constant"):
        configurations(cosine, total_steps=math.inf)
    constant = ComponentFactory().build("scheduler", "constant")
    assert configurations(constant, total_steps=math.inf)[0]["interval"] == "step"


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`scheduler.mode` must be min or max, got 'best'"):
        plateau(optimizer(), mode="best")
