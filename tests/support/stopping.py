"""Trainings that end too early."""

import signal
from typing import Any

import lightning as L


class StopInEpoch(L.Callback):
    """Fail within an epoch, as a machine may."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.current_epoch == self.epoch and batch_idx == 1:
            raise RuntimeError("power cut")


class SignalInEpoch(L.Callback):
    """Send SIGTERM to this process within an epoch, as a cluster that ends a job."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.current_epoch == self.epoch and batch_idx == 1:
            signal.raise_signal(signal.SIGTERM)
