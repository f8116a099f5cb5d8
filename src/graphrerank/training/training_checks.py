"""Checks of a running training: monitored measures, NaN losses, constant scores, and results below their baselines."""

import logging
import math
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor

from graphrerank.core import CandidateGraphs
from graphrerank.metrics import parse_measure
from graphrerank.utils.checks import UserError, similar_name

LOGGER = logging.getLogger(__name__)

RETRIEVER = "retriever/"  # prefix of the log keys of the retriever's ranking
VALIDATION = "val/"  # prefix of the log keys of the model
#: Beginning of the names of measures by that of their log keys, which are in lower case. A beginning that contains
#: another one precedes it.
MEASURES = {"ndcg": "nDCG", "r_cap": "R_cap", "pr": "PR", "cr": "CR", "mrr": "MRR", "r": "R"}
#: Relative decrease of the training loss below which it counts as not falling.
SMALLEST_DECREASE = 1e-3
#: Number of batches between two checks of the loss on a GPU, each of which waits for the device.
BATCHES_PER_CHECK = 20


def higher_is_better(key: str) -> bool | None:
    """Return whether a higher number is better for a log key.

    Args:
        key: Log key, such as ``val/ndcg@10`` or ``val/loss``.

    Returns:
        True for ranking measures, AUC and accuracy, False for losses, and None for other keys.

    Example:
        >>> [higher_is_better(key) for key in ("val/ndcg@10", "val/towns/pr@5/multi", "val/loss", "train/lr")]
        [True, True, False, None]
    """
    names = key.split("/")
    if any(name == "loss" or name.startswith("loss_") or name.endswith("_loss") for name in names):
        return False
    return True if any(name in ("auc", "accuracy") or _is_measure(name) for name in names) else None


def _is_measure(name: str) -> bool:
    """Return whether the last component of a log key is a ranking measure."""
    for prefix, measure in MEASURES.items():
        if name.startswith(prefix):
            try:
                parse_measure(measure + name.removeprefix(prefix))
            except UserError:
                return False
            return True
    return False


def check_modes(callbacks: Mapping[str, Callback] | Iterable[Callback]) -> None:
    """Check that each callback with ``monitor`` has the ``mode`` that fits the monitored measure.

    Args:
        callbacks: Callbacks of a training, or callbacks by name. Only checkpoints and early stopping are checked.

    Raises:
        ValueError: If a callback would keep the worst epoch.

    Example:
        >>> check_modes([EarlyStopping(monitor="val/ndcg@10", mode="max"), ModelCheckpoint(monitor="val/loss")])
    """
    if isinstance(callbacks, Mapping):
        named = [(f"callbacks.{name}", callback) for name, callback in callbacks.items()]
    else:
        named = [(type(callback).__name__, callback) for callback in callbacks]
    for name, callback in named:
        if isinstance(callback, ModelCheckpoint | EarlyStopping) and callback.monitor is not None:
            _check_mode(name, callback.monitor, callback.mode)


def _check_mode(name: str, monitor: str, mode: str) -> None:
    is_higher_better = higher_is_better(monitor)
    if is_higher_better is None or mode == ("max" if is_higher_better else "min"):
        return
    needed, direction = ("max", "higher") if is_higher_better else ("min", "lower")
    raise UserError(f"`{name}.mode` must be {needed} for monitor={monitor}, because {direction} is better, got {mode}")


class TrainingChecks(L.Callback):
    """Stop a training that cannot succeed, and warn about one that did not.

    Every :class:`~graphrerank.training.session.TrainingSession` adds this callback with its defaults, unless the caller
    passes one. A training stops with an error before the first epoch if a monitored measure is not logged, and later if
    the training loss is NaN or infinite, or if all candidates of every validation query have equal scores. At the end,
    a line warns if the training loss did not fall, or if the best epoch ranks worse than the initial model or the
    retriever. The initial model is measured if the trainer validates the whole split before the first step
    (``num_sanity_val_steps=-1``), which is the default.

    Args:
        stop_at_equal_scores: Whether a training stops if all candidates of every validation query have equal scores.

    Attributes:
        references: Measures of the ``initial`` model and of the ``retriever`` on the validation split, by log key of
            the trained model. Empty if they were not measured.

    Example:
        >>> TrainingChecks().references
        {'initial': {}, 'retriever': {}}
    """

    def __init__(self, *, stop_at_equal_scores: bool = True) -> None:
        self.stop_at_equal_scores = stop_at_equal_scores
        self.references: dict[str, dict[str, float]] = {"initial": {}, "retriever": {}}
        self._epoch_losses: list[list[float]] = []  # mean training losses of the halves of each epoch
        self._losses: list[Tensor] = []  # of the current half epoch
        self._num_unchecked = 0
        self._num_lists = self._num_varied = 0  # validation queries, and those with different scores

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start to record the losses of an epoch.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that is trained.
        """
        self._losses, self._num_unchecked = [], 0
        self._epoch_losses.append([])

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Check the loss of a batch. On a GPU, the losses of several batches are checked together.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that is trained.
            outputs: Result of the training step.
            batch: Batch of the step.
            batch_idx: Index of the batch in the epoch.

        Raises:
            ValueError: If a loss is NaN or infinite.
        """
        if not isinstance(outputs, Mapping) or "loss" not in outputs:
            return
        self._losses.append(outputs["loss"].detach())
        self._num_unchecked += 1
        if self._losses[-1].device.type == "cpu" or self._num_unchecked >= BATCHES_PER_CHECK:
            self._check_losses(trainer)
        if 2 * batch_idx < trainer.num_training_batches <= 2 * (batch_idx + 1):
            self._end_half()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Check the remaining losses of the epoch.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that is trained.
        """
        self._check_losses(trainer)
        self._end_half()

    def _check_losses(self, trainer: L.Trainer) -> None:
        """Raise an error if a loss since the last check is not finite, in all processes of the training."""
        unchecked = self._losses[len(self._losses) - self._num_unchecked :]
        self._num_unchecked = 0
        is_finite = not unchecked or bool(torch.isfinite(torch.stack(unchecked)).all())
        if trainer.strategy.reduce_boolean_decision(is_finite, all=True):
            return
        raise UserError(_not_finite("the training loss is", trainer))

    def _end_half(self) -> None:
        """Compute the mean loss of half an epoch."""
        if self._losses:
            self._epoch_losses[-1].append(float(torch.stack(self._losses).float().mean()))
        self._losses, self._num_unchecked = [], 0

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Check the weights once per validation.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that is trained.

        Raises:
            ValueError: If a weight is NaN or infinite, or so large that scores would be.
        """
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            parameters = [parameter.detach() for parameter in pl_module.parameters()]
            if parameters and not bool(torch.isfinite(torch.nn.utils.get_total_norm(parameters))):
                raise UserError(_not_finite("the weights are", trainer))

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Reset the counts of validation queries.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that is trained.
        """
        self._num_lists = self._num_varied = 0

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count the queries whose candidates have different scores.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that is trained.
            outputs: Result of the validation step. Only used if it has the key ``scores``.
            batch: Batch of the step.
            batch_idx: Index of the batch.
            dataloader_idx: Index of the data set.
        """
        if isinstance(batch, CandidateGraphs) and isinstance(outputs, Mapping) and "scores" in outputs:
            lists, varied = count_varied(batch, outputs["scores"])
            self._num_lists += lists
            self._num_varied += varied

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Check the monitored measures before the first epoch, and the scores after each validation.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that is trained.

        Raises:
            ValueError: If a monitored measure is not logged, or all candidates of every query have equal scores.
        """
        if trainer.sanity_checking:
            self._check_monitors(trainer)
            is_initial = trainer.global_step == 0  # a resumed training has the references of its first start
            if is_initial and trainer.num_sanity_val_steps == float("inf"):  # the whole split, as after each epoch
                self._record_references(trainer.callback_metrics)
        elif trainer.state.fn == TrainerFn.FITTING:
            self._check_scores(trainer)

    def _check_monitors(self, trainer: L.Trainer) -> None:
        logged = list(trainer.callback_metrics)
        monitors = [
            (type(callback).__name__, callback.monitor, callback.mode)
            for callback in trainer.callbacks
            if isinstance(callback, ModelCheckpoint | EarlyStopping) and callback.monitor is not None
        ]
        monitors += [
            (type(config.scheduler).__name__, config.monitor, config.scheduler.mode)
            for config in trainer.lr_scheduler_configs
            if config.reduce_on_plateau and config.monitor is not None
        ]
        for name, monitor, mode in monitors:
            similar = similar_name(monitor, logged)
            is_missing = monitor not in logged and not monitor.startswith("train/")  # training has not begun
            if is_missing and (monitor.startswith("val") or similar is not None):
                advice = f"The measures are {', '.join(logged)}" if similar is None else f"Did you mean {similar!r}?"
                raise UserError(f"`{name}.monitor` must be a logged measure, got {monitor!r}. {advice}")
            _check_mode(name, monitor, mode)

    def _record_references(self, metrics: Mapping[str, Tensor]) -> None:
        for key, metric in metrics.items():
            if key.startswith(VALIDATION):
                self.references["initial"][key] = float(metric)
            elif key.startswith(RETRIEVER):
                self.references["retriever"][VALIDATION + key.removeprefix(RETRIEVER)] = float(metric)

    def _check_scores(self, trainer: L.Trainer) -> None:
        if not self.stop_at_equal_scores:
            return
        has_lists = trainer.strategy.reduce_boolean_decision(self._num_lists > 0, all=False)
        has_varied = trainer.strategy.reduce_boolean_decision(self._num_varied > 0, all=False)
        if has_lists and not has_varied:
            raise UserError(
                "all candidates of each validation query have equal scores after epoch "
                f"{trainer.current_epoch + 1}, so the model ranks nothing. Try a lower learning rate, or loss=listwise"
            )

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Warn if the loss did not fall, or if the best epoch ranks worse than the initial model or the retriever.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that is trained.
        """
        if not trainer.is_global_zero or trainer.fast_dev_run:
            return
        for line in [*self._loss_warnings(), *self._baseline_warnings(trainer)]:
            LOGGER.warning(line)

    def _loss_warnings(self) -> list[str]:
        epochs = [losses for losses in self._epoch_losses if losses]
        if len(epochs) > 1:
            losses, period = [fmean(losses) for losses in epochs], "epoch"
        else:
            losses, period = (epochs[0] if epochs else []), "half of the epoch"
        if len(losses) < 2 or losses[0] - losses[-1] >= SMALLEST_DECREASE * abs(losses[0]):
            return []
        return [
            f"the training loss did not fall: it is {losses[0]:.4f} in the first {period} and {losses[-1]:.4f} in the "
            "last one. Try a higher learning rate, more epochs, or another loss"
        ]

    def _baseline_warnings(self, trainer: L.Trainer) -> list[str]:
        best = next((each for each in _checkpoints(trainer) if each.best_model_score is not None), None)
        if best is None or best.monitor is None or (is_higher_better := higher_is_better(best.monitor)) is None:
            return []
        key, score = best.monitor, float(best.best_model_score or 0.0)
        lines = []
        for name, advice in (
            ("initial", "The training made the ranking worse. Try a lower learning rate, or divergence=0.15"),
            ("retriever", "Try to start from a trained checkpoint (start=base), or divergence=0.15"),
        ):
            reference = self.references[name].get(key, math.nan)
            if (score < reference - 1e-6) if is_higher_better else (score > reference + 1e-6):
                whose = "the initial model" if name == "initial" else "the retriever"
                lines.append(f"{key} of the best epoch is {score:.4f}, and of {whose} {reference:.4f}. {advice}")
        return lines

    def state_dict(self) -> dict[str, Any]:
        """Return the losses and the baselines, which Lightning saves in checkpoints."""
        return {"epoch_losses": self._epoch_losses, "references": self.references}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the losses and the baselines of the resumed training.

        Args:
            state_dict: State that :meth:`state_dict` returned.
        """
        self._epoch_losses, self.references = list(state_dict["epoch_losses"]), state_dict["references"]


def _not_finite(what: str, trainer: L.Trainer) -> str:
    rates = [float(group["lr"]) for optimizer in trainer.optimizers for group in optimizer.param_groups]
    return (
        f"{what} NaN or infinite at step {trainer.global_step} (epoch {trainer.current_epoch + 1}). Try a lower "
        f"learning rate (now {max(rates):.2g}), gradient_clip_val=1.0 or precision=32-true of the trainer; "
        "debug=anomaly (detect_anomaly=True of the trainer) names the operation"
    )


def _checkpoints(trainer: L.Trainer) -> list[ModelCheckpoint]:
    return [each for each in trainer.checkpoint_callbacks if isinstance(each, ModelCheckpoint) and each.monitor]


def count_varied(graphs: CandidateGraphs, scores: Tensor) -> tuple[int, int]:
    """Count the queries with several candidates, and those of them whose candidates have different scores.

    Args:
        graphs: Batch of candidates.
        scores: Scores ``[N]`` of the candidates.

    Returns:
        Both counts. NaN differs from every score.
    """
    highest = graphs.to_padded(scores, fill=-math.inf).amax(1)
    lowest = graphs.to_padded(scores, fill=math.inf).amin(1)
    has_several = graphs.ptr.diff() > 1
    return int(has_several.sum()), int((has_several & (highest != lowest)).sum())
