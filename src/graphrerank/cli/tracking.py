"""Tracking: every job sends the same to W&B and MLflow, and numbers to other loggers, and none knows of them.

While a model trains, Lightning sends its curves. When the job is done, :meth:`Tracking.finish` reads its folder and
sends settings, numbers, plots, the report, and the data sets and checkpoints that were read and written.
"""

import json
import math
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from graphrerank.data.dataset import Dataset
from graphrerank.files import hash_files, write_json
from graphrerank.models.checkpoint import checkpoint_files, find_checkpoint
from graphrerank.models.manifest import MANIFEST
from graphrerank.processes import is_first_process

RUN_IDS = "tracking.json"  # in a system's folder: the ids of its runs by logger, which a resumed command continues
CHECKPOINT = Path("checkpoints", "best.ckpt")  # in a system's folder
REPORTS = ("report.md", "report.html", "metrics.json")
PLOTS = ("*.png", "plots/*.png")
CONTAINERS = ("datasets", "systems")  # levels of metrics.json that every number is in
WANDB_CHOOSES = ("WANDB_RUN_ID", "WANDB_SWEEP_ID")  # the environment names the run, as `wandb agent` does
# of MLflow, unless the user says: it calls nobody, and a folder is a store, which MLflow keeps for this setting alone
MLFLOW_SETTINGS = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}


@dataclass(frozen=True)
class Artifact:
    """Something that a run read or wrote."""

    kind: str  # `dataset`, `model` or `report`
    name: str
    facts: Mapping[str, Any]  # with its `fingerprint`; JSON
    files: Mapping[str, Path] = field(default_factory=dict)  # by their names in it

    @property
    def label(self) -> str:
        """Its kind and name, as those of two kinds may be equal."""
        return re.sub(r"[^\w.-]+", "-", f"{self.kind}-{self.name}")


class Tracking:
    """The loggers of one command over all models that it trains: one run of each logger at a time."""

    def __init__(self) -> None:
        self._folder = Path()  # of the system whose loggers are open
        self._loggers: list[Any] = []
        self._read: list[Artifact] = []

    def reads_data(self, dataset: Dataset) -> None:
        """Record a data set that the command reads."""
        splits = {name: len(qrels.queries) for name, qrels in dataset.splits.items()}
        facts = {"passages": dataset.graph.num_nodes, "edges": dataset.graph.num_edges // 2, "queries": splits}
        self._read += [Artifact("dataset", dataset.name, {"fingerprint": dataset.fingerprint, **facts})]

    def reads_checkpoint(self, name: str) -> None:
        """Record a checkpoint that the command reads: a path, or the name of a shipped one."""
        with suppress(ValueError):  # of the hub
            for file in checkpoint_files(find_checkpoint(name)):
                of_run = file.is_file() and file.parent.name == CHECKPOINT.parent.name
                self._read += [model_artifact(file.parent.parent if of_run else file)]

    def reads_checkpoints_of(self, settings: Any) -> None:
        """Record all checkpoints that settings name at any depth."""
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
        """Open the chosen loggers for the system of a configuration, or continue its runs; those of others end."""
        folder = Path(cfg.paths.run_dir) / cfg.system
        if folder != self._folder:
            self.close()
            self._folder, self._loggers = folder, _open(cfg, folder)
        return self._loggers

    def close(self, *, failed: bool = False) -> None:
        """Send the plots of the system whose loggers are open, and end its runs."""
        for run in map(tracked_run, self._loggers):
            _send_plots(run, self._folder)
            run.close(failed=failed)
        self._folder, self._loggers = Path(), []

    def finish(self, cfg: DictConfig, folder: Path | None, settings: Mapping[str, Any]) -> None:
        """Send the settings of a job that has ended, and what it wrote into its folder, to its runs, and end them."""
        loggers = [] if not is_first_process() else list((cfg.get("logger") or {}).values())
        if any(not str(node._target_).endswith("CSVLogger") for node in loggers):
            here = deepcopy(cfg)
            here.paths.run_dir = str(folder or cfg.paths.run_dir)
            reads = {read.label: read for read in self._read}
            for run in map(tracked_run, self.open(here)):
                run.settings({**settings, "reads": {label: read.facts for label, read in reads.items()}})
                for read in reads.values():
                    run.read(read)
                if folder is not None:
                    _send_results(run, folder, cfg.get("job") or {})
        self.close()


def model_artifact(folder: Path) -> Artifact:
    """Describe a system's checkpoint: weights and manifest, and the runs that it was trained in."""
    if folder.is_file():  # a .ckpt without a run folder
        return Artifact("model", folder.stem, {"fingerprint": hash_files([folder])}, {folder.name: folder})
    files = {str(part): folder / part for part in (CHECKPOINT, Path(MANIFEST)) if (folder / part).is_file()}
    if not (folder / CHECKPOINT).is_file():  # exported, or shipped with the package
        files = {path.name: path for path in sorted(folder.glob("*.safetensors"))} | files
    facts: dict[str, Any] = {"fingerprint": hash_files(list(files.values()))}
    if runs := _run_ids(folder):
        facts["trained_in"] = runs
    return Artifact("model", folder.name, facts, files)


def _send_results(run: "_Run", folder: Path, job: Mapping[str, Any]) -> None:
    """Send what a job wrote into its folder, and the page that an experiment writes elsewhere."""
    metrics = folder / "metrics.json"
    if metrics.is_file():
        run.numbers(flat_numbers(json.loads(metrics.read_text(encoding="utf-8"))))
    page = job.get("page") or job.get("report")
    files = [file for file in (*(folder / name for name in REPORTS), *([Path(page)] if page else [])) if file.is_file()]
    _send_plots(run, folder)
    if files:
        hashed = {"fingerprint": hash_files(files)}
        run.wrote(Artifact("report", folder.name, hashed, {file.name: file for file in files}))
    for manifest in sorted(folder.glob(f"*/{MANIFEST}")):
        if (manifest.parent / CHECKPOINT).is_file():
            run.wrote(model_artifact(manifest.parent))


def flat_numbers(content: Any, path: str = "") -> dict[str, float]:
    """List the numbers of nested mappings under their joined keys in lower case; lists are left out.

    Example:
        >>> flat_numbers({"datasets": {"toy": {"systems": {"a": {"PR@5": 0.5, "PR@5/multi": 0.4}}, "queries": 2}}})
        {'toy/a/pr@5': 0.5, 'toy/a/pr@5_multi': 0.4, 'toy/queries': 2.0}
    """
    if isinstance(content, Mapping):
        numbers: dict[str, float] = {}
        for key, entry in content.items():
            name = str(key).lower().replace("/", "_")  # a name of MLflow is a file's, so none goes on after another
            inner = path if key in CONTAINERS else f"{path}/{name}".strip("/")
            numbers |= flat_numbers(entry, inner)
        return numbers
    is_number = isinstance(content, int | float) and not isinstance(content, bool) and math.isfinite(content)
    return {path: float(content)} if is_number else {}


def _send_plots(run: "_Run", folder: Path) -> None:
    for plot in sorted(path for pattern in PLOTS for path in folder.glob(pattern)):
        run.plot(plot.stem, plot)


def _open(cfg: DictConfig, folder: Path) -> list[Any]:
    """Build the loggers of a system, each with the id of its run in ``tracking.json``, or a new one."""
    nodes = cfg.logger or {}
    if not is_first_process():
        return [instantiate(node) for node in nodes.values()]
    known, loggers = _run_ids(folder), []
    hydra = HydraConfig.get()  # the runs of a sweep, or the models of one command, are a group
    group_folder = Path(hydra.sweep.dir if hydra.mode == RunMode.MULTIRUN else cfg.paths.run_dir)
    group = "/".join(group_folder.absolute().parts[-2:])
    for name, node in nodes.items():
        kind, run_id = str(node._target_).rpartition(".")[2], known.get(name)
        if kind == "WandbLogger":
            chosen = None if any(map(os.environ.get, WANDB_CHOOSES)) else run_id or secrets.token_hex(4)
            run_id = node.get("id") or chosen
            loggers.append(instantiate(node, id=run_id, group=node.get("group") or group))
        elif kind == "MLFlowLogger":
            for variable, setting in MLFLOW_SETTINGS.items():
                os.environ.setdefault(variable, setting)
            tags = {"group": group, **(node.tags or {})}
            loggers.append(instantiate(node, run_id=node.get("run_id") or run_id, tags=tags))
            run_id = loggers[-1].run_id
        else:
            loggers.append(instantiate(node))
        if run_id is not None and known.get(name) != run_id:
            known[name] = run_id
            write_json(folder / RUN_IDS, known)
    return loggers


def _run_ids(folder: Path) -> dict[str, str]:
    with suppress(OSError, ValueError):
        ids = json.loads((folder / RUN_IDS).read_text(encoding="utf-8"))
        return {str(name): str(run_id) for name, run_id in ids.items()}
    return {}


def tracked_run(logger: Any) -> "_Run":
    """Return what a logger's run can keep; loggers of curves alone keep numbers."""
    kinds = {"WandbLogger": _WandbRun, "MLFlowLogger": _MLflowRun}
    return kinds.get(type(logger).__name__, _Run)(logger)


class _Run:
    """A run of a logger: this one keeps numbers alone, the others settings, plots and artifacts too."""

    def __init__(self, logger: Any) -> None:
        self.logger = logger

    def settings(self, settings: Mapping[str, Any]) -> None: ...

    def numbers(self, numbers: Mapping[str, float]) -> None:
        self.logger.log_metrics(dict(numbers))

    def plot(self, title: str, path: Path) -> None: ...

    def read(self, artifact: Artifact) -> None: ...

    def wrote(self, artifact: Artifact) -> None: ...

    def close(self, *, failed: bool) -> None:
        self.logger.finalize("failed" if failed else "success")


class _WandbRun(_Run):
    def settings(self, settings: Mapping[str, Any]) -> None:
        self.logger.log_hyperparams(dict(settings))

    def plot(self, title: str, path: Path) -> None:
        self.logger.log_image(f"plots/{title}", [str(path)])

    def read(self, artifact: Artifact) -> None:
        if not self.logger.experiment.offline:  # offline, W&B links no inputs; the configuration has their fingerprints
            self.logger.experiment.use_artifact(self._artifact(artifact))

    def wrote(self, artifact: Artifact) -> None:
        self.logger.experiment.log_artifact(self._artifact(artifact))

    def close(self, *, failed: bool) -> None:
        super().close(failed=failed)
        self.logger.experiment.finish(exit_code=int(failed))

    @staticmethod
    def _artifact(artifact: Artifact) -> Any:
        """Build an artifact whose digest is that of its content, so that equal ones are one version."""
        import wandb

        made = wandb.Artifact(artifact.label, type=artifact.kind, metadata=dict(artifact.facts))
        for name, path in artifact.files.items():
            made.add_file(str(path), name=name)
        if not artifact.files:
            with made.new_file(f"{artifact.kind}.json") as stream:
                stream.write(_json(artifact.facts))
        return made


class _MLflowRun(_Run):
    def settings(self, settings: Mapping[str, Any]) -> None:
        if not self.logger.experiment.get_run(self.logger.run_id).data.params:  # a run keeps its first ones
            self.logger.log_hyperparams(dict(settings))
        self.logger.experiment.log_text(self.logger.run_id, _json(settings), "settings.json")

    def plot(self, title: str, path: Path) -> None:
        self.logger.experiment.log_artifact(self.logger.run_id, str(path), "plots")

    def read(self, artifact: Artifact) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        content = {"source": _json({"name": artifact.name}), "profile": _json(artifact.facts)}
        kept = Dataset(artifact.label, str(artifact.facts["fingerprint"])[:32], source_type=artifact.kind, **content)
        tags = [InputTag("mlflow.data.context", artifact.kind)]
        self.logger.experiment.log_inputs(self.logger.run_id, datasets=[DatasetInput(kept, tags)])

    def wrote(self, artifact: Artifact) -> None:
        client, run_id = self.logger.experiment, self.logger.run_id
        for name, path in artifact.files.items():
            client.log_artifact(run_id, str(path), str(Path(artifact.kind, artifact.name, name).parent))
        client.set_tag(run_id, artifact.label, artifact.facts["fingerprint"])


def _json(content: Any) -> str:
    return json.dumps(content, indent=2, default=str)
