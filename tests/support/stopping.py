"""Trainings that end too early."""

import signal
from typing import Any

import lightning as L


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
