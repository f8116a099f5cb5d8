"""Resuming of an interrupted training run: its run folder, and its last checkpoint if the settings are unchanged."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from graphrerank.config.compose import flatten_settings
from graphrerank.models.manifest import MANIFEST, read_manifest
from graphrerank.utils.checks import UserError

LAST = Path("checkpoints", "last.ckpt")  # relative to the model's folder


def run_folder(resume: str | Path) -> Path:
    """Return the folder of the training run to resume.

    Args:
        resume: A run folder of ``graphrerank train``, or a ``.ckpt`` file in it.

    Returns:
        Path of the run folder.

    Raises:
        ValueError: If the path does not exist, or the folder contains no model.
    """
    path = Path(resume)
    if not path.exists():
        raise UserError(
            f"`ckpt_path` must be a run folder or a .ckpt file in a run folder, got {str(resume)!r}, "
            "which does not exist"
        )
    folder = path if path.is_dir() else path.parent.parent.parent
    if not any(folder.glob(f"*/{MANIFEST}")):
        raise UserError(
            f"`ckpt_path` must be in a run folder of graphrerank train, but {folder} does not contain "
            f"<system>/{MANIFEST}"
        )
    return folder


def last_checkpoint(
    resume: str | Path | None, folder: Path, manifest: Mapping[str, Any], decisive: Sequence[str]
) -> Path | None:
    """Return the checkpoint to resume from.

    Args:
        resume: Run folder to resume, or one of its ``.ckpt`` files. None for a new training run.
        folder: Folder of the model in the run.
        manifest: Manifest of the current training run.
        decisive: Names of the manifest entries that must be equal in the training to resume.

    Returns:
        ``resume`` itself if it is a checkpoint of this model, otherwise the last checkpoint of the model. None if the
        model has no checkpoint.

    Raises:
        ValueError: If a decisive entry differs. The message names the entry and lists the settings of the run.
    """
    if resume is None:
        return None
    named = Path(resume)
    last = named if named.is_file() and named.parent.parent == folder else folder / LAST
    if not last.is_file():
        return None
    before, now = (
        dict(flatten_settings({key: content.get(key) for key in decisive}))
        for content in (read_manifest(folder).content, json.loads(json.dumps(manifest)))
    )
    if changed := next((name for name in {**before, **now} if before.get(name) != now.get(name)), None):
        file = folder.parent / ".hydra" / "overrides.yaml"
        given = map(str, OmegaConf.load(file)) if file.is_file() else ["..."]
        ours = shlex.join(part for part in given if not part.startswith(("ckpt_path=", "hydra.run.dir=")))
        raise UserError(
            f"`ckpt_path` must be used with the settings of its run, which has {changed}={before.get(changed)}, got "
            f"{now.get(changed)}. Repeat the settings of the run: {ours} ckpt_path={folder.parent}"
        )
    return last
