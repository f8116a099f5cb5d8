"""Locate the artifact to serve on this machine, or export it from the weights of a model on the hub."""

import logging
from collections.abc import Callable
from pathlib import Path

import torch

from graphrerank.artifacts.artifact import Artifact, fastest_format, load_artifact, read_artifact_manifest
from graphrerank.artifacts.export import export_artifact
from graphrerank.artifacts.formats import FORMATS, Runner
from graphrerank.models.checkpoint import WEIGHTS_FILE, find_checkpoint, library_versions, load_checkpoint
from graphrerank.models.manifest import MANIFEST, RerankerManifest
from graphrerank.rerank.hub import is_hub_id, locate_model, model_source
from graphrerank.utils.caching import hash_texts, short_hash
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import hash_files

Report = Callable[[str], None]
logger = logging.getLogger(__name__)


def find_artifact(
    name: str,
    *,
    cache: Path,
    format_name: str | None = None,
    revision: str | None = None,
    argument: str = "artifact",
    report: Report = logger.info,
) -> Path:
    """Return the folder of an artifact.

    Args:
        name: Exported folder or a link to one, a name that ships with the package, or ``owner/name`` on the hub. A link
            is returned unresolved, so that it can point to another artifact later.
        cache: Cache folder, to which a model of the hub is exported.
        format_name: Format in which a model of the hub is exported. If None, TorchScript.
        revision: Branch, tag or commit on the hub. If None, the latest.
        argument: Name of the setting, for error messages.
        report: Function called with one line of text for each download and export.

    Returns:
        Folder of the artifact.

    Raises:
        UserError: If there is no such artifact.
    """
    located = locate_model(name, revision=revision)
    if is_hub_id(name):
        report(model_source(name, located))
        return export_from_hub(name, Path(located), cache=cache, format_name=format_name, report=report)
    folder = find_checkpoint(located)
    if not (folder / MANIFEST).is_file():
        raise UserError(
            f"`{argument}` must be an exported folder, got {name!r}, which has no {MANIFEST}. Export a checkpoint with "
            f"graphrerank export checkpoint={name} artifact=DIR"
        )
    return folder


def export_from_hub(
    name: str, downloaded: Path, *, cache: Path, format_name: str | None = None, report: Report = logger.info
) -> Path:
    """Export a model of the hub into the cache, unless it is already there.

    Only the manifest and the safetensors weights are downloaded. Neither can execute code. The export passes the parity
    check. Executable formats such as TorchScript are never downloaded from the hub.

    Args:
        name: Name of the model, for ``report``.
        downloaded: Folder of the downloaded manifest and weights.
        cache: Cache folder.
        format_name: Format to export. If None, TorchScript.
        report: Function called with one line of text before an export.

    Returns:
        Folder of the artifact. Its name depends on the weights, the format and the versions of the libraries.
    """
    formats = [format_name or "torchscript"]
    content = hash_files([downloaded / MANIFEST, downloaded / WEIGHTS_FILE])
    versions = [f"{library} {version}" for library, version in library_versions().items()]
    folder = cache / "artifacts" / short_hash(hash_texts([content, *formats, *versions]))
    if not folder.is_dir():
        report(f"exporting {name} from its weights")
        export_artifact(load_checkpoint(downloaded), folder, formats)
    return folder


def check_format(format_name: str | None) -> None:
    """Check the name of a format.

    Args:
        format_name: Name of the format. None is valid.

    Raises:
        UserError: If there is no such format.
    """
    if format_name not in (None, *FORMATS):
        raise UserError(f"`format` must be one of {list(FORMATS)} or null, got {format_name!r}")


def served_format(folder: Path, format_name: str | None, device: str) -> str | None:
    """Return the format of an artifact that a service loads.

    Args:
        folder: Folder of the artifact.
        format_name: Format chosen by the user. If None, the fastest format on the device.
        device: Device of the service, ``cpu`` or ``cuda``.

    Returns:
        Name of the format, or None for the artifact's first format.
    """
    return format_name or fastest_format(read_artifact_manifest(folder), device)


def open_artifact(folder: Path, format_name: str | None, device: str) -> Artifact:
    """Load an artifact before a service starts, so that errors are reported by the command.

    Args:
        folder: Folder of the artifact.
        format_name: Format to load. If None, the artifact's first format.
        device: Device of the service, ``cpu`` or ``cuda``.

    Returns:
        The loaded artifact.

    Raises:
        UserError: If the artifact lacks the format or is damaged, or if the format of a reranker does not run on the
            device.
    """
    artifact = load_artifact(folder, format_name)
    if isinstance(artifact.manifest, RerankerManifest) and isinstance(artifact.module, Runner):
        artifact.module.check_device(torch.device(device))
    return artifact
