"""Distributed training from the command line, in which only the first process prints, writes and evaluates.

With ``trainer.strategy=ddp``, Lightning starts the same command again for every additional device. ``torchrun`` and
Slurm start the command for all devices. With ``trainer=ray``, the workers of Ray Train run the command
(:mod:`graphrerank.cli.ray_training`).
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

JOINT_JOB = "graphrerank.cli.train.train"  # the only job that supports several processes


@contextmanager
def joint_training() -> Iterator[None]:
    """Share one group of processes between all training runs of a ``with`` block.

    Lightning starts the processes with the command line in ``sys.argv``. In a sweep, ``sys.argv`` is that of the whole
    sweep, so the block uses that of the current run. ``sys.argv`` and the run folder in Hydra's configuration are
    restored at the end of the block.

    Yields:
        None.
    """
    from graphrerank.training.joint import shared_processes  # imports Lightning

    arguments, hydra = sys.argv, HydraConfig.get()
    own_folder = hydra.run.dir
    if hydra.mode == RunMode.MULTIRUN:
        sys.argv = [arguments[0], *hydra.overrides.task]
        _set_folder(hydra.runtime.output_dir)
    if Path(arguments[0]).stem == "graphrerank":  # the first argument of the console script is the command
        sys.argv = [arguments[0], str(hydra.job.config_name), *sys.argv[1:]]
    try:
        with shared_processes():
            yield
    finally:
        sys.argv = arguments
        _set_folder(own_folder)


def check_processes(cfg: DictConfig) -> None:
    """Check that several processes are only used for ordinary training, and with a common run folder.

    Args:
        cfg: Configuration of the command.

    Raises:
        ValueError: If there are several processes and the job does not support them, or ``hydra.run.dir`` is not set.
    """
    if "trainer" not in cfg:
        return
    first = is_first_process()
    if OmegaConf.select(cfg, "job._target_") == JOINT_JOB:
        if not first and not folder_is_named(HydraConfig.get()):
            raise UserError("`hydra.run.dir` must be set if a launcher such as torchrun starts the processes, got none")
    elif not first or (cfg.trainer.devices != 1 and instantiate(cfg.trainer, logger=False).world_size > 1):
        raise UserError(
            f"`trainer.devices` must be 1 for this job, which supports a single process, got {cfg.trainer.devices}"
        )


def folder_is_named(hydra: Any, kind: str = "run") -> bool:
    """Return whether the command line sets the output folder.

    Args:
        hydra: Hydra's configuration.
        kind: ``"run"`` or ``"sweep"``.
    """
    return any(override.lstrip("+").startswith(f"hydra.{kind}.dir=") for override in hydra.overrides.hydra)


def _set_folder(folder: str) -> None:
    """Set the run folder that Lightning passes to the processes it starts."""
    cfg: Any = HydraConfig.instance().cfg
    with read_write(cfg.hydra.run):
        cfg.hydra.run.dir = folder
