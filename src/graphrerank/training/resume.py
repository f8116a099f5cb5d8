"""Resume a training that was interrupted: find its run folder, and its last checkpoint if the settings are the same."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from graphrerank.config.compose import flatten_settings
from graphrerank.models.manifest import MANIFEST, read_manifest
from graphrerank.utils.checks import UserError

LAST = Path("checkpoints", "last.ckpt")  # in a model's folder


def run_folder(resume: str | Path) -> Path:
    """Return the run folder that a training is resumed in.

    Args:
        resume: A run folder of ``train.py``, or a ``.ckpt`` file in it.

    Raises:
        ValueError: If there is no such path, or no model in the folder.
    """
    path = Path(resume)
    if not path.exists():
        raise UserError(f"`ckpt_path` must be a run folder or a .ckpt file in one, got {str(resume)!r}: no such path")
    folder = path if path.is_dir() else path.parent.parent.parent
    if not any(folder.glob(f"*/{MANIFEST}")):
        raise UserError(f"`ckpt_path` must lie in a run folder of train.py, but {folder} holds no <system>/{MANIFEST}")
    return folder


def last_checkpoint(
    resume: str | Path | None, folder: Path, manifest: Mapping[str, Any], decisive: Sequence[str]
) -> Path | None:
    """Return the checkpoint to resume from.

    Args:
        resume: Run folder to resume, or one of its ``.ckpt`` files; None for a new training.
        folder: Folder of the model in the run.
        manifest: The manifest of the training that begins now.
        decisive: Names of the manifest's entries that must be those of the training to resume.

    Returns:
        ``resume`` itself where it is a checkpoint of this model, else the model's last one; None if there is none.

    Raises:
        ValueError: If a decisive entry differs. The message names it, and the settings of the run.
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
            f"`ckpt_path` needs the settings of its run, which was trained with {changed}={before.get(changed)}, got "
            f"{now.get(changed)}; give them again: {ours} ckpt_path={folder.parent}"
        )
    return last
