"""The base of every LightningModule that this project trains: optimiser, learning rate and random numbers."""

import math
from typing import Any

import lightning as L
import torch
from torch import nn

from graphrerank.utils.checks import check_not_negative, check_positive


class TrainingModule(L.LightningModule):
    """Train ``model`` with AdamW, a linear warm-up and a cosine to zero at the last step, in any ``lightning.Trainer``.

    A subclass defines ``training_step``, and ``validation_step`` where the training is validated. Its weights are saved
    as ``model.<name>``, which :func:`~graphrerank.models.checkpoint.load_checkpoint` reads. Before each batch torch is
    reseeded from ``seed``, the step, the batch within an accumulated step and the process. A resumed training therefore
    ends with the same weights as an unbroken one, if its data module serves the same batches.

    Args:
        model: Model to train.
        learning_rate: Peak learning rate, after the warm-up. Must be positive.
        weight_decay: AdamW's weight decay of matrices. Biases, norms and scalars are not decayed.
        warmup_steps: Number of optimiser steps of the linear warm-up. 0 starts at the peak.
        seed: Seed of all random numbers that the training draws, such as those of dropout.

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
        """Seed torch for this batch, so that a resumed training draws the random numbers of an unbroken one."""
        part = batch_idx % self.trainer.accumulate_grad_batches
        torch.manual_seed(self.seed * 1_000_003 + self.global_step + (part << 32) + (self.global_rank << 40))

    def configure_optimizers(self) -> dict[str, Any]:
        """Build AdamW and its schedule over the trainer's optimiser steps."""
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
        """Return the learning rate of a step, as a factor of the peak."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, total - self.warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
