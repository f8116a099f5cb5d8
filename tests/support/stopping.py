"""Trainings that end too early."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lightning as L
import pytest


class StopAt(L.Callback):
    """End the training at an optimiser step, as a power cut does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            raise RuntimeError("power cut")


class StopInEpoch(L.Callback):
    """Fail within an epoch, as a machine can."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.current_epoch == self.epoch and batch_idx == 1:
            self.stop()

    def stop(self) -> None:
        """End the training before the second step of the epoch."""
        raise RuntimeError("power cut")


class SignalInEpoch(StopInEpoch):
    """Send SIGTERM to this process within an epoch, like a cluster that ends a job."""

    def stop(self) -> None:
        signal.raise_signal(signal.SIGTERM)


@contextmanager
def exit_before_step(
    module_class: type[L.LightningModule], is_last: Callable[[Any, int], bool], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Exit with status 9 before the first training step for which a function of the module and the batch is true."""
    start: Any = module_class.training_step

    def step(self: L.LightningModule, batch: Any, batch_idx: int) -> Any:
        if is_last(self, batch_idx):
            raise SystemExit(9)
        return start(self, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(module_class, "training_step", step)
        yield
