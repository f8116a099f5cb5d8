"""Artifacts of tracked runs: input data sets and checkpoints, and output checkpoints and reports."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphrerank.data.dataset import Dataset
from graphrerank.models.manifest import MANIFEST
from graphrerank.utils.files import hash_files, write_json

RUN_IDS = "tracking.json"  # file in a system's folder with the run id of each logger, for resuming
CHECKPOINT = Path("checkpoints", "best.ckpt")  # relative to a system's folder


@dataclass(frozen=True)
class TrackedArtifact:
    """Input or output of a run.

    Attributes:
        kind: ``dataset``, ``model`` or ``report``.
        name: Name of the artifact, unique within its kind.
        facts: JSON-serialisable metadata. Entry ``fingerprint`` identifies the content.
        files: Paths of the files by their names in the artifact. If empty, the metadata are the content.
    """

    kind: str
    name: str
    facts: Mapping[str, Any]
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Kind and name as a single word without special characters, which every tracker accepts."""
        return re.sub(r"[^\w.-]+", "-", f"{self.kind}-{self.name}")


def dataset_artifact(dataset: Dataset) -> TrackedArtifact:
    """Return the artifact of a data set, with its fingerprint and counts but without its files.

    Args:
        dataset: Data set.
    """
    splits = {name: len(qrels.queries) for name, qrels in dataset.splits.items()}
    facts = {"passages": dataset.graph.num_nodes, "edges": dataset.graph.num_edges // 2, "queries": splits}
    return TrackedArtifact("dataset", dataset.name, {"fingerprint": dataset.fingerprint, **facts})


def folder_artifact(folder: Path) -> TrackedArtifact:
    """Return the artifact of a folder of documents and questions that a job reads directly.

    Args:
        folder: Folder with files ``corpus.*`` and ``queries.*``, which determine the fingerprint.
    """
    files = sorted(file for name in ("corpus", "queries") for file in folder.glob(f"{name}.*") if file.is_file())
    return TrackedArtifact(
        "dataset", folder.name, {"fingerprint": hash_files(files), "files": [file.name for file in files]}
    )


def model_artifact(folder: Path) -> TrackedArtifact:
    """Return the artifact of a checkpoint, with its weights, its manifest and the ids of the runs that trained it.

    Args:
        folder: Folder of a system in a run, an exported artifact, or a ``.ckpt`` file outside a run folder.

    Returns:
        The artifact. It is identical for the run that wrote the checkpoint and for every run that loads it.
    """
    if folder.is_file():
        return TrackedArtifact("model", folder.stem, {"fingerprint": hash_files([folder])}, {folder.name: folder})
    files = {str(part): folder / part for part in (CHECKPOINT, Path(MANIFEST)) if (folder / part).is_file()}
    if not (folder / CHECKPOINT).is_file():  # an exported artifact or a shipped checkpoint
        files = {path.name: path for path in sorted(folder.glob("*.safetensors"))} | files
    facts: dict[str, Any] = {"fingerprint": hash_files(list(files.values()))}
    if runs := read_run_ids(folder):
        facts["trained_in"] = runs
    return TrackedArtifact("model", folder.name, facts, files)


def report_artifact(name: str, files: Sequence[Path]) -> TrackedArtifact:
    """Return the artifact of the report of a job.

    Args:
        name: Name of the run folder.
        files: Files of the report: ``report.md``, ``report.html``, ``metrics.json`` and additional pages.
    """
    return TrackedArtifact("report", name, {"fingerprint": hash_files(files)}, {file.name: file for file in files})


def read_run_ids(folder: Path) -> dict[str, str]:
    """Return the run ids of a system by the name of the logger.

    Args:
        folder: Folder of the system.

    Returns:
        Run ids. Empty if the file does not exist or is invalid.
    """
    with suppress(OSError, ValueError):
        ids = json.loads((folder / RUN_IDS).read_text(encoding="utf-8"))
        return {str(name): str(run_id) for name, run_id in ids.items()}
    return {}


def write_run_ids(folder: Path, ids: Mapping[str, str]) -> None:
    """Write the run ids of a system.

    Args:
        folder: Folder of the system.
        ids: Run ids by the name of the logger.
    """
    write_json(folder / RUN_IDS, dict(ids))
