"""Base class of all Lightning modules of this project: optimiser, learning-rate schedule and seeding."""

import math
from typing import Any

import lightning as L
import torch
from torch import nn

from graphrerank.utils.checks import check_not_negative, check_positive


class TrainingModule(L.LightningModule):
    """Train ``model`` with AdamW, a linear warm-up and a cosine decay to zero, in any ``lightning.Trainer``.

    A subclass defines ``training_step`` and, if the training is validated, ``validation_step``. The weights are saved
    as ``model.<name>``, the form that :func:`~graphrerank.models.checkpoint.load_checkpoint` expects. Before each
    batch, torch is reseeded from ``seed``, the step, the batch within an accumulated step, and the process. A resumed
    training therefore ends with the same weights as an uninterrupted one if its data module serves the same batches.

    Args:
        model: Model to train.
        learning_rate: Peak learning rate, reached at the end of the warm-up. Must be positive.
        weight_decay: Weight decay of AdamW. Applied to weight matrices only, not to biases, norms or scalars.
        warmup_steps: Number of optimiser steps of the linear warm-up. 0 disables the warm-up.
        seed: Seed of all random numbers of the training, such as those of dropout.

    Raises:
        ValueError: If ``learning_rate`` is not positive, or ``weight_decay`` or ``warmup_steps`` is negative.

    Example:
        >>> class Regression(TrainingModule):
        ...     def training_step(self, batch, batch_idx):
        ...         x, y = batch
        ...         return torch.nn.functional.mse_loss(self.model(x), y)
        >>> Regression(nn.Linear(2, 1), learning_rate=0.1).warmup_steps
        100
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.01,
        warmup_steps: int = 100,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_positive(learning_rate=learning_rate)
        check_not_negative(weight_decay=weight_decay, warmup_steps=warmup_steps)
        self.model = model
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.warmup_steps = warmup_steps
        self.seed = seed

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Seed torch for the batch, so that resumed and uninterrupted training runs use the same random numbers.

        Args:
            batch: Batch of the data module. Ignored.
            batch_idx: Index of the batch in the epoch.
        """
        part = batch_idx % self.trainer.accumulate_grad_batches
        torch.manual_seed(self.seed * 1_000_003 + self.global_step + (part << 32) + (self.global_rank << 40))

    def configure_optimizers(self) -> dict[str, Any]:
        """Return AdamW and a learning-rate schedule over all optimiser steps of the trainer."""
        parameters = list(self.model.parameters())
        groups: list[dict[str, Any]] = [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": self.weight_decay},
            {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=self.learning_rate)
        total = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self._rate(step, total))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _rate(self, step: int, total: int) -> float:
        """Return the learning rate of a step, relative to the peak learning rate."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, total - self.warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
