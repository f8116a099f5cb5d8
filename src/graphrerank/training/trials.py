"""Trials of a hyperparameter search with Optuna: storage of the study, and pruning of trials that fall behind."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
from lightning.pytorch.trainer.states import TrainerFn

from graphrerank.installation.extras import importing
from graphrerank.training.defaults import MONITOR
from graphrerank.utils.checks import UserError

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.storages import JournalStorage

JOURNAL = "optuna.journal"  # file of a sweep folder that stores the study
STUDY = "search"  # name of the study in the file
PRUNED = "pruned_at_epoch"  # user attribute of a pruned trial


def open_storage(folder: str | Path) -> "JournalStorage":
    """Open the storage of a search, a file to which several processes can append.

    Args:
        folder: Folder of the sweep.

    Returns:
        Storage of the study :data:`STUDY`. It is empty if the folder has no search yet.
    """
    with importing("search", "a hyperparameter search"):
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

    return JournalStorage(JournalFileBackend(str(Path(folder, JOURNAL))))


class TrialPruning(L.Callback):
    """Report the monitored measure of each epoch to an Optuna trial, and stop training if the trial is pruned.

    A pruned training run ends like one that stops early: the best epoch is saved, calibrated and evaluated. The user
    attribute ``pruned_at_epoch`` marks the trial, so the caller can tell Optuna that it was pruned. In distributed
    training, the first process reports and decides for all.

    Args:
        trial: Running trial of a study.
        monitor: Log key of the measure. It must be logged in each validation.

    Attributes:
        is_pruned: Whether the trial was pruned.

    Example:
        >>> TrialPruning(None).monitor  # of no study; otherwise the result of optuna.Study.ask
        'val/ndcg@10'
    """

    def __init__(self, trial: "Trial | None", *, monitor: str = MONITOR) -> None:
        self.trial = trial
        self.monitor = monitor
        self.is_pruned = False

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Report the measure, and stop the training if the pruner says so.

        Args:
            trainer: Trainer of the run.
            pl_module: Module that is trained.

        Raises:
            ValueError: If the measure is not logged.
        """
        if trainer.sanity_checking or trainer.state.fn != TrainerFn.FITTING:
            return
        should_prune = trainer.is_global_zero and self._report(trainer.callback_metrics, trainer.current_epoch + 1)
        if trainer.strategy.reduce_boolean_decision(should_prune, all=False):
            self.is_pruned = trainer.should_stop = True

    def _report(self, metrics: Any, epoch: int) -> bool:
        """Report the measure of an epoch. Return whether to prune the trial."""
        if self.monitor not in metrics:
            raise UserError(f"`monitor` must be a logged measure, one of {sorted(metrics)}, got {self.monitor!r}")
        trial = self._running_trial()
        trial.report(float(metrics[self.monitor]), step=epoch)
        if not trial.should_prune():
            return False
        trial.set_user_attr(PRUNED, epoch)
        return True

    def _running_trial(self) -> "Trial":
        assert self.trial is not None
        return self.trial


class StoredTrialPruning(TrialPruning):
    """Pruning of a training run that is a trial of ``hydra/sweeper=optuna``.

    The study is opened when the first epoch ends, and only by the first process of a distributed training.

    Args:
        run_dir: Folder of the run. Its name is the number of the trial, and its parent folder has the study.
        monitor: Log key of the measure.
        pruner: Pruner of Optuna.
    """

    def __init__(self, run_dir: str | Path, *, monitor: str = MONITOR, pruner: Any = None) -> None:
        super().__init__(None, monitor=monitor)
        self.run_dir = Path(run_dir)
        self.pruner = pruner

    def _running_trial(self) -> "Trial":
        if self.trial is None:
            self.trial = stored_trial(self.run_dir, self.pruner)
        return self.trial


def stored_trial(run_dir: Path, pruner: Any = None) -> "Trial":
    """Return the running trial of a run folder.

    Args:
        run_dir: Folder of the run. Its name is the number of the trial, and its parent folder has the study.
        pruner: Pruner of Optuna. If None, that of the study's default.

    Returns:
        Trial that can be reported to.

    Raises:
        ValueError: If the parent folder has no study, or the study has no such trial.
    """
    folder = run_dir.parent
    if not (folder / JOURNAL).is_file() or not run_dir.name.isdecimal():
        raise UserError(
            f"`run_dir` must be the folder of a trial, with {JOURNAL} in its parent folder, got {run_dir}. "
            "Search with `train.py hparams_search=optuna`"
        )
    from optuna import Trial, load_study

    study: Study = load_study(study_name=STUDY, storage=open_storage(folder), pruner=pruner)
    trials = study.get_trials(deepcopy=False)
    if int(run_dir.name) >= len(trials):
        raise UserError(f"`run_dir` must name one of the {len(trials)} trials of {folder}, got {run_dir.name}")
    return Trial(study, trials[int(run_dir.name)]._trial_id)
