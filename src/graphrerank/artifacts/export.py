"""Export of a checkpoint's model in several formats, each proven to score as the model does."""

import copy
import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import torch

from graphrerank.artifacts.artifact import read_artifact_manifest
from graphrerank.artifacts.formats import FORMATS, Exportable, Format
from graphrerank.artifacts.parity import (
    NUM_BATCHES,
    TIE_TOLERANCE,
    TOLERANCE,
    example_batch,
    parity_batches,
    parity_differences,
)
from graphrerank.models.checkpoint import WEIGHTS_FILE, Checkpoint, library_versions, load_checkpoint, save_weights
from graphrerank.models.manifest import (
    MANIFEST,
    RerankerManifest,
    check_artifact_file,
    read_manifest,
    seal_manifest,
    write_manifest,
)
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import atomic_folder, sole_use

PREFERRED = "torchscript"  # the format of an artifact, unless the model does not script
OnSkip = Callable[[str, str], None]  # (format, reason): called for each format that is left out


def export_artifact(
    checkpoint: Checkpoint,
    folder: Path,
    formats: Sequence[str] | None = (PREFERRED,),
    *,
    num_batches: int = NUM_BATCHES,
    on_skip: OnSkip = lambda name, reason: None,
) -> Path:
    """Write a checkpoint's model in some formats, and verify that the files score as the model does.

    Everything is written under a temporary name, read back, and compared with the eager model
    (:func:`~graphrerank.artifacts.parity.parity_differences`). A failed export leaves nothing behind and an older
    artifact unchanged.

    Args:
        checkpoint: Model and manifest to export.
        folder: Folder of the artifact. Must be new, empty, or an older artifact, which is replaced.
        formats: Names of :data:`~graphrerank.artifacts.formats.FORMATS` to write. If None, each format that can be
            written on this machine for this model, at least one.
        num_batches: Number of ragged batches on which every format is compared with the eager model.
        on_skip: Called with the name of each format that is left out, and the reason. Only used if ``formats`` is None.

    Returns:
        The resolved folder.

    Raises:
        ValueError: If a format is unknown, cannot be written, or scores differently from the eager model, or if
            ``folder`` holds something other than an artifact.
    """
    folder = folder.resolve()
    chosen = _chosen(formats, on_skip)
    _check_target(folder)
    manifest = checkpoint.manifest.without("artifact")
    eager = copy.deepcopy(checkpoint.model).cpu().eval()
    calibration = manifest.calibration if isinstance(manifest, RerankerManifest) else None
    calibrate = None if calibration is None else calibration.module()
    exportable = Exportable(eager, calibrate, manifest, example_batch(manifest).inputs)
    with atomic_folder(folder) as new:
        for name, form in list(chosen.items()):
            try:
                form.write(exportable, new / form.file)
            except UserError as error:
                del chosen[name]
                if formats is not None or not chosen:
                    raise
                (new / form.file).unlink(missing_ok=True)
                on_skip(name, str(error).splitlines()[0])
        save_weights(new, eager)
        write_manifest(new, manifest.content)
        others = {f"the format {name}": form.load(new / form.file) for name, form in chosen.items()}
        others["the model rebuilt from its weights"] = load_checkpoint(new).model
        batches = parity_batches(manifest, num_batches)
        differences = parity_differences(eager, others, batches, calibration=calibration)
        largest = dict(zip([*chosen, "safetensors"], differences.values(), strict=True))
        parity = {"batches": num_batches, "tolerance": TOLERANCE, "rounding": TIE_TOLERANCE, "max_difference": largest}
        entry = {"inputs": exportable.inputs, "outputs": exportable.outputs, "parity": parity}
        entry["versions"] = library_versions()
        entry["checkpoint"] = checkpoint_fingerprint(checkpoint)
        names = [WEIGHTS_FILE, *(form.file for form in chosen.values())]
        write_manifest(new, seal_manifest({**manifest.content, "artifact": entry}, new, names))
    return folder


def preferred_format(checkpoint: Checkpoint) -> str:
    """Return the format in which a checkpoint is served unless the user names another one.

    Args:
        checkpoint: Model and manifest.

    Returns:
        TorchScript, or for a model that does not script the first format that can express it and be written on this
        machine. TorchScript if there is none, whose export then says why.
    """
    manifest = checkpoint.manifest.without("artifact")
    eager = copy.deepcopy(checkpoint.model).cpu().eval()
    exportable = Exportable(eager, None, manifest, example_batch(manifest).inputs)
    names = (name for name, form in FORMATS.items() if form.missing() is None and form.can_express(exportable))
    return next(names, PREFERRED)


def export_once(checkpoint: Checkpoint, folder: Path, formats: Sequence[str]) -> tuple[Path, bool]:
    """Return an artifact of a checkpoint, exported only if ``folder`` does not hold it already (:func:`is_exported`).

    Two processes that need the same artifact at the same time export it once: the second one waits and reuses it.

    Args:
        checkpoint: Model and manifest to export.
        folder: Folder of the artifact, as in :func:`export_artifact`.
        formats: Names of the formats that the artifact needs. One that has more is reused, too.

    Returns:
        The resolved folder, and whether it was exported now.
    """
    folder, formats = folder.resolve(), list(_chosen(formats, lambda name, reason: None))
    with sole_use(folder.parent, wait=True):
        if is_exported(checkpoint, folder, formats):
            return folder, False
        return export_artifact(checkpoint, folder, formats), True


def is_exported(checkpoint: Checkpoint, folder: Path, formats: Sequence[str]) -> bool:
    """Return whether a folder holds an intact artifact of a checkpoint, by these library versions, in some formats.

    Args:
        checkpoint: Model and manifest that the artifact must have been exported from.
        folder: Folder that may hold the artifact.
        formats: Names of the formats that it must have.

    Returns:
        True if the artifact can be served in the place of a new export. False for a damaged, older or foreign folder.
    """
    with suppress(UserError, OSError):
        manifest = read_artifact_manifest(folder)
        entry = manifest.content["artifact"]
        if (entry.get("checkpoint"), entry.get("versions")) == (checkpoint_fingerprint(checkpoint), library_versions()):
            for name in (WEIGHTS_FILE, *(FORMATS[name].file for name in formats)):
                check_artifact_file(folder, manifest, name)
            return True
    return False


def checkpoint_fingerprint(checkpoint: Checkpoint) -> str:
    """Return the SHA-256 of a checkpoint's weights and manifest, whatever kind of file they were read from.

    Args:
        checkpoint: Model and manifest. The entry ``artifact`` of the manifest does not count.

    Returns:
        Hexadecimal digits.
    """
    content = {key: entry for key, entry in checkpoint.manifest.content.items() if key != "artifact"}
    sha = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name, weight in sorted(checkpoint.model.state_dict().items()):
        weight = weight.detach().cpu().contiguous()
        sha.update(repr((name, weight.dtype, tuple(weight.shape))).encode())
        sha.update(weight.flatten().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def _chosen(formats: Sequence[str] | None, on_skip: OnSkip) -> dict[str, Format]:
    """Return the formats to write by name, in the order of ``FORMATS``."""
    if formats is None:
        reasons = {name: form.missing() for name, form in FORMATS.items() if name != PREFERRED}
        for name, reason in reasons.items():
            if reason is not None:
                on_skip(name, reason)
        return {name: form for name, form in FORMATS.items() if reasons.get(name) is None}
    if not formats or not set(formats) <= FORMATS.keys():
        raise UserError(f"`formats` must be one or more of {list(FORMATS)}, got {list(formats)}")
    return {name: form for name, form in FORMATS.items() if name in formats}


def _check_target(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: needed a folder for the artifact, found a file")
    names = {file.name for file in folder.iterdir()} if folder.exists() else set()
    foreign = sorted(names - {WEIGHTS_FILE, MANIFEST, *(form.file for form in FORMATS.values())})
    if names and (foreign or MANIFEST not in names or read_manifest(folder).artifact is None):
        found = f"{foreign[0]!r}" if foreign else "no manifest of an artifact"
        raise UserError(f"{folder}: needed an empty folder or an artifact to replace, found {found}; choose another")
