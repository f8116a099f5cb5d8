"""Draw a run's learning curves as a PNG, also across a resume."""

from pathlib import Path
from typing import Any

import lightning as L

from graphrerank.files import save_figure


class LearningCurves(L.Callback):
    """Keep every logged number per epoch, also in checkpoints, and redraw one PNG, a panel per list of log keys."""

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
