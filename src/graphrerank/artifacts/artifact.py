"""Artifacts: folders of an exported model that can be served.

An artifact is a checkpoint folder (``manifest.json``, ``model.safetensors``) with a file for each format. The entry
``artifact`` of the manifest has the schema of inputs and outputs, the parity, and the SHA-256 of all files.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from graphrerank.artifacts.formats import FORMATS, Format
from graphrerank.corpus.edge_types import EDGE_TYPES, MEANINGS
from graphrerank.models.checkpoint import WEIGHTS_FILE
from graphrerank.models.manifest import Manifest, check_artifact_file, check_manifest, read_manifest
from graphrerank.utils.checks import UserError


@dataclass(frozen=True)
class Artifact:
    """An exported model."""

    module: nn.Module  # in evaluation mode, on the CPU; maps the inputs of its `input_schema` to the scores
    manifest: Manifest  # the checkpoint's, with the entry `artifact`
    folder: Path


def load_artifact(folder: Path, format_name: str | None = None) -> Artifact:
    """Load an artifact; a ValueError if it lacks the format, was changed, or cannot be loaded here.

    Its file may be a program, as TorchScript is: load artifacts only from a folder that the operator named. Without
    ``format_name`` the first format is loaded, TorchScript if present.
    """
    manifest = read_artifact_manifest(folder)
    formats = artifact_formats(manifest)
    chosen = formats.get(next(iter(formats), "") if format_name is None else format_name)
    if chosen is None:
        raise UserError(f"{folder}: has the formats {list(formats)}, got `format` {format_name!r}; export it again")
    for name in (chosen.file, WEIGHTS_FILE):
        check_artifact_file(folder, manifest, name)
    return Artifact(chosen.load(folder / chosen.file), manifest, folder)


def read_artifact_manifest(folder: Path) -> Manifest:
    """Read an artifact's manifest; a ValueError if there is none, or it was changed."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such artifact")
    manifest = read_manifest(folder)
    if manifest.artifact is None:
        raise UserError(f"{folder}: not an artifact, as its manifest has no `artifact`; run graphrerank export")
    check_manifest(folder, manifest)
    return manifest


def artifact_name(manifest: Manifest) -> str:
    """Return the name of an artifact with a hash of its weights."""
    assert manifest.artifact is not None
    return f"{manifest.name}@{manifest.artifact.sha256[WEIGHTS_FILE][:12]}"


def model_info(manifest: Manifest) -> dict[str, Any]:
    """Return the model's part of ``GET /info``: its manifest, whether it reads types of edges, and their names."""
    names = {name: [name, *MEANINGS.get(name, "").split()] for name in EDGE_TYPES}
    return {**manifest.content, "edge_types": {"are_read": manifest.inputs.reads_edge_types, "names": names}}


def fastest_format(manifest: Manifest, device: str) -> str | None:
    """Return the format that answers the most requests: machine code on a CPU if there is any, else None."""
    return "aot" if "aot" in artifact_formats(manifest) and device == "cpu" else None


def artifact_formats(manifest: Manifest) -> dict[str, Format]:
    """Return the formats of an artifact, by name, TorchScript first."""
    files = {} if manifest.artifact is None else manifest.artifact.sha256
    return {name: form for name, form in FORMATS.items() if form.file in files}
