"""Saving of the training state on Ctrl+C and SIGTERM, after the current optimiser step."""

import logging
import signal
from pathlib import Path
from typing import Any

import lightning as L

LOGGER = logging.getLogger(__name__)
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class SaveOnSignal(L.Callback):
    """Save the state on Ctrl+C or SIGTERM after the current optimiser step, and stop the training.

    The signal is raised again after the state is saved, so that the caller sees it. Within a validation, the callback
    waits until the epoch ends. A second signal stops at once, without saving. A training that is resumed from the file
    ends as an uninterrupted one. In distributed training, all processes stop after the same step.

    Args:
        path: Checkpoint to write. Nothing is written in a ``fast_dev_run``.

    Attributes:
        saved: Whether the state was saved.

    Example:
        >>> SaveOnSignal("runs/mine/gatv2/checkpoints/last.ckpt").saved
        False
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.saved = False
        self._received: int | None = None
        self._handlers: dict[int, Any] = {}  # handlers of the caller by signal
        self._step = 0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Install the signal handlers. Only the main thread can do so.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that is trained.
        """
        self.saved, self._received, self._step = False, None, trainer.global_step
        for number in SIGNALS:
            try:
                self._handlers[number] = signal.signal(number, self._receive)
            except ValueError:  # not the main thread
                return

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Stop after an optimiser step within an epoch.

        Args:
            trainer: Trainer of the run.
        """
        has_stepped, self._step = trainer.global_step != self._step, trainer.global_step
        if has_stepped and not trainer.is_last_batch:
            self._stop(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Stop at the end of an epoch, after its validation.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that is trained.
        """
        self._stop(trainer)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Restore the signal handlers of the caller.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that was trained.
            stage: Stage that ends.
        """
        self._restore()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Restore the signal handlers of the caller.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that is trained.
            exception: Exception that ended the training.
        """
        self._restore()

    def _receive(self, number: int, frame: Any) -> None:
        """Note a signal. Raise a second one at once."""
        if self._received is not None:
            self._restore()
            signal.raise_signal(number)
            return
        self._received = number
        LOGGER.warning("stopping after this step to save the state; another signal stops at once")

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            if handler is not None:
                signal.signal(number, handler)
        self._handlers = {}

    def _stop(self, trainer: L.Trainer) -> None:
        """Save the state and raise the signal again, if any process has received one."""
        received = self._received
        if not trainer.strategy.reduce_boolean_decision(received is not None, all=False):
            return
        if not trainer.fast_dev_run:
            trainer.save_checkpoint(self.path)
            self.saved = True
        self._restore()
        number = signal.SIGINT if received is None else received  # another process has received it
        signal.raise_signal(number)
        raise SystemExit(128 + number)  # the caller's handler has returned
