"""What a training logs, draws and writes: the table of its epochs, learning curves, checkpoints."""

import logging
import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from graphrerank.utils.checks import UserError
from graphrerank.utils.files import atomic_path, save_figure
from graphrerank.utils.progress import advance, progress_bar

LOGGER = logging.getLogger(__name__)


class AtomicCheckpoints(TorchCheckpointIO):
    """Write each checkpoint next to its target, then rename it.

    Lightning's own writer moves it there from the system's temporary folder; where that is on another file system the
    move is a copy, and a full disk leaves half a ``last.ckpt`` in the place of a whole one.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write a checkpoint.

        Args:
            checkpoint: State of the training.
            path: File to write.
            storage_options: Must be None; other values are for remote file systems.

        Raises:
            ValueError: If ``storage_options`` are given.
        """
        if storage_options is not None:
            raise UserError(f"`storage_options` must be None for a local checkpoint, got {storage_options!r}")
        with atomic_path(Path(path)) as temporary:
            torch.save(checkpoint, temporary)


class EpochTable(L.Callback):
    """Show a bar within each epoch, and log a row of the numbers that are logged for it, under one header.

    Where a row is wider than the terminal (``COLUMNS``, or 80), each number stands behind its name. Only the first
    process of a joint training shows it. Lightning's own progress bar must be off.
    """

    def __init__(self) -> None:
        self._header: list[str] = []
        self._bar = ExitStack()
        self._begin = 0.0

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Show the bar over the epoch's batches."""
        self._begin = time.perf_counter()
        if trainer.is_global_zero:
            batches = trainer.num_training_batches
            label = f"epoch {trainer.current_epoch + 1} of {trainer.max_epochs}"
            self._bar.enter_context(progress_bar(label, int(batches) if batches != float("inf") else 0))

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Advance the bar."""
        advance(int(trainer.is_global_zero))

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log the epoch's row, below the header where it is the first or has other columns."""
        self._bar.close()
        if not trainer.is_global_zero:
            return
        row = {"epoch": str(trainer.current_epoch + 1), **_shown(trainer.progress_bar_metrics)}
        row["seconds"] = f"{time.perf_counter() - self._begin:.1f}"
        line = "  ".join(f"{number:>{len(name)}}" for name, number in row.items())
        if len(line) > shutil.get_terminal_size().columns:
            line = ", ".join(f"{name} {number}" for name, number in row.items())
        elif list(row) != self._header:
            LOGGER.info("  ".join(row))
        self._header = list(row)
        LOGGER.info(line)

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Take the bar away."""
        self._bar.close()


def _shown(metrics: Any) -> dict[str, str]:
    """Write the numbers of an epoch, training before validation and losses first; those of single steps are left out.

    Example:
        >>> _shown({"train/loss_step": 2.0, "train/loss_epoch": 1.23456, "val/ndcg@10": 0.5})
        {'train/loss': '1.2346', 'val/ndcg@10': '0.5000'}
    """
    names = {name.removesuffix("_epoch"): name for name in metrics if not name.endswith("_step") and name != "v_num"}
    order = sorted(names, key=lambda name: (not name.startswith("train/"), not name.endswith("loss"), name))
    return {name: f"{float(metrics[names[name]]):.4f}" for name in order}


class GradientNorm(L.Callback):
    """Log the Euclidean norm of the gradient of all parameters at each optimiser step, before it is clipped.

    The log key is ``train/grad_norm``. Nothing is computed for a trainer without a logger. The norm is read and never
    written, so that training is the same to the last bit.
    """

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Log the norm; parameters without a gradient do not count."""
        if trainer.loggers:
            gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
            pl_module.log("train/grad_norm", torch.nn.utils.get_total_norm(gradients))


class LearningRate(L.Callback):
    """Log the learning rate of each optimiser step as ``train/lr``.

    Lightning's ``LearningRateMonitor`` is not used because it fails without a logger, and because it logs a curve for
    each group of parameters, although ours differ in weight decay alone. A group whose rate is not that of the first
    one gets a curve of its own, such as ``train/lr_group_2``.
    """

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Log the rates with which the optimiser is about to step."""
        if trainer.loggers:
            rates = [float(group["lr"]) for group in optimizer.param_groups]
            pl_module.log("train/lr", rates[0])
            for number, rate in enumerate(rates[1:], 2):
                if rate != rates[0]:
                    pl_module.log(f"train/lr_group_{number}", rate)


class LearningCurves(L.Callback):
    """Keep every logged number of each epoch, and draw them as curves after each epoch.

    The numbers are saved in checkpoints, so that a resumed training has the curves of an unbroken one.

    Args:
        path: PNG file to write. It is not written in a ``fast_dev_run``.
        panels: Log keys of each panel, from the left. A key that nothing logs has no curve.

    Attributes:
        history: The numbers of each epoch by log key, with the number of the epoch, from 1, as ``epoch``.

    Example:
        >>> curves = LearningCurves("curves.png", panels=[["train/loss_epoch", "val/loss"], ["val/ndcg@10"]])
        >>> curves.history
        []
    """

    def __init__(self, path: str | Path, *, panels: list[list[str]]) -> None:
        self.path = Path(path)
        self.panels = panels
        self.history: list[dict[str, float]] = []

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Add the epoch's numbers and draw."""
        row = {"epoch": float(trainer.current_epoch + 1)}
        row |= {key: float(metric) for key, metric in trainer.callback_metrics.items()}
        self.history.append(row)
        if trainer.is_global_zero and not trainer.fast_dev_run:
            self._draw()

    def state_dict(self) -> dict[str, Any]:
        """Return the history for the checkpoint."""
        return {"history": self.history}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the history of the run that is resumed."""
        self.history = list(state_dict["history"])

    def _draw(self) -> None:
        from matplotlib.figure import Figure  # slow to import, and the object interface needs no display

        figure = Figure(figsize=(5 * len(self.panels), 3.4), layout="constrained")
        for axes, keys in zip(figure.subplots(1, len(self.panels), squeeze=False)[0], self.panels, strict=True):
            for key in keys:
                rows = [row for row in self.history if key in row]
                axes.plot([row["epoch"] for row in rows], [row[key] for row in rows], marker="o", label=key)
            axes.set_xlabel("epoch")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.grid(alpha=0.3)
            axes.legend()
        save_figure(self.path, figure)
