"""Export the model of a checkpoint in several formats and verify that each format reproduces the model's scores."""

import copy
import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import nn

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
from graphrerank.models.granker import GRankerHead
from graphrerank.models.granker_layers import GRankerLayers
from graphrerank.models.manifest import (
    MANIFEST,
    Manifest,
    RerankerManifest,
    check_artifact_file,
    manifest_folder,
    read_manifest,
    seal_manifest,
    write_manifest,
)
from graphrerank.models.registry import model_name
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import atomic_folder, sole_use

PREFERRED = "torchscript"  # default format of an artifact, unless TorchScript cannot express the model
OnSkip = Callable[[str, str], None]  # called as on_skip(format, reason) for each format that is skipped


def export_artifact(
    checkpoint: Checkpoint,
    folder: Path,
    formats: Sequence[str] | None = (PREFERRED,),
    *,
    num_batches: int = NUM_BATCHES,
    on_skip: OnSkip = lambda name, reason: None,
) -> Path:
    """Export the model of a checkpoint and verify that every exported file reproduces the model's scores.

    Of a model with trained last layers of a cross-encoder, the head is exported, and the manifest refers to the
    fine-tuned cross-encoder of the run, which computes the pair vectors.

    All files are written under a temporary name, read back, and compared with the eager model
    (:func:`~graphrerank.artifacts.parity.parity_differences`). A failed export leaves nothing behind, and an older
    artifact in ``folder`` stays unchanged.

    Args:
        checkpoint: Model and manifest to export.
        folder: Folder of the artifact. Must be new, empty, or an older artifact, which is replaced.
        formats: Names of the formats to write, from :data:`~graphrerank.artifacts.formats.FORMATS`. If None, every
            format that can be written for this model on this machine, which must be at least one.
        num_batches: Number of random batches on which every format is compared with the eager model.
        on_skip: Function called with the name of each skipped format and the reason. Only used if ``formats`` is None.

    Returns:
        The resolved folder.

    Raises:
        ValueError: If a format is unknown, cannot be written, or scores differently from the eager model, or if
            ``folder`` contains anything other than an artifact.
    """
    folder = folder.resolve()
    chosen = _chosen(formats, on_skip)
    _check_target(folder)
    fingerprint = checkpoint_fingerprint(checkpoint)
    manifest, eager = _exported_part(checkpoint)
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
        others = {f"format {name}": form.load(new / form.file) for name, form in chosen.items()}
        others["the model rebuilt from its weights"] = load_checkpoint(new).model
        batches = parity_batches(manifest, num_batches)
        differences = parity_differences(eager, others, batches, calibration=calibration)
        largest = dict(zip([*chosen, "safetensors"], differences.values(), strict=True))
        parity = {"batches": num_batches, "tolerance": TOLERANCE, "rounding": TIE_TOLERANCE, "max_difference": largest}
        entry = {"inputs": exportable.inputs, "outputs": exportable.outputs, "parity": parity}
        entry["versions"] = library_versions()
        entry["checkpoint"] = fingerprint
        names = [WEIGHTS_FILE, *(form.file for form in chosen.values())]
        write_manifest(new, seal_manifest({**manifest.content, "artifact": entry}, new, names))
    return folder


def _exported_part(checkpoint: Checkpoint) -> tuple[Manifest, nn.Module]:
    """Return the manifest and a copy of the model to export. If the last layers were trained, it is the head alone."""
    if isinstance(checkpoint.model, GRankerLayers):
        checkpoint = head_checkpoint(checkpoint, checkpoint.model)
    return checkpoint.manifest.without("artifact"), copy.deepcopy(checkpoint.model).cpu().eval()


def head_checkpoint(checkpoint: Checkpoint, model: GRankerLayers) -> Checkpoint:
    """Return the head of a model with trained layers, with a manifest that refers to the fine-tuned cross-encoder.

    Args:
        checkpoint: Checkpoint of the model.
        model: Model of the checkpoint.

    Returns:
        Checkpoint of the head.

    Raises:
        UserError: If the training did not finish, or the folder of the cross-encoder is missing.
    """
    fine_tuned, pair_encoder = checkpoint.manifest.fine_tuned, checkpoint.reranker.pair_encoder
    if fine_tuned is None or pair_encoder is None:
        raise UserError(
            f"{checkpoint.path}: the fine-tuned cross-encoder is written at the end of the training, which did not "
            "finish; resume it with ckpt_path=RUN"
        )
    encoder = (manifest_folder(checkpoint.path) / fine_tuned.folder).resolve()
    if not encoder.is_dir():
        raise UserError(f"{encoder}: no such folder; the head needs the fine-tuned cross-encoder in it")
    arguments = checkpoint.manifest.model.arguments
    head = {name: argument for name, argument in arguments.items() if name not in ("train_last_layers", "encoder")}
    manifest = checkpoint.manifest.with_entries(
        model={"name": model_name(GRankerHead), "arguments": head},
        features=model.granker.feature_names([]),
        pair_encoder={
            **checkpoint.manifest.content["pair_encoder"],
            "arguments": {**pair_encoder.arguments, "model": str(encoder), "revision": None},
            "fingerprint": fine_tuned.fingerprint,
        },
    )
    return Checkpoint(model.granker, manifest.without("fine_tuned"), checkpoint.path)


def preferred_format(checkpoint: Checkpoint) -> str:
    """Return the format in which a checkpoint is served by default.

    Args:
        checkpoint: Model and manifest.

    Returns:
        TorchScript, unless the model cannot be scripted. In that case, the first format that can express the model and
        be written on this machine. If there is none, TorchScript again, so that its export reports the reason.
    """
    manifest, eager = _exported_part(checkpoint)
    exportable = Exportable(eager, None, manifest, example_batch(manifest).inputs)
    names = (name for name, form in FORMATS.items() if form.missing() is None and form.can_express(exportable))
    return next(names, PREFERRED)


def export_once(checkpoint: Checkpoint, folder: Path, formats: Sequence[str]) -> tuple[Path, bool]:
    """Return an artifact of a checkpoint, and export it only if ``folder`` does not have it yet (:func:`is_exported`).

    If two processes need the same artifact at the same time, only one exports it. The other one waits and reuses it.

    Args:
        checkpoint: Model and manifest to export.
        folder: Folder of the artifact, as in :func:`export_artifact`.
        formats: Names of the formats that the artifact needs. An artifact with more formats is reused as well.

    Returns:
        The resolved folder, and whether this call exported the artifact.
    """
    folder, formats = folder.resolve(), list(_chosen(formats, lambda name, reason: None))
    with sole_use(folder.parent, wait=True):
        if is_exported(checkpoint, folder, formats):
            return folder, False
        return export_artifact(checkpoint, folder, formats), True


def is_exported(checkpoint: Checkpoint, folder: Path, formats: Sequence[str]) -> bool:
    """Return whether a folder contains an intact, up-to-date artifact of a checkpoint.

    Args:
        checkpoint: Model and manifest that the artifact must have been exported from.
        folder: Folder that may contain the artifact.
        formats: Names of the formats that the artifact must have.

    Returns:
        True if the artifact can be served instead of a new export. False if it is damaged, was exported from another
        checkpoint, or was exported with other library versions.
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
    """Return the SHA-256 of a checkpoint's weights and manifest, independent of the file that they were read from.

    Args:
        checkpoint: Model and manifest. The manifest's entry ``artifact`` is ignored.

    Returns:
        Hexadecimal digest.
    """
    content = {key: entry for key, entry in checkpoint.manifest.content.items() if key != "artifact"}
    sha = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name, weight in sorted(checkpoint.model.state_dict().items()):
        weight = weight.detach().cpu().contiguous()
        sha.update(repr((name, weight.dtype, tuple(weight.shape))).encode())
        sha.update(weight.flatten().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def _chosen(formats: Sequence[str] | None, on_skip: OnSkip) -> dict[str, Format]:
    """Return the formats to write, keyed by name, in the order of ``FORMATS``."""
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
        raise UserError(f"{folder}: the artifact needs a folder, but this is a file")
    names = {file.name for file in folder.iterdir()} if folder.exists() else set()
    foreign = sorted(names - {WEIGHTS_FILE, MANIFEST, *(form.file for form in FORMATS.values())})
    if names and (foreign or MANIFEST not in names or read_manifest(folder).artifact is None):
        content = f"it contains {foreign[0]!r}" if foreign else "it has no manifest of an artifact"
        raise UserError(
            f"{folder}: the folder must be empty or an artifact to replace, but {content}. Choose another folder"
        )
