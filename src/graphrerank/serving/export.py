"""Export of a checkpoint's model in several formats, each proven to score as the model does."""

import copy
from collections.abc import Sequence
from pathlib import Path

from graphrerank.checks import UserError
from graphrerank.files import atomic_folder
from graphrerank.models.checkpoint import WEIGHTS, Checkpoint, library_versions, load_checkpoint, save_weights
from graphrerank.models.manifest import (
    MANIFEST,
    RerankerManifest,
    read_manifest,
    seal_manifest,
    write_manifest,
)
from graphrerank.serving.formats import FORMATS, Exportable
from graphrerank.serving.parity import (
    NUM_BATCHES,
    ROUNDING,
    TOLERANCE,
    example_batch,
    parity_batches,
    parity_differences,
)


def export_artifact(
    checkpoint: Checkpoint, folder: Path, formats: Sequence[str] = ("torchscript",), *, num_batches: int = NUM_BATCHES
) -> Path:
    """Write a checkpoint's model in some formats, and verify that the files score as the model does.

    All is written under a temporary name, read back, and compared with the eager model on ``num_batches``
    (:func:`~graphrerank.serving.parity.parity_differences`). A failed export leaves nothing behind, an older artifact
    unchanged, and is a ValueError. ``folder`` is new, empty, or an older artifact, which is replaced; ``formats`` are
    some of :data:`~graphrerank.serving.formats.FORMATS`.
    """
    if not formats or not set(formats) <= FORMATS.keys():
        raise UserError(f"`formats` must be one or more of {list(FORMATS)}, got {list(formats)}")
    folder, chosen = folder.resolve(), {name: FORMATS[name] for name in FORMATS if name in formats}
    _check_target(folder)
    manifest = checkpoint.manifest.without("artifact")
    eager = copy.deepcopy(checkpoint.model).cpu().eval()
    calibration = manifest.calibration if isinstance(manifest, RerankerManifest) else None
    calibrate = None if calibration is None else calibration.module()
    exportable = Exportable(eager, calibrate, manifest, example_batch(manifest).inputs)
    with atomic_folder(folder) as new:
        for form in chosen.values():
            form.write(exportable, new / form.file)
        save_weights(new, eager)
        write_manifest(new, manifest.content)
        others = {f"the format {name}": form.load(new / form.file) for name, form in chosen.items()}
        others["the model rebuilt from its weights"] = load_checkpoint(new).model
        batches = parity_batches(manifest, num_batches)
        differences = parity_differences(eager, others, batches, calibration=calibration)
        largest = dict(zip([*chosen, "safetensors"], differences.values(), strict=True))
        parity = {"batches": num_batches, "tolerance": TOLERANCE, "rounding": ROUNDING, "max_difference": largest}
        entry = {"inputs": exportable.inputs, "outputs": exportable.outputs, "parity": parity}
        entry["versions"] = library_versions()
        names = [WEIGHTS, *(form.file for form in chosen.values())]
        write_manifest(new, seal_manifest({**manifest.content, "artifact": entry}, new, names))
    return folder


def _check_target(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: needed a folder for the artifact, found a file")
    names = {file.name for file in folder.iterdir()} if folder.exists() else set()
    foreign = sorted(names - {WEIGHTS, MANIFEST, *(form.file for form in FORMATS.values())})
    if names and (foreign or MANIFEST not in names or read_manifest(folder).artifact is None):
        found = f"{foreign[0]!r}" if foreign else "no manifest of an artifact"
        raise UserError(f"{folder}: needed an empty folder or an artifact to replace, found {found}; choose another")
