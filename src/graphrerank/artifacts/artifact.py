"""Load artifacts, which are folders with an exported model that can be served.

An artifact is a checkpoint folder (``manifest.json``, ``model.safetensors``) with one more file for each export format.
The entry ``artifact`` of the manifest records the schema of the inputs and outputs, the result of the parity check, and
the SHA-256 of each file.
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
    """Exported model that has been loaded.

    Attributes:
        module: Model in evaluation mode on the CPU. Maps the inputs of the manifest's input schema to scores.
        manifest: Manifest of the checkpoint, with the entry ``artifact``.
        folder: Folder of the artifact.
    """

    module: nn.Module
    manifest: Manifest
    folder: Path


def load_artifact(folder: Path, format_name: str | None = None) -> Artifact:
    """Load an artifact.

    A file of an artifact can contain executable code, as TorchScript does. Load artifacts only from a folder that the
    operator of the service trusts.

    Args:
        folder: Folder of the artifact.
        format_name: Name of the format to load. If None, the first one that the artifact has in the order of
            ``FORMATS``, which is TorchScript where it is present.

    Returns:
        The artifact with its model.

    Raises:
        ValueError: If the folder is not an artifact, lacks the format, was modified after its export, or cannot be
            loaded on this machine.
    """
    manifest = read_artifact_manifest(folder)
    formats = artifact_formats(manifest)
    chosen = formats.get(next(iter(formats), "") if format_name is None else format_name)
    if chosen is None:
        raise UserError(
            f"{folder}: `format` must be one of {list(formats)}, got {format_name!r}. Export the checkpoint again with "
            "this format"
        )
    for name in (chosen.file, WEIGHTS_FILE):
        check_artifact_file(folder, manifest, name)
    return Artifact(chosen.load(folder / chosen.file), manifest, folder)


def read_artifact_manifest(folder: Path) -> Manifest:
    """Return the manifest of an artifact.

    Args:
        folder: Folder of the artifact.

    Returns:
        The verified manifest.

    Raises:
        ValueError: If the folder does not exist or is not an artifact, or if the manifest was modified after the
            export.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such artifact folder")
    manifest = read_manifest(folder)
    if manifest.artifact is None:
        raise UserError(
            f"{folder} is not an artifact because its manifest has no entry `artifact`. "
            "Export it with graphrerank export"
        )
    check_manifest(folder, manifest)
    return manifest


def artifact_name(manifest: Manifest) -> str:
    """Return a name for an artifact that consists of the model's name and a hash of its weights.

    Args:
        manifest: Manifest of the artifact.
    """
    assert manifest.artifact is not None
    return f"{manifest.name}@{manifest.artifact.sha256[WEIGHTS_FILE][:12]}"


def model_info(manifest: Manifest) -> dict[str, Any]:
    """Return the part of ``GET /info`` that describes the model.

    Args:
        manifest: Manifest of the artifact.

    Returns:
        The content of the manifest, and under ``edge_types`` whether the model distinguishes edge types (``are_read``)
        and the accepted names of each type (``names``).
    """
    names = {name: [name, *MEANINGS.get(name, "").split()] for name in EDGE_TYPES}
    return {**manifest.content, "edge_types": {"are_read": manifest.inputs.reads_edge_types, "names": names}}


def fastest_format(manifest: Manifest, device: str) -> str | None:
    """Return the format with the highest throughput on a device, or None to load the default format.

    Args:
        manifest: Manifest of the artifact.
        device: Name of the device, such as ``cpu`` or ``cuda``. Compiled code (``aot``) runs on the CPU only.
    """
    return "aot" if "aot" in artifact_formats(manifest) and device == "cpu" else None


def artifact_formats(manifest: Manifest) -> dict[str, Format]:
    """Return the formats of an artifact, keyed by name, with TorchScript first.

    Args:
        manifest: Manifest of the artifact. Without an entry ``artifact`` there are no formats.
    """
    files = {} if manifest.artifact is None else manifest.artifact.sha256
    return {name: form for name, form in FORMATS.items() if form.file in files}
