"""Tracking: every job sends the same to the chosen loggers (W&B, MLflow, TensorBoard), and none knows of them.

While a model trains, Lightning sends its curves. When the job is done, :meth:`Tracking.finish` reads its folder and
sends settings, numbers, tables, plots, and the data sets and checkpoints that were read and written.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from graphrerank.cli.report_tables import flat_numbers, report_tables
from graphrerank.cli.tracked_runs import Artifact, TrackedRun, open_logger, tracked_run
from graphrerank.data.dataset import Dataset
from graphrerank.files import hash_files, write_json
from graphrerank.models.checkpoint import checkpoint_files, find_checkpoint
from graphrerank.models.manifest import MANIFEST
from graphrerank.processes import is_first_process

RUN_IDS = "tracking.json"  # in a system's folder: the ids of its runs by logger, which a resumed command goes on with
CHECKPOINT = Path("checkpoints", "best.ckpt")  # in a system's folder
REPORTS = ("report.md", "report.html", "metrics.json")
PLOTS = ("*.png", "plots/*.png")


class Tracking:
    """The loggers of one command over all models that it trains: one run of each logger at a time."""

    def __init__(self) -> None:
        self._opened: dict[Path, list[Any]] = {}  # loggers by the folder of their system
        self._read: dict[str, Artifact] = {}

    def reads_data(self, dataset: Dataset) -> None:
        """Note a data set that the command reads."""
        splits = {name: len(qrels.queries) for name, qrels in dataset.splits.items()}
        facts = {"passages": dataset.graph.num_nodes, "edges": dataset.graph.num_edges // 2, "queries": splits}
        self._note(Artifact("dataset", dataset.name, {"fingerprint": dataset.fingerprint, **facts}))

    def reads_files(self, name: str, files: Sequence[Path]) -> None:
        """Note a data set that the command reads from files by itself."""
        self._note(Artifact("dataset", name, {"fingerprint": hash_files(files)}))

    def reads_checkpoint(self, name: str) -> None:
        """Note a checkpoint that the command reads, by the name that it was given: a path, or what ships."""
        with suppress(ValueError):  # of the hub, whose cache is its own
            for file in checkpoint_files(find_checkpoint(name)):
                of_run = file.is_file() and file.parent.name == CHECKPOINT.parent.name
                self._note(model_artifact(file.parent.parent if of_run else file))

    def reads_checkpoints_of(self, settings: Any) -> None:
        """Note all checkpoints that settings name at any depth."""
        if OmegaConf.is_config(settings):
            settings = OmegaConf.to_container(settings, resolve=True)
        if isinstance(settings, Mapping):
            if isinstance(name := settings.get("checkpoint"), str):
                self.reads_checkpoint(name)
            settings = list(settings.values())
        if isinstance(settings, list):
            for entry in settings:
                self.reads_checkpoints_of(entry)

    def open(self, cfg: DictConfig) -> list[Any]:
        """Open the chosen loggers for the system of a configuration, or go on with its runs; those of others end."""
        folder = Path(cfg.paths.run_dir) / cfg.system
        if folder not in self._opened:
            self.close()
            self._opened[folder] = _open(cfg, folder)
        return self._opened[folder]

    def close(self, *, trained: bool = False, failed: bool = False) -> None:
        """Send the plots of the systems whose loggers are open, and their checkpoints if they are ``trained``; end."""
        for folder, loggers in self._opened.items():
            for run in map(tracked_run, loggers):
                _send_plots(run, folder)
                if trained and (folder / CHECKPOINT).is_file():
                    run.wrote(model_artifact(folder))
                run.close(failed=failed)
        self._opened.clear()

    def finish(self, cfg: DictConfig, folder: Path | None, settings: Mapping[str, Any]) -> None:
        """Send everything of a job that has ended to its runs, and end them.

        Args:
            cfg: The command's configuration.
            folder: That the job wrote to; None for none.
            settings: The command and its configuration, as they may be shown.
        """
        if not cfg.get("logger") or not is_first_process():
            return self.close()
        here = deepcopy(cfg)
        here.paths.run_dir = str(folder or cfg.paths.run_dir)
        for logger in self.open(here) if _is_tracked(cfg) else []:
            run = tracked_run(logger)
            run.settings({**settings, "reads": {read.label: read.facts for read in self._read.values()}})
            for read in self._read.values():
                run.read(read)
            if folder is not None:
                _send_results(run, folder, pages=[page for page in (_page_of(cfg),) if page is not None])
        return self.close()

    def _note(self, artifact: Artifact) -> None:
        self._read[artifact.label] = artifact


def model_artifact(folder: Path) -> Artifact:
    """Describe a system's checkpoint: weights and manifest, and the runs that it was trained in."""
    if folder.is_file():  # a .ckpt on its own
        return Artifact("model", folder.stem, {"fingerprint": hash_files([folder])}, {folder.name: folder})
    files = {str(part): folder / part for part in (CHECKPOINT, Path(MANIFEST)) if (folder / part).is_file()}
    if not (folder / CHECKPOINT).is_file():  # exported, or shipped with the package
        files = {path.name: path for path in sorted(folder.glob("*.safetensors"))} | files
    facts: dict[str, Any] = {"fingerprint": hash_files(list(files.values()))}
    if runs := _run_ids(folder):
        facts["trained_in"] = runs
    return Artifact("model", folder.name, facts, files)


def _send_results(run: TrackedRun, folder: Path, *, pages: Sequence[Path]) -> None:
    """Send what a job wrote into its folder, and its pages elsewhere."""
    metrics = folder / "metrics.json"
    if metrics.is_file():
        run.numbers(flat_numbers(json.loads(metrics.read_text(encoding="utf-8"))))
    files = [file for file in (*(folder / name for name in REPORTS), *pages) if file.is_file()]
    for page in files:
        if page.suffix == ".md":
            for title, table in report_tables(page.read_text(encoding="utf-8")).items():
                run.table(title, table)
    _send_plots(run, folder)
    if files:
        hashed = {"fingerprint": hash_files(files)}
        run.wrote(Artifact("report", folder.name, hashed, {file.name: file for file in files}))
    for manifest in sorted(folder.glob(f"*/{MANIFEST}")):
        if (manifest.parent / CHECKPOINT).is_file():
            run.wrote(model_artifact(manifest.parent))


def _send_plots(run: TrackedRun, folder: Path) -> None:
    for plot in sorted(path for pattern in PLOTS for path in folder.glob(pattern)):
        run.plot(plot.stem, plot)


def _page_of(cfg: DictConfig) -> Path | None:
    """Return the page that an experiment writes outside of its folder, if any."""
    job = cfg.get("job") or {}
    page = job.get("page") or job.get("report")
    return None if page is None else Path(str(page))


def _is_tracked(cfg: DictConfig) -> bool:
    """Return whether a logger keeps more than the numbers of a training."""
    return any(not str(node._target_).endswith("CSVLogger") for node in cfg.logger.values())


def _open(cfg: DictConfig, folder: Path) -> list[Any]:
    """Build the loggers of a system, each with the id of its run in ``tracking.json``, or a new one."""
    if not is_first_process():
        return [open_logger(node, None, group="")[0] for node in (cfg.logger or {}).values()]
    known = _run_ids(folder)
    loggers = []
    for name, node in (cfg.logger or {}).items():
        logger, run_id = open_logger(node, known.get(name), group=_group(cfg), new_id=secrets.token_hex(4))
        loggers.append(logger)
        if run_id is not None and known.get(name) != run_id:
            known[name] = run_id
            write_json(folder / RUN_IDS, known)
    return loggers


def _run_ids(folder: Path) -> dict[str, str]:
    with suppress(OSError, ValueError):
        ids = json.loads((folder / RUN_IDS).read_text(encoding="utf-8"))
        return {str(name): str(run_id) for name, run_id in ids.items()}
    return {}


def _group(cfg: DictConfig) -> str:
    """Name the group of runs that belong together: those of a sweep, or the models of one command."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    hydra = HydraConfig.get()
    folder = Path(hydra.sweep.dir if hydra.mode == RunMode.MULTIRUN else cfg.paths.run_dir)
    return "/".join(folder.absolute().parts[-2:])
