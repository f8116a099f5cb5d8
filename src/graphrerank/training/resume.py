"""Resuming of a training run: its folder, its last checkpoint if the settings are unchanged, and more epochs."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from graphrerank.config.compose import flatten_settings
from graphrerank.models.checkpoint import BEST, read_lightning_checkpoint
from graphrerank.models.manifest import MANIFEST, read_manifest
from graphrerank.utils.checks import UserError

LAST = Path("checkpoints", "last.ckpt")  # relative to the model's folder
LATER_ENTRIES = ("training", "optimizer", "scheduler")  # entries that runs of earlier versions do not have


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
        ``resume`` itself if it is a checkpoint of this model, otherwise the last checkpoint of the model, or the best
        one of a run that only saves that. None if the model has no checkpoint.

    Raises:
        ValueError: If a decisive entry differs. The message names the entry and lists the settings of the run.
    """
    if resume is None:
        return None
    named = Path(resume)
    is_named = named.is_file() and named.parent.parent == folder
    candidates = [named] if is_named else [folder / LAST, folder / BEST]
    last = next((path for path in candidates if path.is_file()), None)
    if last is None:
        return None
    content = read_manifest(folder).content
    compared = [key for key in decisive if key in content or key not in LATER_ENTRIES]
    before, now = (
        dict(flatten_settings({key: entries.get(key) for key in compared}))
        for entries in (content, json.loads(json.dumps(manifest)))
    )
    changes = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if changes:
        changed = min(changes, key=lambda name: not name.endswith(".name"))  # before the arguments of a component
        label = changed.removeprefix("training.")
        file = folder.parent / ".hydra" / "overrides.yaml"
        overrides = list(map(str, OmegaConf.load(file))) if file.is_file() else ["..."]
        raise UserError(
            f"`ckpt_path` must be used with the settings of its run, which has {label}={before.get(changed)}, got "
            f"{now.get(changed)}. Repeat the settings of the run: {resume_arguments(overrides, folder.parent)}"
        )
    return last


def resume_arguments(overrides: Sequence[str], run_dir: Path) -> str:
    """Return the command-line arguments that resume a run.

    Args:
        overrides: Settings of the run, as ``NAME=VALUE``.
        run_dir: Folder of the run.

    Returns:
        Arguments, quoted for a shell.

    Example:
        >>> resume_arguments(["loss=bce", "hydra.run.dir=runs/a"], Path("runs/a"))
        'loss=bce ckpt_path=runs/a'
    """
    others = [override for override in overrides if not override.startswith(("ckpt_path=", "hydra.run.dir="))]
    return shlex.join([*others, f"ckpt_path={run_dir}"])


class FinishedTraining(NamedTuple):
    """State of a finished training run.

    Attributes:
        epochs: Number of epochs.
        steps: Number of optimiser steps.
        stopped_early: Whether a callback ended the training before the maximum number of epochs or steps.
    """

    epochs: int
    steps: int
    stopped_early: bool

    def continues(self, max_epochs: int | None, max_steps: int) -> bool:
        """Return whether a resumed run trains on.

        Args:
            max_epochs: Maximum number of epochs of the resumed run. None or -1 for no maximum.
            max_steps: Maximum number of optimiser steps of the resumed run. -1 for no maximum.

        Returns:
            True if there are more epochs and steps than before. False if the training stopped early, because further
            epochs would have been skipped in an uninterrupted run, too.

        Example:
            >>> FinishedTraining(epochs=2, steps=8, stopped_early=False).continues(4, -1)
            True
        """
        more_epochs = max_epochs is None or max_epochs == -1 or max_epochs > self.epochs
        return not self.stopped_early and more_epochs and (max_steps == -1 or max_steps > self.steps)

    def explain(self, name: str, run_dir: Path) -> str:
        """Return a sentence on why a resumed run trains no further, and on what to do for more training.

        Args:
            name: Name of the model.
            run_dir: Folder of the run.
        """
        if self.stopped_early:
            return (
                f"{name} stopped early after epoch {self.epochs}, and more epochs do not change that. "
                f"start={run_dir} trains on from its weights"
            )
        return f"{name} is finished after {self.epochs} epochs. A larger trainer.max_epochs trains on"


def finished_training(content: Mapping[str, Any], last: Path) -> FinishedTraining:
    """Return the state of a finished training run.

    Args:
        content: Manifest of the run. Runs of earlier versions have no entry ``trained``.
        last: Last checkpoint of the run.

    Returns:
        Number of epochs and steps, and whether it stopped early.
    """
    if "trained" in content:
        return FinishedTraining(**content["trained"])
    checkpoint = read_lightning_checkpoint(last)
    return FinishedTraining(int(checkpoint["epoch"]) + 1, int(checkpoint["global_step"]), stopped_early=False)
