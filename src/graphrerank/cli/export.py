"""Export of a checkpoint to an artifact, for ``graphrerank export`` and ``graphrerank serve``."""

from pathlib import Path

from omegaconf import DictConfig

from graphrerank.artifacts.artifact import read_artifact_manifest
from graphrerank.artifacts.export import (
    checkpoint_fingerprint,
    export_artifact,
    export_once,
    is_exported,
    preferred_format,
)
from graphrerank.artifacts.formats import FORMATS
from graphrerank.models.checkpoint import Checkpoint, load_primary
from graphrerank.rerank.hub import is_hub_id, locate_model, model_source
from graphrerank.utils.checks import UserError

SLOW = "aot"  # format that takes minutes to compile


def run(cfg: DictConfig) -> Path:
    """Run ``graphrerank export``.

    Args:
        cfg: Settings of ``conf/export.yaml``.

    Returns:
        The artifact's folder.
    """
    return export(cfg)


def export(cfg: DictConfig) -> Path:
    """Export a checkpoint, and print the largest score difference between each format and the checkpoint.

    The last printed line is the folder of the artifact.

    Args:
        cfg: Settings with ``checkpoint``, ``revision``, ``artifact``, ``formats`` and ``paths.run_dir``.

    Returns:
        The artifact's folder.
    """
    formats = None if cfg.formats is None else list(cfg.formats)
    checkpoint = load_named_checkpoint(cfg)
    if SLOW in (FORMATS if formats is None else formats) and FORMATS[SLOW].missing() is None:
        print(f"{SLOW}: compiling for this type of processor takes minutes", flush=True)
    folder = export_artifact(checkpoint, Path(cfg.artifact or cfg.paths.run_dir), formats, on_skip=print_skipped)
    parity = read_artifact_manifest(folder).content["artifact"]["parity"]
    for name, difference in parity["max_difference"].items():
        print(f"{name}: differs from the eager scores by at most {difference:.1e}, on {parity['batches']} batches")
    print(folder, flush=True)
    return folder


def exported(cfg: DictConfig) -> Path:
    """Export ``checkpoint`` unless its artifact already exists, and return the artifact.

    Args:
        cfg: Settings of ``conf/serve.yaml``. The artifact is written to ``artifact`` or, if null, to a folder in
            ``<paths.runs>/export`` whose name contains the checkpoint's fingerprint. ``formats`` and ``format``
            determine the formats (:func:`formats_to_serve`).

    Returns:
        The artifact's folder.
    """
    checkpoint = load_named_checkpoint(cfg)
    usual = Path(cfg.paths.runs, "export", f"{checkpoint.manifest.name}-{checkpoint_fingerprint(checkpoint)[:12]}")
    folder = Path(cfg.artifact or usual)
    formats = formats_to_serve(cfg, checkpoint, folder)
    folder, is_new = export_once(checkpoint, folder, formats)
    print(f"{'exported' if is_new else 'already exported:'} {cfg.checkpoint} as {', '.join(formats)}", flush=True)
    return folder


def formats_to_serve(cfg: DictConfig, checkpoint: Checkpoint, folder: Path) -> list[str]:
    """Return the formats in which a checkpoint is exported before it is served.

    Args:
        cfg: Settings with ``formats`` and ``format``.
        checkpoint: Checkpoint to export.
        folder: Folder of the artifact. If it already contains an artifact of this checkpoint, its format is reused.

    Returns:
        ``formats`` if set. Otherwise ``format`` and the preferred format, which is TorchScript unless the model cannot
        be scripted (:func:`~graphrerank.artifacts.export.preferred_format`).
    """
    if cfg.formats is not None:
        return list(cfg.formats)
    ready = (name for name in FORMATS if is_exported(checkpoint, folder, [name]))
    preferred = next(ready, None) or preferred_format(checkpoint)
    return [name for name in FORMATS if name in (preferred, cfg.format)]


def load_named_checkpoint(cfg: DictConfig) -> Checkpoint:
    """Load the checkpoint of the setting ``checkpoint``. In a run folder, this is the primary model.

    Args:
        cfg: Settings with ``checkpoint`` and ``revision``.

    Returns:
        The checkpoint.

    Raises:
        ValueError: If ``checkpoint`` is null or cannot be loaded.
    """
    if cfg.checkpoint is None:
        raise UserError(
            "`checkpoint` must be a run folder, a .ckpt file, the name of a shipped checkpoint or owner/name, got null"
        )
    name = str(cfg.checkpoint)
    located = locate_model(name, revision=cfg.revision)
    if is_hub_id(name):
        print(model_source(name, located), flush=True)
    return load_primary(located)


def print_skipped(name: str, reason: str) -> None:
    """Print that a format is not exported.

    Args:
        name: Name of the format.
        reason: Reason, for the message.
    """
    print(f"{name}: skipped, {reason}", flush=True)
