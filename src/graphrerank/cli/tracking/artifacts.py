"""Artifacts of tracked runs: data sets and checkpoints that a run read, checkpoints and reports that it wrote."""

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

RUN_IDS = "tracking.json"  # in a system's folder: the ids of its runs by logger, which a resumed command continues
CHECKPOINT = Path("checkpoints", "best.ckpt")  # in a system's folder


@dataclass(frozen=True)
class TrackedArtifact:
    """Something that a run read or wrote.

    Attributes:
        kind: ``dataset``, ``model`` or ``report``.
        name: Its name among those of its kind.
        facts: JSON facts about it; ``fingerprint`` identifies its content.
        files: Its files by their names in the artifact. Without files, the facts are the content.
    """

    kind: str
    name: str
    facts: Mapping[str, Any]
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Kind and name as one word that every tracker accepts."""
        return re.sub(r"[^\w.-]+", "-", f"{self.kind}-{self.name}")


def dataset_artifact(dataset: Dataset) -> TrackedArtifact:
    """Describe a data set by its fingerprint and its counts; its files are not part of the artifact."""
    splits = {name: len(qrels.queries) for name, qrels in dataset.splits.items()}
    facts = {"passages": dataset.graph.num_nodes, "edges": dataset.graph.num_edges // 2, "queries": splits}
    return TrackedArtifact("dataset", dataset.name, {"fingerprint": dataset.fingerprint, **facts})


def folder_artifact(folder: Path) -> TrackedArtifact:
    """Describe a folder of documents and questions that a job reads without building a data set.

    Args:
        folder: The folder; the fingerprint is that of its files ``corpus.*`` and ``queries.*``.
    """
    files = sorted(file for name in ("corpus", "queries") for file in folder.glob(f"{name}.*") if file.is_file())
    return TrackedArtifact(
        "dataset", folder.name, {"fingerprint": hash_files(files), "files": [file.name for file in files]}
    )


def model_artifact(folder: Path) -> TrackedArtifact:
    """Describe a checkpoint: its weights, its manifest and the ids of the runs that trained it.

    Args:
        folder: A system's folder within a run, an exported artifact, or a ``.ckpt`` file without a run folder.

    Returns:
        The artifact, the same for the run that wrote the checkpoint and for every run that reads it.
    """
    if folder.is_file():
        return TrackedArtifact("model", folder.stem, {"fingerprint": hash_files([folder])}, {folder.name: folder})
    files = {str(part): folder / part for part in (CHECKPOINT, Path(MANIFEST)) if (folder / part).is_file()}
    if not (folder / CHECKPOINT).is_file():  # exported, or shipped with the package
        files = {path.name: path for path in sorted(folder.glob("*.safetensors"))} | files
    facts: dict[str, Any] = {"fingerprint": hash_files(list(files.values()))}
    if runs := read_run_ids(folder):
        facts["trained_in"] = runs
    return TrackedArtifact("model", folder.name, facts, files)


def report_artifact(name: str, files: Sequence[Path]) -> TrackedArtifact:
    """Describe the report of a job.

    Args:
        name: Name of the run folder.
        files: ``report.md``, ``report.html``, ``metrics.json``, and any further page.
    """
    return TrackedArtifact("report", name, {"fingerprint": hash_files(files)}, {file.name: file for file in files})


def read_run_ids(folder: Path) -> dict[str, str]:
    """Return the ids of a system's runs by the name of their logger; none if they were not written."""
    with suppress(OSError, ValueError):
        ids = json.loads((folder / RUN_IDS).read_text(encoding="utf-8"))
        return {str(name): str(run_id) for name, run_id in ids.items()}
    return {}


def write_run_ids(folder: Path, ids: Mapping[str, str]) -> None:
    """Write the ids of a system's runs by the name of their logger."""
    write_json(folder / RUN_IDS, dict(ids))
