"""A run folder of its own for every command, claimed before Hydra writes its first file into it."""

from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, read_write

from graphrerank.cli.joint_training import folder_is_named
from graphrerank.files import claim_folder
from graphrerank.processes import is_first_process


class ClaimRunFolder(Callback):
    """Give two commands that start in the same second two folders.

    A run folder is named by the second. Where it is taken, the next gets a number after it. A folder that the command
    line names (``hydra.run.dir=DIR``) is the user's to choose, and may be there already.

    Args:
        goes_on: Whether the job goes on in the folder of an earlier run, so that ``hydra.run.dir`` is taken as it is.
    """

    def __init__(self, *, goes_on: bool = False) -> None:
        self._goes_on = goes_on

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Claim ``hydra.run.dir``."""
        if not self._goes_on:
            _claim(config, "run")

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Claim ``hydra.sweep.dir``, in which each run has a folder by its number."""
        _claim(config, "sweep")


def _claim(config: DictConfig, kind: str) -> None:
    key = f"hydra.{kind}.dir"
    if folder_is_named(config.hydra, kind) or ("trainer" in config and not is_first_process()):
        return
    claimed = claim_folder(Path(str(OmegaConf.select(config, key))))
    with read_write(config.hydra):
        OmegaConf.update(config, key, str(claimed))
