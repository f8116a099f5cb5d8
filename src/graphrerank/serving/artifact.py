"""Artifacts: what serves. A folder of an exported model, its weights, and a manifest with the proof that they agree.

An artifact is a checkpoint folder (``manifest.json``, ``model.safetensors``) with a file for each format beside it
and an ``artifact`` entry in the manifest: input and output schema, parity measured at export, the SHA-256 of all files
and of the manifest.
"""

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from graphrerank.models.checkpoint import WEIGHTS
from graphrerank.models.integrity import check_file, check_manifest
from graphrerank.models.manifest import Manifest, read_manifest
from graphrerank.serving.formats import FORMATS, Format


@dataclass(frozen=True)
class Artifact:
    """An exported model.

    Attributes:
        module: The model in one format, in evaluation mode, on the CPU: it takes what
            :func:`~graphrerank.serving.schema.input_schema` lists and gives the scores.
        manifest: The checkpoint's manifest with the ``artifact`` entry.
        folder: Where it lies.
    """

    module: nn.Module
    manifest: Manifest
    folder: Path


def load_artifact(folder: Path, format_name: str | None = None) -> Artifact:
    """Load an artifact and check its files against the manifest.

    Its file may be a program, as TorchScript is: load it only from a folder that whoever runs this has named.

    Args:
        folder: Where it lies.
        format_name: One of its formats; None for the first one, TorchScript where there is any.

    Raises:
        ValueError: If the folder is no artifact or not in that format, a file or the manifest is not as exported, or
            the file cannot be loaded here.
    """
    manifest = read_artifact_manifest(folder)
    held = artifact_formats(manifest)
    if format_name is None and held:
        format_name = next(iter(held))
    if format_name not in held:
        raise ValueError(f"{folder}: holds the formats {list(held)}, got `format` {format_name!r}; export it again")
    for name in (held[format_name].file, WEIGHTS):
        check_file(folder, manifest, name)
    module = held[format_name].load(folder / held[format_name].file)
    return Artifact(module, manifest, folder)


def read_artifact_manifest(folder: Path) -> Manifest:
    """Read an artifact's manifest and hold it against its hash.

    Raises:
        ValueError: If there is none, or it was changed.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such artifact")
    manifest = read_manifest(folder)
    if manifest.artifact is None:
        raise ValueError(
            f"{folder}: not an artifact, its manifest has no `artifact`; make one with serve.py mode=export"
        )
    check_manifest(folder, manifest)
    return manifest


def artifact_formats(manifest: Manifest) -> dict[str, Format]:
    """Return the formats that an artifact holds, by name, the contracted one first."""
    files = {} if manifest.artifact is None else manifest.artifact.sha256
    return {name: form for name, form in FORMATS.items() if form.file in files}
