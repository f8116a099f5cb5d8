"""The progress of a training: a bar within each epoch, and a table with a row per epoch."""

import shutil
import time
from contextlib import ExitStack
from typing import Any

import lightning as L

from graphrerank.progress import advance, progress_bar


class EpochTable(L.Callback):
    """Print a row of the numbers that are logged for a progress bar after each epoch, under one header.

    Where a row is wider than the terminal (``COLUMNS``, or 80), each number stands behind its name.
    """

    def __init__(self) -> None:
        self._header: list[str] = []
        self._bar = ExitStack()
        self._begin = 0.0

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Show a bar over the epoch's batches."""
        self._begin = time.perf_counter()
        if trainer.is_global_zero:
            batches = trainer.num_training_batches
            label = f"epoch {trainer.current_epoch + 1} of {trainer.max_epochs}"
            self._bar.enter_context(progress_bar(label, int(batches) if batches != float("inf") else 0))

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Advance the bar."""
        advance(int(trainer.is_global_zero))

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Print the epoch's row, below the header where it is the first or has other columns."""
        self._bar.close()
        if not trainer.is_global_zero:
            return
        row = {"epoch": str(trainer.current_epoch + 1), **_shown(trainer.progress_bar_metrics)}
        row["seconds"] = f"{time.perf_counter() - self._begin:.1f}"
        line = "  ".join(f"{number:>{len(name)}}" for name, number in row.items())
        if len(line) > shutil.get_terminal_size().columns:
            line = ", ".join(f"{name} {number}" for name, number in row.items())
        elif list(row) != self._header:
            print("  ".join(row))
        self._header = list(row)
        print(line, flush=True)

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
