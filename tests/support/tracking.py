"""What trackers kept of a command: W&B offline, MLflow in a folder, TensorBoard in event files."""

import json
import struct
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

BLOCK, FULL, LAST = 1 << 15, 1, 4  # of W&B's log: bytes of a block, records that are whole, last parts


def mlflow_runs(folder: Path) -> dict[str, Any]:
    """Return the runs of ``<folder>/mlruns`` by name."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"file:{folder}/mlruns")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    return {run.info.run_name: run for run in client.search_runs(experiments)}


def mlflow_folder(folder: Path, run: Any) -> Path:
    """Return the folder of a run's files."""
    return Path(folder, "mlruns", run.info.experiment_id, run.info.run_id, "artifacts")


def mlflow_files(folder: Path, run: Any) -> set[str]:
    """Return the paths of a run's files."""
    kept = mlflow_folder(folder, run)
    return {path.relative_to(kept).as_posix() for path in kept.rglob("*") if path.is_file()}


def mlflow_curve(folder: Path, run: Any, key: str) -> list[tuple[int, float]]:
    """Return steps and values of a metric."""
    from mlflow.tracking import MlflowClient

    points = MlflowClient(f"file:{folder}/mlruns").get_metric_history(run.info.run_id, key)
    return [(point.step, point.value) for point in points]


class OfflineRun:
    """The content of the offline runs of W&B in a system's folder, in the order in which they were written.

    wandb 0.31 has no reader of its own for its file: a log of LevelDB's form, of W&B's messages.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))
        self.records = [record for file in self.files for record in self._read(file)]

    @staticmethod
    def _read(file: Path) -> Iterator[Any]:
        from wandb.proto import wandb_internal_pb2

        content, at, parts = file.read_bytes(), 7, b""  # after W&B's own header
        while at + 7 <= len(content):
            left = BLOCK - at % BLOCK
            if left < 7:  # no room for a header: the block ends in zeros
                at += left
                continue
            length, kind = struct.unpack("<4xHB", content[at : at + 7])
            parts += content[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (FULL, LAST):
                yield wandb_internal_pb2.Record.FromString(parts)
                parts = b""

    @cached_property
    def ids(self) -> set[str]:
        """Ids of the runs."""
        return {record.run.run_id for record in self.records if record.HasField("run")}

    @cached_property
    def exit_codes(self) -> list[int]:
        """With which the runs ended."""
        return [record.exit.exit_code for record in self.records if record.HasField("exit")]

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """The logged rows; media are flat, as ``plots/curves/filenames``."""
        rows = [record.history.item for record in self.records if record.HasField("history")]
        return [_decoded(row) for row in rows]

    @cached_property
    def points(self) -> Counter[str]:
        """Number of points by key."""
        return Counter(key for row in self.history for key in row)

    def curve(self, key: str) -> list[tuple[int, float]]:
        """Return optimiser steps and values of a key."""
        return [(row["trainer/global_step"], row[key]) for row in self.history if key in row]

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The last summary."""
        summary: dict[str, Any] = {}
        for record in self.records:
            if record.HasField("summary"):
                summary |= _decoded(record.summary.update)
        return summary

    @cached_property
    def config(self) -> dict[str, Any]:
        """The last configuration."""
        return _decoded([item for record in self.records for item in record.config.update])

    @cached_property
    def tables(self) -> dict[str, dict[str, Any]]:
        """The content of each table, as ``columns`` and ``data``, from its file in the run."""
        ends = "/_type"
        named = [key.removesuffix(ends) for key, kind in self.summary.items() if kind == "table-file"]
        return {name: json.loads(self.media(self.summary[f"{name}/path"]).read_text()) for name in named}

    @cached_property
    def images(self) -> dict[str, Path]:
        """The file of each image."""
        files = {key.removesuffix("/filenames"): entry for key, entry in self.summary.items() if "/filenames" in key}
        return {name: self.media(entry[-1]) for name, entry in files.items()}

    def media(self, path: str) -> Path:
        """Return a file of the run, which must be there."""
        (found,) = (file.parent / "files" / path for file in self.files if (file.parent / "files" / path).is_file())
        return found

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """Records of the artifacts that the run used, by name."""
        return {artifact.name: artifact for artifact in self._artifacts if artifact.use_after_commit}

    @cached_property
    def outputs(self) -> dict[str, Any]:
        """Records of the artifacts that the run logged, by name."""
        return {artifact.name: artifact for artifact in self._artifacts if not artifact.use_after_commit}

    @property
    def _artifacts(self) -> list[Any]:
        return [record.artifact for record in self.records if record.WhichOneof("record_type") == "artifact"]


def _decoded(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def tensorboard_events(folder: Path) -> Any:
    """Read all event files of a system's TensorBoard."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (version,) = folder.glob("tensorboard/version_*")
    events = EventAccumulator(str(version), size_guidance={"tensors": 0, "scalars": 0, "images": 0})
    return events.Reload()
