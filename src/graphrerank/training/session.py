"""One training by Lightning in a folder of a run: trainer, callbacks, loggers, resuming and the manifest.

Every training goes through :class:`TrainingSession`: rerankers and heads of cross-encoders by
:func:`~graphrerank.training.fit.fit`, and experiments that train models of their own, which get a
:class:`TrainingPlan` from their command.
"""

import json
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import lightning as L
from lightning.pytorch.callbacks import Callback, ProgressBar
from omegaconf import OmegaConf

from graphrerank.config.components import ComponentFactory, build_component
from graphrerank.config.compose import flatten_settings
from graphrerank.models.checkpoint import BEST
from graphrerank.models.manifest import MANIFEST, read_manifest, write_manifest
from graphrerank.training.callbacks import EpochTable, LearningCurves
from graphrerank.utils.checks import UserError
from graphrerank.utils.processes import is_first_process
from graphrerank.utils.quiet import quiet_lightning

LAST = Path("checkpoints", "last.ckpt")  # in a model's folder
RESULTS = ("finished", "validation")  # entries of a manifest that a training adds


class TrainingSession:
    """Train a model with ``lightning.Trainer`` in a folder of a run, or resume a training that was interrupted there.

    The folder of the model is ``<run_dir>/<name>``. It gets the manifest, which says whether the training finished, and
    in ``checkpoints`` the files ``best.ckpt`` and ``last.ckpt``.

    Args:
        parts: Composes the files of ``conf`` that are named.
        run_dir: Folder of the run.
        name: Name of the model.
        trainer: Arguments of ``lightning.Trainer`` that replace those of ``conf/trainer/default.yaml``, or complete
            settings with a ``_target_``. None for those of the file.
        max_epochs: Maximum number of epochs. If None, the value of ``trainer`` or of the file is used.
        callbacks: Lightning callbacks in addition to those of ``conf/callbacks/default.yaml``; the name of another file
            of ``conf/callbacks``; or settings of callbacks by name, which replace those of the file.
        logger: A Lightning logger or several. None for none.
        resume: Run folder of an interrupted training, or one of its ``.ckpt`` files. None starts a new training.

    Example:
        >>> from graphrerank.config.components import ComponentFactory
        >>> session = TrainingSession(ComponentFactory(), "runs/mine", "my_model", max_epochs=3)
        >>> session.folder.as_posix()
        'runs/mine/my_model'
    """

    def __init__(
        self,
        parts: ComponentFactory,
        run_dir: str | Path,
        name: str,
        *,
        trainer: Mapping[str, Any] | None = None,
        max_epochs: int | None = None,
        callbacks: str | Sequence[Callback] | Mapping[str, Any] = (),
        logger: Any = None,
        resume: str | Path | None = None,
    ) -> None:
        self.folder = Path(run_dir, name)
        self._parts, self._run_dir, self._name = parts, Path(run_dir), name
        self._trainer = dict(trainer or {}) | ({} if max_epochs is None else {"max_epochs": max_epochs})
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
        settings = dict(self._trainer)
        if "_target_" not in settings:
            settings = self._composed("trainer") | settings
        callbacks = self._build_callbacks(self._callbacks)
        if not any(isinstance(callback, ProgressBar) for callback in callbacks):  # which would show the epochs
            if settings.pop("enable_progress_bar", True):
                callbacks.append(EpochTable())
            settings["enable_progress_bar"] = False
        return cast(L.Trainer, build_component(settings, callbacks=callbacks, logger=self._loggers))

    def _build_callbacks(self, given: Any) -> list[Callback]:
        """Build the callbacks of a file of ``conf/callbacks`` or of settings; objects are added to the default's."""
        if isinstance(given, Mapping):
            return [build_component(node) for node in given.values() if node and "_target_" in node]
        file, others = (given, ()) if isinstance(given, str) else ("default", given)
        return [*self._build_callbacks(self._composed("callbacks", file)), *others]

    def _composed(self, group: str, file: str = "default") -> dict[str, Any]:
        """Compose a file of ``conf`` for the folder of this model."""
        composed = self._parts.compose(f"+{group}={file}", run_dir=self._run_dir, system=self._name)[group]
        return cast(dict[str, Any], OmegaConf.to_container(composed, resolve=True))


@dataclass(frozen=True)
class TrainingPlan:
    """How an experiment trains its models: trainer, callbacks and loggers of its command, and the run to resume.

    An experiment whose ``__call__`` has a parameter ``training`` gets the plan of its command, so that ``trainer=``,
    ``callbacks=``, ``logger=`` and ``ckpt_path=`` hold for it as for a reranker.

    Attributes:
        settings: Returns the arguments ``trainer`` and ``callbacks`` of :class:`TrainingSession` for a run folder and
            the name of a model in it.
        loggers: Opens the loggers for a run folder and the name of a model in it.
        resume: Run folder of an interrupted training, or one of its ``.ckpt`` files; None for a new training.
        config: The configuration, for manifests.
    """

    settings: Callable[[Path, str], Mapping[str, Any]] = lambda _run_dir, _name: {}
    loggers: Callable[[Path, str], Sequence[Any]] = lambda _run_dir, _name: ()
    resume: str | Path | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    def session(self, parts: ComponentFactory, run_dir: str | Path, name: str) -> TrainingSession:
        """Return the session of a model of the run, with its loggers.

        Args:
            parts: Composes files of ``conf``.
            run_dir: Folder of the run.
            name: Name of the model.
        """
        run_dir = Path(run_dir)
        logger = self.loggers(run_dir, name)
        return TrainingSession(parts, run_dir, name, logger=logger, resume=self.resume, **self.settings(run_dir, name))

    def silent_session(self, parts: ComponentFactory, run_dir: str | Path, name: str) -> TrainingSession:
        """Return the session of a further training, such as that of a fold, which shows and logs nothing.

        It has the trainer of the plan, and the callbacks without those that only show or resume: ``curves`` and
        ``last``. Arguments are those of :meth:`session`.
        """
        settings = dict(self.settings(Path(run_dir), name))
        settings["trainer"] = dict(settings.get("trainer") or {}) | {"enable_progress_bar": False}
        if isinstance(callbacks := settings.get("callbacks"), Mapping):
            settings["callbacks"] = {key: node for key, node in callbacks.items() if key not in ("curves", "last")}
        return TrainingSession(parts, run_dir, name, **settings)


def _fit(trainer: L.Trainer, module: L.LightningModule, data: L.LightningDataModule, last: Path | None) -> None:
    """Call ``Trainer.fit``; Ctrl+C is a KeyboardInterrupt, as everywhere else."""
    try:
        trainer.fit(module, datamodule=data, ckpt_path=last, weights_only=True)
    except SystemExit as stopped:  # how Lightning ends after Ctrl+C, which it ignores from then on
        if isinstance(stopped.__context__, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.default_int_handler)
            raise KeyboardInterrupt from None
        raise


def run_folder(resume: str | Path) -> Path:
    """Return the run folder that a training is resumed in.

    Args:
        resume: A run folder of ``train.py``, or a ``.ckpt`` file in it.

    Raises:
        ValueError: If there is no such path, or no model in the folder.
    """
    path = Path(resume)
    if not path.exists():
        raise UserError(f"`ckpt_path` must be a run folder or a .ckpt file in one, got {str(resume)!r}: no such path")
    folder = path if path.is_dir() else path.parent.parent.parent
    if not any(folder.glob(f"*/{MANIFEST}")):
        raise UserError(f"`ckpt_path` must lie in a run folder of train.py, but {folder} holds no <system>/{MANIFEST}")
    return folder


def last_checkpoint(
    resume: str | Path | None, folder: Path, manifest: Mapping[str, Any], decisive: Sequence[str]
) -> Path | None:
    """Return the checkpoint to resume from.

    Args:
        resume: Run folder to resume, or one of its ``.ckpt`` files; None for a new training.
        folder: Folder of the model in the run.
        manifest: The manifest of the training that begins now.
        decisive: Names of the manifest's entries that must be those of the training to resume.

    Returns:
        ``resume`` itself where it is a checkpoint of this model, else the model's last one; None if there is none.

    Raises:
        ValueError: If a decisive entry differs. The message names it, and the settings of the run.
    """
    if resume is None:
        return None
    named = Path(resume)
    last = named if named.is_file() and named.parent.parent == folder else folder / LAST
    if not last.is_file():
        return None
    before, now = (
        dict(flatten_settings({key: content.get(key) for key in decisive}))
        for content in (read_manifest(folder).content, json.loads(json.dumps(manifest)))
    )
    if changed := next((name for name in {**before, **now} if before.get(name) != now.get(name)), None):
        file = folder.parent / ".hydra" / "overrides.yaml"
        given = map(str, OmegaConf.load(file)) if file.is_file() else ["..."]
        ours = shlex.join(part for part in given if not part.startswith(("ckpt_path=", "hydra.run.dir=")))
        raise UserError(
            f"`ckpt_path` needs the settings of its run, which was trained with {changed}={before.get(changed)}, got "
            f"{now.get(changed)}; give them again: {ours} ckpt_path={folder.parent}"
        )
    return last
