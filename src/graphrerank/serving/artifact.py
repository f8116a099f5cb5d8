"""Artifacts: folders of an exported model that can be served.

An artifact is a checkpoint folder (``manifest.json``, ``model.safetensors``) with a file for each format. The entry
``artifact`` of the manifest has the schema of inputs and outputs, the parity, and the SHA-256 of all files.
"""

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from graphrerank.checks import UserError
from graphrerank.models.checkpoint import WEIGHTS
from graphrerank.models.manifest import Manifest, check_file, check_manifest, read_manifest
from graphrerank.serving.formats import FORMATS, Format


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
    for name in (chosen.file, WEIGHTS):
        check_file(folder, manifest, name)
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


def artifact_formats(manifest: Manifest) -> dict[str, Format]:
    """Return the formats of an artifact, by name, TorchScript first."""
    files = {} if manifest.artifact is None else manifest.artifact.sha256
    return {name: form for name, form in FORMATS.items() if form.file in files}
