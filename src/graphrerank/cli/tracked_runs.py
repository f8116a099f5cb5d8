"""Loggers of Lightning with one interface beyond curves: settings, numbers, tables, plots and artifacts."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from hydra.utils import instantiate
from omegaconf import DictConfig

from graphrerank.cli.report_tables import ReportTable

WANDB, MLFLOW, TENSORBOARD = "WandbLogger", "MLflowLogger", "TensorBoardLogger"
OWN_RUN_ID = ("WANDB_RUN_ID", "WANDB_SWEEP_ID")  # the environment names the run, as `wandb agent` does
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
        """A name in which the kind is part, as those of two kinds may not be equal."""
        return re.sub(r"[^\w.-]+", "-", f"{self.kind}-{self.name}")


class TrackedRun(Protocol):
    """A run of a logger."""

    def settings(self, settings: Mapping[str, Any]) -> None:
        """Keep the settings of the command."""

    def numbers(self, numbers: Mapping[str, float]) -> None:
        """Keep final numbers by name."""

    def table(self, title: str, table: ReportTable) -> None:
        """Keep a table."""

    def plot(self, title: str, path: Path) -> None:
        """Keep a PNG."""

    def read(self, artifact: Artifact) -> None:
        """Keep that the run read an artifact."""

    def wrote(self, artifact: Artifact) -> None:
        """Keep an artifact that the run wrote."""

    def close(self, *, failed: bool) -> None:
        """End the run."""


def open_logger(node: DictConfig, run_id: str | None, *, group: str, new_id: str = "") -> tuple[Any, str | None]:
    """Build a logger that goes on with a run, or begins one; return it with the id of the run, if it has one.

    Args:
        node: Settings of ``conf/logger``; an ``id`` of a run or ``group`` in them counts.
        run_id: Of the run to go on with; None for a new one.
        group: Name of the group of runs.
        new_id: Of a new run, where the logger lets us choose.
    """
    kind = str(node._target_).rpartition(".")[2]
    if kind == WANDB:
        chosen = None if any(name in os.environ for name in OWN_RUN_ID) else run_id or new_id or None
        given = {"id": node.get("id") or chosen, "group": node.get("group") or group or None}
        return instantiate(node, **given), given["id"]
    if kind == MLFLOW:
        for name, setting in MLFLOW_SETTINGS.items():
            os.environ.setdefault(name, setting)
        logger = instantiate(node, run_id=node.get("run_id") or run_id, tags={"group": group, **(node.tags or {})})
        return logger, logger.run_id if new_id else None
    return instantiate(node), None


def tracked_run(logger: Any) -> TrackedRun:
    """Return what a logger's run can keep; loggers of curves alone keep nothing more."""
    kinds: dict[str, type[Any]] = {WANDB: _WandbRun, MLFLOW: _MLflowRun, TENSORBOARD: _TensorBoardRun}
    run: TrackedRun = kinds.get(type(logger).__name__, _CurvesRun)(logger)
    return run


class _CurvesRun:
    """A logger that keeps the numbers of a training alone."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def settings(self, settings: Mapping[str, Any]) -> None:
        pass

    def numbers(self, numbers: Mapping[str, float]) -> None:
        self._logger.log_metrics(dict(numbers))

    def table(self, title: str, table: ReportTable) -> None:
        pass

    def plot(self, title: str, path: Path) -> None:
        pass

    def read(self, artifact: Artifact) -> None:
        pass

    def wrote(self, artifact: Artifact) -> None:
        pass

    def close(self, *, failed: bool) -> None:
        self._logger.finalize("failed" if failed else "success")


class _WandbRun(_CurvesRun):
    def settings(self, settings: Mapping[str, Any]) -> None:
        self._logger.log_hyperparams(dict(settings))

    def table(self, title: str, table: ReportTable) -> None:
        self._logger.log_table(title.replace("/", " "), columns=table.columns, data=table.rows)

    def plot(self, title: str, path: Path) -> None:
        self._logger.log_image(f"plots/{title}", [str(path)])

    def read(self, artifact: Artifact) -> None:
        run = self._logger.experiment
        if not run.offline:  # offline, W&B links no inputs; the configuration has their fingerprints
            run.use_artifact(self._artifact(artifact))

    def wrote(self, artifact: Artifact) -> None:
        self._logger.experiment.log_artifact(self._artifact(artifact))

    def close(self, *, failed: bool) -> None:
        super().close(failed=failed)
        self._logger.experiment.finish(exit_code=int(failed))

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


class _MLflowRun(_CurvesRun):
    def settings(self, settings: Mapping[str, Any]) -> None:
        self._logger.log_hyperparams(dict(settings))
        self._text("settings.json", _json(settings))

    def table(self, title: str, table: ReportTable) -> None:
        self._text(f"tables/{_slug(title)}.json", _json(asdict(table)))

    def plot(self, title: str, path: Path) -> None:
        self._logger.experiment.log_artifact(self._logger.run_id, str(path), "plots")

    def read(self, artifact: Artifact) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        content = {"source": _json({"name": artifact.name}), "profile": _json(artifact.facts)}
        kept = Dataset(artifact.label, str(artifact.facts["fingerprint"])[:32], source_type=artifact.kind, **content)
        tags = [InputTag("mlflow.data.context", artifact.kind)]
        self._logger.experiment.log_inputs(self._logger.run_id, datasets=[DatasetInput(kept, tags)])

    def wrote(self, artifact: Artifact) -> None:
        client, run_id = self._logger.experiment, self._logger.run_id
        for name, path in artifact.files.items():
            inner = Path(artifact.kind, artifact.name, name).parent
            client.log_artifact(run_id, str(path), str(inner))
        client.set_tag(run_id, artifact.label, artifact.facts["fingerprint"])

    def _text(self, name: str, text: str) -> None:
        self._logger.experiment.log_text(self._logger.run_id, text, name)


class _TensorBoardRun(_CurvesRun):
    def settings(self, settings: Mapping[str, Any]) -> None:
        self._logger.experiment.add_text("settings", f"```json\n{_json(settings)}\n```")

    def table(self, title: str, table: ReportTable) -> None:
        lines: list[list[Any]] = [table.columns, ["---"] * len(table.columns), *table.rows]
        self._logger.experiment.add_text(
            title, "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)
        )

    def plot(self, title: str, path: Path) -> None:
        from matplotlib.image import imread

        self._logger.experiment.add_image(f"plots/{title}", imread(path)[..., :3], dataformats="HWC")

    def read(self, artifact: Artifact) -> None:
        self._logger.experiment.add_text(f"read/{artifact.label}", str(artifact.facts["fingerprint"]))

    def wrote(self, artifact: Artifact) -> None:
        self._logger.experiment.add_text(f"wrote/{artifact.label}", str(artifact.facts["fingerprint"]))


def _json(content: Any) -> str:
    return json.dumps(content, indent=2, default=str)


def _slug(title: str) -> str:
    return re.sub(r"[^\w.-]+", "-", title.lower()).strip("-")
