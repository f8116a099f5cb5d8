"""Training by several processes from the command line: the first one alone prints, writes and evaluates.

With ``trainer.strategy=ddp`` Lightning starts the same command once more for every further device; ``torchrun`` and
Slurm start it for all of them.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, read_write

from graphrerank.utils.checks import UserError
from graphrerank.utils.processes import is_first_process

JOINT_JOB = "graphrerank.cli.train.train"  # the one that processes can do together


@contextmanager
def joint_training() -> Iterator[None]:
    """Let the trainers of a block share the processes that the first of them starts, by the same command line.

    Lightning starts them with ``sys.argv``, which for a run of a sweep is that of the whole sweep. It is restored at
    the end of the block, and so is the run folder in Hydra's configuration.
    """
    from graphrerank.training.joint import shared_processes  # imports Lightning

    arguments, hydra = sys.argv, HydraConfig.get()
    own_folder = hydra.run.dir
    if hydra.mode == RunMode.MULTIRUN:
        sys.argv = [arguments[0], *hydra.overrides.task]
        _set_folder(hydra.runtime.output_dir)
    if Path(arguments[0]).stem == "graphrerank":  # the console script takes the command first
        sys.argv = [arguments[0], str(hydra.job.config_name), *sys.argv[1:]]
    try:
        with shared_processes():
            yield
    finally:
        sys.argv = arguments
        _set_folder(own_folder)


def check_processes(cfg: DictConfig) -> None:
    """Refuse several processes of another job than the ordinary training, or without a folder in common."""
    if "trainer" not in cfg:
        return
    first = is_first_process()
    if OmegaConf.select(cfg, "job._target_") == JOINT_JOB:
        if not first and not folder_is_named(HydraConfig.get()):
            raise UserError("`hydra.run.dir` must be set for processes that are started from outside, got none")
    elif not first or (cfg.trainer.devices != 1 and instantiate(cfg.trainer, logger=False).world_size > 1):
        raise UserError(f"`trainer.devices` must be 1 for this job, which is one process's, got {cfg.trainer.devices}")


def folder_is_named(hydra: Any, kind: str = "run") -> bool:
    """Return whether the command line says where to write, for a ``run`` or a ``sweep``."""
    return any(override.lstrip("+").startswith(f"hydra.{kind}.dir=") for override in hydra.overrides.hydra)


def _set_folder(folder: str) -> None:
    """Set the run folder that Lightning names to the processes that it starts."""
    cfg: Any = HydraConfig.instance().cfg
    with read_write(cfg.hydra.run):
        cfg.hydra.run.dir = folder
