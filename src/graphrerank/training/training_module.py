"""Base class of all Lightning modules of this project: optimiser, learning-rate schedule and seeding."""

import inspect
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import lightning as L
import torch
from torch import nn

from graphrerank.models.checkpoint import read_lightning_checkpoint
from graphrerank.training.hyperparameters import build_checkpoint_model, build_loss, is_plain, model_entry
from graphrerank.training.optimizers import OptimizerFactory, ParameterGroups, build_optimizer, count_parameters
from graphrerank.training.schedules import SchedulerFactory, bounded_warmup, build_schedules, cosine
from graphrerank.utils.checks import UserError, check_not_negative, check_positive

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
        warmup_steps: Number of optimiser steps of the linear warm-up. 0 disables the warm-up. It is
            shortened to at most a tenth of the training.
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
        self.save_settings(
            model=model_entry(model),
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            warmup_steps=warmup_steps,
            parameter_groups=parameter_groups,
            seed=seed,
        )

    def save_settings(self, **settings: Any) -> None:
        """Add arguments of the constructor to the hyperparameters, which checkpoints contain.

        A subclass calls this method for its own arguments, so that :meth:`load_from_checkpoint` passes them again.

        Args:
            settings: Arguments by name. Those that are not plain data are left out, because loading them would unpickle
                code.
        """
        plain = {name: setting for name, setting in settings.items() if is_plain(setting)}
        self.save_hyperparameters(plain, logger=False)  # the logger receives the manifest of the run

    @classmethod
    def load_from_checkpoint(
        cls,
        checkpoint_path: str | Path,
        map_location: Any = None,
        hparams_file: str | Path | None = None,
        strict: bool | None = None,
        weights_only: bool | None = True,
        **settings: Any,
    ) -> Self:
        """Build the module of a checkpoint, with its weights. No code from the file is executed.

        The model is built from its registered name and its settings in the checkpoint, or from the manifest of the run.

        Args:
            checkpoint_path: Path of a ``.ckpt`` file.
            map_location: Device of the weights. If None, the device on which they were saved.
            hparams_file: File of hyperparameters that replace those of the checkpoint. If None, there is none.
            strict: Whether the weights must fit the module exactly. If None, they must.
            weights_only: Must be True or None.
            settings: Arguments of the constructor that replace those of the checkpoint, such as ``model``, which is
                required for a model object whose class is not a subclass of
                :class:`~graphrerank.core.CheckpointModel`, or ``loss``, which is required for a loss that is not in
                :mod:`graphrerank.losses`.

        Returns:
            Module in training mode, as Lightning returns it. ``Trainer.test`` and ``Trainer.predict`` switch to
            evaluation.

        Raises:
            UserError: If the file does not exist or is unsafe, or if the model or the loss must be passed.
        """
        if weights_only is False:
            raise UserError("`weights_only` must be True, because a checkpoint could execute code otherwise, got False")
        path = Path(checkpoint_path)
        saved = read_lightning_checkpoint(path).get(cls.CHECKPOINT_HYPER_PARAMS_KEY, {})
        if "model" not in settings:
            settings["model"] = build_checkpoint_model(path, saved.get("model"))
        if "loss" in inspect.signature(cls.__init__).parameters and "loss" not in settings:
            settings["loss"] = build_loss(saved.get("loss"))
        module: Self = super().load_from_checkpoint(
            path, map_location, hparams_file, strict, weights_only=True, **settings
        )
        return module

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # Lightning's logging cannot be traced
    def log(self, *args: Any, **kwargs: Any) -> None:
        """Log a number, as :meth:`lightning.LightningModule.log` does, also in a module compiled by ``torch.compile``.

        Args:
            args: Positional arguments of Lightning's method.
            kwargs: Keyword arguments of Lightning's method.
        """
        super().log(*args, **kwargs)

    def on_fit_start(self) -> None:
        """Refuse a precision in which the optimiser divides by zero.

        Raises:
            UserError: If the weights of the trainer are float16.
        """
        if self.dtype == torch.float16:
            raise UserError(
                "`precision` must be 32-true, 64-true, bf16-true, bf16-mixed or 16-mixed, got 16-true, in which AdamW "
                "divides by zero"
            )

    def on_train_start(self) -> None:
        """Set the learning rate of the next step from the schedule, which is longer if a training has more epochs."""
        for configuration in self.trainer.lr_scheduler_configs:
            scheduler = configuration.scheduler
            if isinstance(scheduler, torch.optim.lr_scheduler.LambdaLR):
                rates = zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)
                for group, (base, factor) in zip(scheduler.optimizer.param_groups, rates, strict=True):
                    group["lr"] = base * factor(scheduler.last_epoch)

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
        total, trained = count_parameters(self.model)
        parameters = f"{total:,}" if trained == total else f"{trained:,} of {total:,}"
        steps = "" if math.isinf(total_steps) else f" for {_count(total_steps, 'step')}"
        steps += f" ({_count(self.trainer.num_training_batches, 'batch', 'batches')} per epoch)"
        LOGGER.info("training %s parameters%s with %s", parameters, steps, type(optimizer).__name__)
        if warmup_steps < self.warmup_steps:
            LOGGER.info(
                "warm-up shortened from %d to %d steps, a tenth of the training", self.warmup_steps, warmup_steps
            )


def _count(number: float, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun."""
    return f"{number:,} {singular if number == 1 else plural or f'{singular}s'}"
