"""Lightning training of one model in a run folder, with trainer, callbacks, loggers, manifest and resuming.

Every training uses :class:`TrainingSession`. :class:`~graphrerank.training.trainer.RerankerTrainer` creates one for
rerankers and cross-encoder heads. Experiments that train their own models get a :class:`TrainingPlan` from their
command, which creates the sessions.
"""

import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import lightning as L
from lightning.pytorch.callbacks import Callback, ProgressBar
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from graphrerank.models.checkpoint import BEST
from graphrerank.models.manifest import read_manifest, write_manifest
from graphrerank.training.callbacks import EpochTable, LearningCurves
from graphrerank.training.defaults import default_callbacks, default_trainer_arguments, with_precision
from graphrerank.training.interruption import SaveOnSignal
from graphrerank.training.manifest import optimization_entries
from graphrerank.training.optimizers import accepted_arguments
from graphrerank.training.predictions import TrecRunWriter
from graphrerank.training.resume import LAST, FinishedTraining, finished_training, last_checkpoint
from graphrerank.training.training_checks import TrainingChecks, check_modes
from graphrerank.training.training_module import TrainingModule
from graphrerank.utils.checks import UserError
from graphrerank.utils.processes import is_first_process
from graphrerank.utils.quiet import quiet_lightning

LOGGER = logging.getLogger(__name__)
#: Arguments of ``lightning.Trainer``: a mapping overrides single defaults, a partial replaces all defaults.
TrainerArguments = Mapping[str, Any] | partial[L.Trainer]
#: Lightning callbacks: a sequence is added to the default callbacks, a mapping replaces them.
Callbacks = Sequence[Callback] | Mapping[str, Callback]
PRUNING = "pruning"  # name of the callback that reports to a trial of a hyperparameter search
# manifest entries that a training run adds
RESULTS = ("finished", "trained", "validation", "parameters", "optimizer", "scheduler")
# added entries that must be unchanged when a training run is resumed
RESUMED_RESULTS = ("optimizer", "scheduler")


class TrainingSession:
    """Train a model with ``lightning.Trainer`` in a run folder, or resume an interrupted training run.

    The model's folder is ``<run_dir>/<name>``. The training writes the manifest there, which records whether the
    training finished, and the files ``checkpoints/best.ckpt`` and ``checkpoints/last.ckpt``.

    Args:
        run_dir: Folder of the run.
        name: Name of the model.
        trainer: Arguments of ``lightning.Trainer`` that override
            :func:`~graphrerank.training.defaults.default_trainer_arguments`, or a ``functools.partial`` of
            ``lightning.Trainer`` that replaces them all. Callbacks and loggers are added to the partial. If None, the
            defaults are used.
        max_epochs: Maximum number of epochs. If None, the value in ``trainer`` is used.
        callbacks: A sequence of Lightning callbacks to add to
            :func:`~graphrerank.training.defaults.default_callbacks`, or a mapping from name to callback that replaces
            the default callbacks.
        logger: A Lightning logger or a sequence of loggers. If None, nothing is logged.
        resume: Folder of a training run, or one of its ``.ckpt`` files. An interrupted training continues where it
            stopped, and a finished one continues if the maximum number of epochs is larger than before. If None, a new
            training starts.
        saves_on_signal: Whether Ctrl+C and SIGTERM save the state before they stop the training.

    Raises:
        ValueError: If a callback monitors a measure with the wrong ``mode``.

    Attributes:
        folder: Folder of the model.
        history: All logged metrics of each epoch of :meth:`train`, recorded by the callback ``curves``. Empty without
            this callback.

    Example:
        >>> session = TrainingSession("runs/mine", "my_model", max_epochs=3)
        >>> session.folder.as_posix()
        'runs/mine/my_model'
    """

    def __init__(
        self,
        run_dir: str | Path,
        name: str,
        *,
        trainer: TrainerArguments | None = None,
        max_epochs: int | None = None,
        callbacks: Callbacks = (),
        logger: Any = None,
        resume: str | Path | None = None,
        saves_on_signal: bool = True,
    ) -> None:
        check_modes(callbacks)
        self.folder = Path(run_dir, name)
        self._saves_on_signal = saves_on_signal
        self._trainer: TrainerArguments = trainer or {}
        self._max_epochs = max_epochs
        self._callbacks = callbacks
        self._loggers = _as_list(logger)
        self._resume: str | Path | None = resume
        self._last: Path | None = None  # checkpoint to resume from
        self._continued_after: int | None = None  # number of epochs of a finished training that is trained further
        self.history: list[dict[str, float]] = []

    @property
    def best(self) -> Path:
        """Path of the checkpoint of the best epoch."""
        return self.folder / BEST

    def earlier_results(self, manifest: Mapping[str, Any], decisive: Sequence[str]) -> dict[str, Any]:
        """Find the checkpoint to resume from, and return the results of the training if it is not trained further.

        A finished training is trained further if the maximum number of epochs is larger than before.

        Args:
            manifest: Manifest of the current training run.
            decisive: Names of the manifest entries that must be equal in the training to resume.

        Returns:
            If the training to resume has finished and has no more epochs, its manifest entries ``finished``,
            ``trained`` and, if it was validated, ``validation``; its weights are in :attr:`best`, and :meth:`train`
            must not be called. Empty for a run that continues from its last checkpoint, and for a new run.

        Raises:
            ValueError: If a decisive entry differs. The message names the entry.
        """
        self._last = last_checkpoint(self._resume, self.folder, manifest, decisive)
        before = {} if self._last is None else read_manifest(self.folder).content
        if self._last is None or not before.get("finished"):
            return {}
        finished = finished_training(before, self._last)
        _, arguments = self._trainer_arguments()
        if finished.continues(arguments.get("max_epochs"), arguments.get("max_steps", -1)):
            self._continued_after = finished.epochs
            return {}
        LOGGER.info(finished.explain(self.folder.name, self.folder.parent))
        return {key: before[key] for key in RESULTS if key in before}

    @quiet_lightning()
    def train(
        self, module: L.LightningModule, data: L.LightningDataModule, manifest: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Train until the trainer or a callback stops. A resumed training run continues from its last checkpoint.

        Args:
            module: Module to train. Its attribute ``model`` is the network.
            data: Data module with the batches for training and validation.
            manifest: Manifest of the training, with ``finished`` false. It is written before the first step.

        Returns:
            The manifest with ``finished`` true, which is also written to the folder. The entries ``parameters``,
            ``optimizer``, ``scheduler`` and ``trained`` (number of epochs and steps) are added. If the best epoch was
            selected by a measure, entry ``validation`` has its name (``measure``), ``mode`` and ``score``, and the
            scores of the ``initial`` model and of the ``retriever`` if they were measured.

        Raises:
            ValueError: If a resumed training run has another optimiser or schedule than before.
            KeyboardInterrupt: If the training was stopped by Ctrl+C. Its state was saved, and it can be resumed.
        """
        manifest = {**manifest, **optimization_entries(module)}
        if self._last is not None:
            before = read_manifest(self.folder).content
            last_checkpoint(self._resume, self.folder, manifest, [key for key in RESUMED_RESULTS if key in before])
        if is_first_process():
            write_manifest(self.folder, manifest)
        trainer = self._build_trainer()
        self._describe_continuation(trainer, module)
        last = self.folder / LAST
        modified_before = _modified(last)
        for logger in trainer.loggers:
            logger.log_hyperparams(manifest)
        self._fit(trainer, module, data)
        is_left_over = modified_before is not None and _modified(last) == modified_before
        if is_left_over and trainer.is_global_zero:
            last.unlink()  # an interruption wrote it, and the callbacks of this training do not save the last state
        if not trainer.strategy.broadcast(self.best.is_file()):  # with fast_dev_run or without validation
            trainer.save_checkpoint(self.best)
        if is_first_process():
            checkpoints = cast(Any, trainer.checkpoint_callback)
            if checkpoints is not None and checkpoints.best_model_score is not None:
                score = float(checkpoints.best_model_score)
                manifest["validation"] = {
                    "measure": checkpoints.monitor,
                    "mode": checkpoints.mode,
                    "score": score,
                    **_references(trainer, checkpoints.monitor),
                }
            manifest["finished"] = True
            manifest["trained"] = _trained(trainer)._asdict()
            write_manifest(self.folder, manifest)
        curves = [callback for callback in trainer.callbacks if isinstance(callback, LearningCurves)]
        self.history = curves[0].history if curves else []
        if any(isinstance(callback, TrecRunWriter) for callback in trainer.callbacks):
            trainer.predict(module, data, return_predictions=False, ckpt_path=self.best, weights_only=True)
        return manifest

    def _describe_continuation(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Log which epochs a finished training adds, and what its learning rate does."""
        if self._continued_after is None or not trainer.is_global_zero:
            return
        epochs = "more epochs" if trainer.max_epochs in (None, -1) else f"epochs up to {trainer.max_epochs}"
        line = f"{self.folder.name} continues after epoch {self._continued_after} with {epochs}"
        if isinstance(module, TrainingModule) and accepted_arguments(module.scheduler, {"total_steps": 0}):
            line += (
                ". The learning rate follows the schedule of the longer training from here on, so the result differs "
                "from that of an unbroken training. With scheduler=constant it is the same"
            )
        LOGGER.info(line)

    def _build_trainer(self) -> L.Trainer:
        """Build the trainer with its callbacks and loggers, and with an :class:`EpochTable` as progress bar."""
        create, arguments = self._trainer_arguments()
        callbacks = self._all_callbacks()
        if not any(isinstance(callback, TrainingChecks) for callback in callbacks):
            callbacks.append(TrainingChecks())
        if not any(isinstance(callback, ProgressBar) for callback in callbacks):
            if arguments.pop("enable_progress_bar", True):
                callbacks.append(EpochTable())
            arguments["enable_progress_bar"] = False
        if self._saves_on_signal:
            callbacks.append(SaveOnSignal(self.folder / LAST))
        return create(**with_precision(arguments) | {"callbacks": callbacks, "logger": self._loggers})

    def _trainer_arguments(self) -> tuple[Callable[..., L.Trainer], dict[str, Any]]:
        """Return the constructor of the trainer and its arguments, without callbacks and loggers."""
        create: Callable[..., L.Trainer] = L.Trainer
        if isinstance(self._trainer, partial):
            create, arguments = self._trainer.func, dict(self._trainer.keywords)
        else:
            arguments = default_trainer_arguments(self.folder) | dict(self._trainer)
        if self._max_epochs is not None:
            arguments["max_epochs"] = self._max_epochs
        return create, arguments

    def _fit(self, trainer: L.Trainer, module: L.LightningModule, data: L.LightningDataModule) -> None:
        """Call ``Trainer.fit``, and raise a KeyboardInterrupt on Ctrl+C instead of Lightning's SystemExit."""
        try:
            trainer.fit(module, datamodule=data, ckpt_path=self._last, weights_only=True)
        except MisconfigurationException as error:  # such as a monitored measure that is never logged
            raise UserError(str(error)) from error
        except SystemExit as stopped:  # Lightning exits after Ctrl+C and ignores every further Ctrl+C
            if not isinstance(stopped.__context__, KeyboardInterrupt):
                raise
            signal.signal(signal.SIGINT, signal.default_int_handler)
            interrupt = KeyboardInterrupt()
            run_dir = str(self.folder.parent)
            interrupt.add_note(f"resume={run_dir!r} continues the training; all other arguments must be the same")
            raise interrupt from None

    def _all_callbacks(self) -> list[Callback]:
        """Return the default callbacks and the added ones, or the callbacks that replace the default ones."""
        if isinstance(self._callbacks, Mapping):
            return list(self._callbacks.values())
        return [*default_callbacks(self.folder).values(), *self._callbacks]


@dataclass(frozen=True)
class TrainingPlan:
    """Trainer, callbacks and loggers that a command passes to the models of an experiment, and the run to resume.

    An experiment whose ``__call__`` has a parameter ``training`` receives the plan of its command. The command-line
    settings ``trainer=``, ``callbacks=``, ``logger=`` and ``ckpt_path=`` thus apply to the experiment as they do to a
    reranker.

    Attributes:
        settings: Function of a run folder and a model name that builds the arguments ``trainer`` and ``callbacks`` of
            :class:`TrainingSession`.
        loggers: Function of a run folder and a model name that opens the loggers.
        resume: Folder of an interrupted training run, or one of its ``.ckpt`` files. If None, a new one starts.
        config: Configuration to record in manifests.
    """

    settings: Callable[[Path, str], Mapping[str, Any]] = lambda _run_dir, _name: {}
    loggers: Callable[[Path, str], Sequence[Any]] = lambda _run_dir, _name: ()
    resume: str | Path | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    def session(self, run_dir: str | Path, name: str) -> TrainingSession:
        """Return the session that trains a model of the run, with its loggers.

        Args:
            run_dir: Folder of the run.
            name: Name of the model.

        Returns:
            New session.
        """
        run_dir = Path(run_dir)
        logger = self.loggers(run_dir, name)
        return TrainingSession(run_dir, name, logger=logger, resume=self.resume, **self.settings(run_dir, name))

    def silent_session(self, run_dir: str | Path, name: str) -> TrainingSession:
        """Return a session without progress bar and loggers, for auxiliary trainings such as cross-validation folds.

        The session uses the trainer and the callbacks of the plan, except the callbacks ``curves``, ``last`` and
        ``pruning``.

        Args:
            run_dir: Folder of the run.
            name: Name of the model.

        Returns:
            New session.
        """
        settings = dict(self.settings(Path(run_dir), name))
        trainer: TrainerArguments = settings.get("trainer") or {}
        silent = {"enable_progress_bar": False}
        settings["trainer"] = partial(trainer, **silent) if isinstance(trainer, partial) else dict(trainer) | silent
        if isinstance(callbacks := settings.get("callbacks"), Mapping):
            settings["callbacks"] = {
                key: callback for key, callback in callbacks.items() if key not in ("curves", "last", PRUNING)
            }
        return TrainingSession(run_dir, name, saves_on_signal=False, **settings)


def _as_list(logger: Any) -> list[Any]:
    """Return the loggers of a training. None and False mean no logger."""
    if isinstance(logger, Sequence):
        return list(logger)
    return [logger] if logger else []


def _references(trainer: L.Trainer, measure: str) -> dict[str, float]:
    """Return a measure of the initial model and of the retriever, if they were measured before the first epoch."""
    checks = [callback for callback in trainer.callbacks if isinstance(callback, TrainingChecks)]
    return {name: measures[measure] for name, measures in checks[0].references.items() if measure in measures}


def _modified(path: Path) -> int | None:
    """Return the time of the last modification in nanoseconds, or None if there is no such file."""
    return path.stat().st_mtime_ns if path.is_file() else None


def _trained(trainer: L.Trainer) -> FinishedTraining:
    """Return the number of epochs and steps of a trainer after ``fit``, and whether a callback stopped it."""
    epochs, steps = trainer.current_epoch, trainer.global_step
    is_full = trainer.max_epochs not in (None, -1) and epochs >= int(trainer.max_epochs or 0)
    is_full |= trainer.max_steps != -1 and steps >= trainer.max_steps
    return FinishedTraining(epochs, steps, stopped_early=not is_full)
