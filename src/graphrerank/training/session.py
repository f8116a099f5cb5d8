"""One training by Lightning in a folder of a run: trainer, callbacks, loggers, resuming and the manifest.

Every training goes through :class:`TrainingSession`: rerankers and heads of cross-encoders by
:class:`~graphrerank.training.trainer.RerankerTrainer`, and experiments that train models of their own, which get a
:class:`TrainingPlan` from their command.
"""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import lightning as L
from lightning.pytorch.callbacks import Callback, ProgressBar

from graphrerank.models.checkpoint import BEST
from graphrerank.models.manifest import read_manifest, write_manifest
from graphrerank.training.callbacks import EpochTable, LearningCurves
from graphrerank.training.defaults import default_callbacks, default_trainer_arguments
from graphrerank.training.resume import last_checkpoint
from graphrerank.utils.processes import is_first_process
from graphrerank.utils.quiet import quiet_lightning

TrainerArguments = Mapping[str, Any] | partial[L.Trainer]  # arguments that replace defaults; or all of them
Callbacks = Sequence[Callback] | Mapping[str, Callback]  # in addition to the default callbacks; or in their place
RESULTS = ("finished", "validation")  # entries of a manifest that a training adds


class TrainingSession:
    """Train a model with ``lightning.Trainer`` in a folder of a run, or resume a training that was interrupted there.

    The folder of the model is ``<run_dir>/<name>``. It gets the manifest, which says whether the training finished, and
    in ``checkpoints`` the files ``best.ckpt`` and ``last.ckpt``.

    Args:
        run_dir: Folder of the run.
        name: Name of the model.
        trainer: Arguments of ``lightning.Trainer`` that replace those of
            :func:`~graphrerank.training.defaults.default_trainer_arguments`; or a ``functools.partial`` of
            ``lightning.Trainer`` with all its arguments, to which callbacks and loggers are added. None for the
            defaults.
        max_epochs: Maximum number of epochs. If None, the number of the trainer's arguments is used.
        callbacks: Lightning callbacks in addition to :func:`~graphrerank.training.defaults.default_callbacks`; or
            callbacks by name, which replace these.
        logger: A Lightning logger or several. None for none.
        resume: Run folder of an interrupted training, or one of its ``.ckpt`` files. None starts a new training.

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
    ) -> None:
        self.folder = Path(run_dir, name)
        self._trainer: TrainerArguments = trainer or {}
        self._max_epochs = max_epochs
        self._callbacks = callbacks
        self._loggers = list(logger) if isinstance(logger, Sequence) else [logger] if logger else []
        self._resume: str | Path | None = resume
        self._last: Path | None = None  # checkpoint to resume from
        #: Every logged number of each epoch of :meth:`train`, from the callback ``curves``; empty without it.
        self.history: list[dict[str, float]] = []

    @property
    def best(self) -> Path:
        """The checkpoint of the best epoch."""
        return self.folder / BEST

    def earlier_results(self, manifest: Mapping[str, Any], decisive: Sequence[str]) -> dict[str, Any]:
        """Find the training to resume, and return what its manifest says about its result.

        Args:
            manifest: The manifest of the training that begins now.
            decisive: Names of the manifest's entries that must be those of the training to resume.

        Returns:
            The entries ``finished`` and, where it was validated, ``validation`` of a training that finished: its
            weights are in :attr:`best`, and :meth:`train` must not be called. Empty for a training that goes on from
            its last checkpoint, and for a new one.

        Raises:
            ValueError: If a decisive entry differs. The message names it.
        """
        self._last = last_checkpoint(self._resume, self.folder, manifest, decisive)
        before = {} if self._last is None else read_manifest(self.folder).content
        return {key: before[key] for key in RESULTS if key in before} if before.get("finished") else {}

    @quiet_lightning()
    def train(
        self, module: L.LightningModule, data: L.LightningDataModule, manifest: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Train until the trainer or a callback stops, from the last checkpoint of a training that is resumed.

        Args:
            module: Module to train; its ``model`` holds the weights.
            data: Batches for training and validation.
            manifest: Manifest of the training, which is written with ``finished`` false before the first step.

        Returns:
            The manifest with ``finished`` true and, where the best epoch was chosen by a measure, with ``validation``:
            its name (``measure``), ``mode`` and ``score``. It is also written into the folder.

        Raises:
            KeyboardInterrupt: If the training was stopped by Ctrl+C. It can be resumed.
        """
        manifest = dict(manifest)
        if is_first_process():
            write_manifest(self.folder, manifest)
        trainer = self._build_trainer()
        for logger in trainer.loggers:
            logger.log_hyperparams(manifest)
        _fit(trainer, module, data, self._last)
        if not trainer.strategy.broadcast(self.best.is_file()):  # fast_dev_run or no validation: the last state
            trainer.save_checkpoint(self.best)
        if is_first_process():
            checkpoints = cast(Any, trainer.checkpoint_callback)
            if checkpoints is not None and checkpoints.best_model_score is not None:
                score = float(checkpoints.best_model_score)
                manifest["validation"] = {"measure": checkpoints.monitor, "mode": checkpoints.mode, "score": score}
            manifest["finished"] = True
            write_manifest(self.folder, manifest)
        curves = [callback for callback in trainer.callbacks if isinstance(callback, LearningCurves)]
        self.history = curves[0].history if curves else []
        return manifest

    def _build_trainer(self) -> L.Trainer:
        """Build the trainer with its callbacks, loggers and a table of the epochs."""
        create: Callable[..., L.Trainer] = L.Trainer
        if isinstance(self._trainer, partial):
            create, arguments = self._trainer.func, dict(self._trainer.keywords)
        else:
            arguments = default_trainer_arguments(self.folder) | dict(self._trainer)
        if self._max_epochs is not None:
            arguments["max_epochs"] = self._max_epochs
        callbacks = self._all_callbacks()
        if not any(isinstance(callback, ProgressBar) for callback in callbacks):  # which would show the epochs
            if arguments.pop("enable_progress_bar", True):
                callbacks.append(EpochTable())
            arguments["enable_progress_bar"] = False
        return create(**arguments | {"callbacks": callbacks, "logger": self._loggers})

    def _all_callbacks(self) -> list[Callback]:
        """Return the callbacks that replace the default ones, or the default ones and those that are added."""
        if isinstance(self._callbacks, Mapping):
            return list(self._callbacks.values())
        return [*default_callbacks(self.folder).values(), *self._callbacks]


@dataclass(frozen=True)
class TrainingPlan:
    """How an experiment trains its models: trainer, callbacks and loggers of its command, and the run to resume.

    An experiment whose ``__call__`` has a parameter ``training`` gets the plan of its command, so that ``trainer=``,
    ``callbacks=``, ``logger=`` and ``ckpt_path=`` hold for it as for a reranker.

    Attributes:
        settings: Returns the arguments ``trainer`` and ``callbacks`` of :class:`TrainingSession`, newly built, for a
            run folder and the name of a model in it.
        loggers: Opens the loggers for a run folder and the name of a model in it.
        resume: Run folder of an interrupted training, or one of its ``.ckpt`` files; None for a new training.
        config: The configuration, for manifests.
    """

    settings: Callable[[Path, str], Mapping[str, Any]] = lambda _run_dir, _name: {}
    loggers: Callable[[Path, str], Sequence[Any]] = lambda _run_dir, _name: ()
    resume: str | Path | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    def session(self, run_dir: str | Path, name: str) -> TrainingSession:
        """Return the session of a model of the run, with its loggers.

        Args:
            run_dir: Folder of the run.
            name: Name of the model.
        """
        run_dir = Path(run_dir)
        logger = self.loggers(run_dir, name)
        return TrainingSession(run_dir, name, logger=logger, resume=self.resume, **self.settings(run_dir, name))

    def silent_session(self, run_dir: str | Path, name: str) -> TrainingSession:
        """Return the session of a further training, such as that of a fold, which shows and logs nothing.

        It has the trainer of the plan, and the callbacks without those that only show or resume: ``curves`` and
        ``last``. Arguments are those of :meth:`session`.
        """
        settings = dict(self.settings(Path(run_dir), name))
        trainer: TrainerArguments = settings.get("trainer") or {}
        silent = {"enable_progress_bar": False}
        settings["trainer"] = partial(trainer, **silent) if isinstance(trainer, partial) else dict(trainer) | silent
        if isinstance(callbacks := settings.get("callbacks"), Mapping):
            settings["callbacks"] = {
                key: callback for key, callback in callbacks.items() if key not in ("curves", "last")
            }
        return TrainingSession(run_dir, name, **settings)


def _fit(trainer: L.Trainer, module: L.LightningModule, data: L.LightningDataModule, last: Path | None) -> None:
    """Call ``Trainer.fit``; Ctrl+C is a KeyboardInterrupt, as everywhere else."""
    try:
        trainer.fit(module, datamodule=data, ckpt_path=last, weights_only=True)
    except SystemExit as stopped:  # how Lightning ends after Ctrl+C, which it ignores from then on
        if isinstance(stopped.__context__, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.default_int_handler)
            raise KeyboardInterrupt from None
        raise
