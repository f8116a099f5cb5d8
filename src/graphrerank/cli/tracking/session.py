"""Tracked runs of a command, which are opened for each system that it trains and closed with its results.

Lightning logs the curves during the training. After the job, :meth:`Tracking.finish` reads the run folder and logs
settings, numbers, tables, plots, the report, and the input and output data sets and checkpoints.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from graphrerank.cli.tracking.artifacts import (
    CHECKPOINT,
    TrackedArtifact,
    dataset_artifact,
    folder_artifact,
    model_artifact,
    read_run_ids,
    report_artifact,
    write_run_ids,
)
from graphrerank.cli.tracking.results import REPORTS, flat_numbers, job_metrics, plots_of, result_tables
from graphrerank.data.dataset import Dataset
from graphrerank.models.checkpoint import checkpoint_files, find_checkpoint
from graphrerank.models.manifest import MANIFEST
from graphrerank.utils.processes import is_first_process

if TYPE_CHECKING:
    from graphrerank.cli.tracking.base import TrackedRun


class Tracking:
    """Tracked runs of a command: one run per logger and trained system.

    All runs stay open until the command ends, because the test measures are only known then.
    """

    def __init__(self) -> None:
        self._runs: dict[Path, list[TrackedRun]] = {}  # by the folder of their system, in the order of training
        self._inputs: list[TrackedArtifact] = []
        self._outputs: list[TrackedArtifact] = []

    def reads_data(self, dataset: Dataset) -> None:
        """Record a data set as an input of the command.

        Args:
            dataset: Data set.
        """
        self._inputs.append(dataset_artifact(dataset))

    def reads_checkpoint(self, name: str) -> None:
        """Record a checkpoint as an input of the command.

        Args:
            name: Path of the checkpoint, or the name of a shipped checkpoint. Hub ids are ignored.
        """
        with suppress(ValueError):  # raised for a hub id
            for file in checkpoint_files(find_checkpoint(name)):
                of_run = file.is_file() and file.parent.name == CHECKPOINT.parent.name
                self._inputs.append(model_artifact(file.parent.parent if of_run else file))

    def reads_job(self, job: Mapping[str, Any]) -> None:
        """Record the inputs of an experiment: checkpoints in its settings, and the folder in ``data``.

        Args:
            job: Settings of the experiment.
        """
        self.reads_checkpoints_of(job)
        data = job.get("data")
        if isinstance(data, str) and any(Path(data).glob("corpus.*")):
            self._inputs.append(folder_artifact(Path(data)))

    def reads_checkpoints_of(self, settings: Any) -> None:
        """Record all checkpoints in settings as inputs of the command.

        Args:
            settings: Settings. Keys ``checkpoint`` are found in nested settings, too.
        """
        if OmegaConf.is_config(settings):
            settings = OmegaConf.to_container(settings, resolve=True)
        if isinstance(settings, Mapping):
            if isinstance(name := settings.get("checkpoint"), str):
                self.reads_checkpoint(name)
            settings = list(settings.values())
        if isinstance(settings, list):
            for entry in settings:
                self.reads_checkpoints_of(entry)

    def writes_checkpoint(self, folder: Path) -> None:
        """Record a checkpoint outside the run folder as an output. Checkpoints in the run folder are recorded anyway.

        Args:
            folder: Folder of the checkpoint.
        """
        self._outputs.append(model_artifact(folder))

    def open(self, cfg: DictConfig) -> list[Any]:
        """Start or continue the runs of a system.

        Args:
            cfg: Configuration with ``logger``, ``system`` (name of the system) and ``paths.run_dir``. The system's
                folder is the subfolder ``system`` of the run folder.

        Returns:
            Lightning loggers for a ``lightning.Trainer``. If the runs of the system are already open, their loggers are
            returned.
        """
        if not is_first_process():
            return [instantiate(settings) for settings in (cfg.logger or {}).values()]
        folder = _system_folder(cfg)
        if folder not in self._runs:
            self._runs[folder] = []  # added first, so that opened runs are closed if a later run fails to open
            for run in _open_runs(cfg, folder):
                self._runs[folder].append(run)
        return [run.logger for run in self._runs[folder]]

    def log_test(self, folder: Path, dataset: str, measures: Mapping[str, Any]) -> None:
        """Log the test measures of a trained system to its runs.

        Args:
            folder: Folder of the system.
            dataset: Name of the test data set.
            measures: Means by name of the measure.
        """
        for run in self._runs.get(folder.absolute(), ()):
            if type(run).keeps_results:
                run.log_test(flat_numbers({"test": {dataset: measures}}))

    def finish(self, cfg: DictConfig, folder: Path | None, settings: Mapping[str, Any]) -> None:
        """Log the results of a finished job, and end all runs of the command.

        Args:
            cfg: Configuration of the job. The results of the job are logged to the run of ``system``, which is opened
                if the job has trained nothing.
            folder: Run folder of the job, or None if the job wrote none.
            settings: Command and settings, to record in the configuration of each run.
        """
        if self._wants_results(cfg):
            own = deepcopy(cfg)
            own.paths.run_dir = str(folder or cfg.paths.run_dir)
            self.open(own)
            inputs = {artifact.label: artifact for artifact in self._inputs}
            settings = {**settings, "reads": {label: artifact.facts for label, artifact in inputs.items()}}
            for system, runs in self._runs.items():
                for run in runs:
                    run.log_settings(settings)
                    for artifact in inputs.values():
                        run.log_input(artifact)
                    if (system / MANIFEST).is_file() and (system / CHECKPOINT).is_file():
                        run.log_output(model_artifact(system))
            if folder is not None:
                for run in self._runs[_system_folder(own)]:
                    self._send_results(run, folder, cfg.get("job") or {})
        self.close()

    def close(self, *, failed: bool = False) -> None:
        """Log the plots of each system and end its runs.

        Args:
            failed: Whether the command failed.
        """
        while self._runs:
            folder, runs = self._runs.popitem()
            for run in runs:
                for plot in plots_of(folder) if type(run).keeps_results else ():
                    run.log_image(plot.stem, plot)
                run.close(failed=failed)

    @staticmethod
    def _wants_results(cfg: DictConfig) -> bool:
        """Return whether this process logs results, and at least one logger supports results."""
        if not is_first_process() or not cfg.get("logger"):
            return False
        from graphrerank.cli.tracking.trackers import (
            tracker_of,
        )  # imports Lightning, which is optional for some commands

        return any(tracker_of(settings).keeps_results for settings in cfg.logger.values())

    def _send_results(self, run: "TrackedRun", folder: Path, job: Mapping[str, Any]) -> None:
        """Log the results in the run folder, and the page that an experiment writes to another folder."""
        if not type(run).keeps_results:
            return
        metrics = job_metrics(folder)
        run.log_numbers(flat_numbers(metrics))
        for table in result_tables(metrics):
            run.log_table(table)
        for plot in plots_of(folder):
            run.log_image(plot.stem, plot)
        page = job.get("page") or job.get("report")
        files = [*(folder / name for name in REPORTS), *([Path(page)] if page else [])]
        if files := [file for file in files if file.is_file()]:
            run.log_output(report_artifact(folder.name, files))
        for artifact in self._outputs:
            run.log_output(artifact)
        for manifest in sorted([*folder.glob(MANIFEST), *folder.glob(f"*/{MANIFEST}")]):
            system = manifest.parent.absolute()  # has no run if the job did not open one per system
            if system not in self._runs and (artifact := model_artifact(system)).files.keys() > {MANIFEST}:
                run.log_output(artifact)


def _system_folder(cfg: DictConfig) -> Path:
    return (Path(cfg.paths.run_dir) / cfg.system).absolute()


def _open_runs(cfg: DictConfig, folder: Path) -> "Iterator[TrackedRun]":
    """Open the runs of a system. Run ids are read from ``tracking.json``, and new ids are added to this file."""
    from graphrerank.cli.tracking.trackers import tracker_of  # imports Lightning, which is optional for some commands

    known = read_run_ids(folder)
    hydra = HydraConfig.get()  # all runs of a sweep, or all systems of a command, form a group
    group_folder = Path(hydra.sweep.dir if hydra.mode == RunMode.MULTIRUN else cfg.paths.run_dir)
    group = "/".join(group_folder.absolute().parts[-2:])
    for name, settings in (cfg.logger or {}).items():
        run = tracker_of(settings).open(settings, run_id=known.get(name), group=group)
        if run.run_id is not None and known.get(name) != run.run_id:
            known[name] = run.run_id
            write_run_ids(folder, known)
        yield run
