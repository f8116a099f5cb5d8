"""Lightning's checkpoints, written whole or not at all."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from graphrerank.files import atomic_path


class AtomicCheckpoints(TorchCheckpointIO):
    """Write each checkpoint next to its target, then rename it.

    Lightning's own writer moves it there from the system's temporary folder; where that is on another file system the
    move is a copy, and a full disk leaves half a ``last.ckpt`` in the place of a whole one.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write a checkpoint; a ValueError if there are ``storage_options``, which are of remote file systems."""
        if storage_options is not None:
            raise ValueError(f"`storage_options` must be None for a local checkpoint, got {storage_options!r}")
        with atomic_path(Path(path)) as temporary:
            torch.save(checkpoint, temporary)
