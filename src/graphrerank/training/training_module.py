"""Base class of all Lightning modules of this project: optimiser, learning-rate schedule and seeding."""

import logging
import math
from collections.abc import Mapping
from typing import Any

import lightning as L
import torch
from torch import nn

from graphrerank.training.optimizers import OptimizerFactory, ParameterGroups, build_optimizer
from graphrerank.training.schedules import SchedulerFactory, bounded_warmup, build_schedules, cosine
from graphrerank.utils.checks import check_not_negative, check_positive

LOGGER = logging.getLogger(__name__)


class TrainingModule(L.LightningModule):
    """Train ``model`` in any ``lightning.Trainer``, by default with AdamW, a linear warm-up and a cosine decay to zero.

    A subclass defines ``training_step`` and, if the training is validated, ``validation_step``. The weights are saved
    as ``model.<name>``, the form that :func:`~graphrerank.models.checkpoint.load_checkpoint` expects. Before each
    batch, torch is reseeded from ``seed``, the step, the batch within an accumulated step, and the process. A resumed
    training therefore ends with the same weights as an uninterrupted one if its data module serves the same batches.

    Args:
        model: Model to train.
        learning_rate: Peak learning rate, reached at the end of the warm-up. Must be positive.
        weight_decay: Weight decay. Applied to weight matrices only, not to biases, norms or scalars.
        warmup_steps: Number of optimiser steps of the linear warm-up. 0 disables the warm-up. A warm-up that takes more
            than a fifth of the training is shortened to a tenth of it.
        optimizer: Callable that receives parameter groups and returns an optimiser, such as ``torch.optim.SGD`` or
            ``functools.partial(torch.optim.SGD, momentum=0.9)``. Keywords ``lr`` and ``weight_decay`` of a partial
            replace ``learning_rate`` and ``weight_decay``.
        scheduler: Callable that receives the optimiser and returns a learning-rate schedule: a function of
            :mod:`graphrerank.training.schedules`, or a class of ``torch.optim.lr_scheduler``.
        parameter_groups: Learning rate, or mapping with ``learning_rate`` and ``weight_decay``, by prefix of the names
            of the model's parameters, such as ``{"lin_in": 1e-4}``. All other parameters use the settings above. If
            None, all parameters do.
        seed: Seed of all random numbers of the training, such as those of dropout.

    Raises:
        ValueError: If ``learning_rate`` is not positive, or ``weight_decay`` or ``warmup_steps`` is negative. An
            invalid prefix in ``parameter_groups`` is refused when the training starts.

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
        optimizer: OptimizerFactory = torch.optim.AdamW,
        scheduler: SchedulerFactory = cosine,
        parameter_groups: ParameterGroups | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_positive(learning_rate=learning_rate)
        check_not_negative(weight_decay=weight_decay, warmup_steps=warmup_steps)
        self.model = model
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.warmup_steps = warmup_steps
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.parameter_groups = parameter_groups
        self.seed = seed

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Seed torch for the batch, so that resumed and uninterrupted training runs use the same random numbers.

        Args:
            batch: Batch of the data module. Ignored.
            batch_idx: Index of the batch in the epoch.
        """
        part = batch_idx % self.trainer.accumulate_grad_batches
        torch.manual_seed(self.seed * 1_000_003 + self.global_step + (part << 32) + (self.global_rank << 40))

    def configure_optimizers(self) -> tuple[list[torch.optim.Optimizer], list[dict[str, Any]]]:
        """Return the optimiser and the learning-rate schedules over all optimiser steps of the trainer."""
        optimizer = build_optimizer(
            self.optimizer,
            self.model,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            parameter_groups=self.parameter_groups,
            further=self.further_modules(),
        )
        total_steps = self.trainer.estimated_stepping_batches
        warmup_steps = bounded_warmup(self.warmup_steps, total_steps)
        self._describe(optimizer, total_steps, warmup_steps)
        batches = self.trainer.num_training_batches
        return [optimizer], build_schedules(
            self.scheduler,
            optimizer,
            total_steps=total_steps,
            warmup_steps=warmup_steps,
            steps_per_epoch=1 if math.isinf(batches) else int(batches),
        )

    def further_modules(self) -> Mapping[str, nn.Module]:
        """Return modules to train besides the model, by the prefix of their parameters' names. Empty by default."""
        return {}

    def _describe(self, optimizer: torch.optim.Optimizer, total_steps: float, warmup_steps: int) -> None:
        """Log the number of parameters and of steps, and the warm-up if it was shortened."""
        if not self.trainer.is_global_zero:
            return
        sizes = [(p.numel(), p.requires_grad) for p in self.model.parameters()]
        total, trained = sum(size for size, _ in sizes), sum(size for size, is_trained in sizes if is_trained)
        parameters = f"{total:,}" if trained == total else f"{trained:,} of {total:,}"
        batches = self.trainer.num_training_batches
        steps = "" if math.isinf(total_steps) else f" for {total_steps:,} steps ({batches:,} batches per epoch)"
        LOGGER.info("training %s parameters%s with %s", parameters, steps, type(optimizer).__name__)
        if warmup_steps < self.warmup_steps:
            LOGGER.info(
                "warm-up shortened from %d to %d steps, a tenth of the training", self.warmup_steps, warmup_steps
            )
