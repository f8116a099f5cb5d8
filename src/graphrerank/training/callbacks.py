"""Lightning callbacks for the epoch table, learning curves, gradient norm and learning rate; checkpoint writing."""

import logging
import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import WeightAveraging
from lightning.pytorch.plugins.io import TorchCheckpointIO

from graphrerank.utils.checks import UserError
from graphrerank.utils.files import atomic_path, save_figure
from graphrerank.utils.progress import advance, progress_bar

LOGGER = logging.getLogger(__name__)


class AtomicCheckpoints(TorchCheckpointIO):
    """Write checkpoints atomically: to a temporary file in the target's folder, which is then renamed.

    Lightning writes to the system's temporary folder and moves the file. If that folder is on another file system, the
    move is a copy, and a full disk can replace a valid ``last.ckpt`` by an incomplete one.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write a checkpoint.

        Args:
            checkpoint: Training state to save.
            path: File to write.
            storage_options: Options for remote file systems, which are not supported. Must be None.

        Raises:
            ValueError: If ``storage_options`` is not None.
        """
        if storage_options is not None:
            raise UserError(f"`storage_options` must be None for a local checkpoint, got {storage_options!r}")
        with atomic_path(Path(path)) as temporary:
            torch.save(checkpoint, temporary)


class EpochTable(L.Callback):
    """Show a progress bar during each epoch, and log the epoch's metrics as a row of a table.

    If a row is wider than the terminal (``COLUMNS``, or 80), it is logged as a list of names and numbers instead. In
    distributed training, only the first process shows the table. Lightning's own progress bar must be disabled.
    """

    def __init__(self) -> None:
        self._header: list[str] = []
        self._bar = ExitStack()
        self._begin = 0.0

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the progress bar over the batches of the epoch.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that is trained.
        """
        self._begin = time.perf_counter()
        if trainer.is_global_zero:
            batches = trainer.num_training_batches
            label = f"epoch {trainer.current_epoch + 1} of {trainer.max_epochs}"
            self._bar.enter_context(progress_bar(label, int(batches) if batches != float("inf") else 0))

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Advance the progress bar by one batch.

        Args:
            trainer: Trainer of the run.
        """
        advance(int(trainer.is_global_zero))

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log the row of the epoch. The header is logged first if the columns have changed.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that is trained.
        """
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
        """Remove the progress bar.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that is trained.
            exception: Exception that ended the training.
        """
        self._bar.close()


def _shown(metrics: Any) -> dict[str, str]:
    """Format the metrics of an epoch, training before validation and losses first. Metrics of steps are skipped.

    Example:
        >>> _shown({"train/loss_step": 2.0, "train/loss_epoch": 1.23456, "val/ndcg@10": 0.5})
        {'train/loss': '1.2346', 'val/ndcg@10': '0.5000'}
    """
    names = {name.removesuffix("_epoch"): name for name in metrics if not name.endswith("_step") and name != "v_num"}
    order = sorted(names, key=lambda name: (not name.startswith("train/"), not name.endswith("loss"), name))
    return {name: f"{float(metrics[names[name]]):.4f}" for name in order}


class GradientNorm(L.Callback):
    """Log the Euclidean norm of the gradient of all parameters at each optimiser step, before clipping.

    The log key is ``train/grad_norm``. Nothing is computed if the trainer has no logger. The callback does not change
    the training result.
    """

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Log the norm over all parameters that have a gradient.

        Args:
            trainer: Trainer of the run.
            pl_module: Module whose gradients are measured.
            optimizer: Optimiser that is about to step.
        """
        if trainer.loggers:
            gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
            pl_module.log("train/grad_norm", torch.nn.utils.get_total_norm(gradients))


class LearningRate(L.Callback):
    """Log the learning rate of each optimiser step as ``train/lr``.

    Lightning's ``LearningRateMonitor`` is not used because it fails without a logger, and because it logs one curve per
    parameter group, although our groups differ only in weight decay. This callback logs an additional key, such as
    ``train/lr_group_2``, only for a group whose rate differs from that of the first group.
    """

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Log the learning rates of the coming optimiser step.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that logs the rates.
            optimizer: Optimiser that is about to step.
        """
        if trainer.loggers:
            rates = [float(group["lr"]) for group in optimizer.param_groups]
            pl_module.log("train/lr", rates[0])
            for number, rate in enumerate(rates[1:], 2):
                if rate != rates[0]:
                    pl_module.log(f"train/lr_group_{number}", rate)


class TailAveraging(WeightAveraging):
    """Average the weights of all optimiser steps in the last part of a training (stochastic weight averaging).

    Validation and checkpoints use the average, so that the best epoch, the saved model and its evaluation are those of
    the average. Before the average begins, they use the current weights. A resumed training continues the average.

    Source: Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization", 2018. *Differences
    from the paper:* weights are averaged at each step instead of at the end of each epoch, because our trainings have
    few epochs, and the learning rate is that of the schedule. Lightning's ``StochasticWeightAveraging`` is not used
    because its average is neither validated nor saved in ``best.ckpt``.

    Args:
        start: Share of the training after which the average begins, in [0, 1).

    Raises:
        ValueError: If ``start`` is outside [0, 1).

    Example:
        >>> TailAveraging(start=0.75).start
        0.75
    """

    def __init__(self, start: float = 0.5) -> None:
        if not 0 <= start < 1:
            raise UserError(f"`start` must be in [0, 1), got {start}")
        super().__init__()
        self.start = start

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Update the average, which is a copy of the current weights until the average begins.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that is trained.
            outputs: Result of the training step.
            batch: Batch of the step.
            batch_idx: Index of the batch in the epoch.

        Raises:
            ValueError: If the training has no end.
        """
        total_steps = trainer.estimated_stepping_batches
        if total_steps == float("inf"):
            raise UserError("`max_epochs` or `max_steps` must be set to average the last part of a training, got none")
        average = self._average_model
        if average is not None and trainer.global_step - 1 <= self.start * total_steps:
            average.n_averaged.zero_()  # an average of no weights is replaced by the next ones
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)


class LearningCurves(L.Callback):
    """Record all logged metrics of each epoch, and plot them as learning curves after each epoch.

    The metrics are saved in checkpoints, so that the curves of a resumed training run are complete.

    Args:
        path: PNG file to write. No file is written in a ``fast_dev_run``.
        panels: Log keys of each panel, from left to right. A key that is never logged has no curve.

    Attributes:
        history: Metrics of each epoch by log key. Key ``epoch`` has the number of the epoch, starting at 1.

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
        """Record the metrics of the epoch and update the plot.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that is trained.
        """
        row = {"epoch": float(trainer.current_epoch + 1)}
        row |= {key: float(metric) for key, metric in trainer.callback_metrics.items()}
        self.history.append(row)
        if trainer.is_global_zero and not trainer.fast_dev_run:
            self._draw()

    def state_dict(self) -> dict[str, Any]:
        """Return the history, which Lightning saves in the checkpoint."""
        return {"history": self.history}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the history of the resumed training run.

        Args:
            state_dict: State that :meth:`state_dict` returned.
        """
        self.history = list(state_dict["history"])

    def _draw(self) -> None:
        from matplotlib.figure import Figure  # imported here because it is slow; Figure works without a display

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
