"""``graphrerank train trainer=ray``: the workers of a Ray cluster run the command together."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import setup_globals
from omegaconf import DictConfig, OmegaConf, read_write

from graphrerank.cli import schema
from graphrerank.cli.jobs import run_job
from graphrerank.cli.joint_training import JOINT_JOB
from graphrerank.cli.training_settings import print_resume_command
from graphrerank.training.ray_workers import run_workers
from graphrerank.training.resume import run_folder
from graphrerank.utils.checks import UserError

RAY_STRATEGY = "ray.train.lightning.RayDDPStrategy"


class CommandState(NamedTuple):
    """State of the process in which the command was started, which its workers take over.

    Attributes:
        folder: Working directory.
        path: Module path.
        arguments: Command line.
        singletons: Hydra's singletons, which contain the configuration of the run.
    """

    folder: str
    path: list[str]
    arguments: list[str]
    singletons: Any


def is_for_ray(cfg: DictConfig) -> bool:
    """Return whether the workers of a Ray cluster run the command.

    Args:
        cfg: Configuration of the command.
    """
    strategy = cfg.trainer.strategy
    return bool(OmegaConf.is_dict(strategy) and strategy.get("_target_") == RAY_STRATEGY)


def train_on_ray(cfg: DictConfig) -> Path:
    """Run the command in ``trainer.num_nodes`` workers of a Ray cluster.

    The output of the first worker is printed here. Its last line is the run folder. The environment variable
    ``RAY_ADDRESS`` contains the address of the cluster. Without it, a cluster is started on this machine for the
    command. All machines must share one file system.

    Args:
        cfg: Checked settings of ``conf/train.yaml``.

    Returns:
        Run folder.

    Raises:
        ValueError: If the job does not support several processes, Ray is not installed, or the workers refuse a
            setting.
    """
    if OmegaConf.select(cfg, "job._target_") != JOINT_JOB:
        raise UserError("`trainer` must not be ray for this job, which supports a single process")
    run_dir = Path(cfg.paths.run_dir).absolute()
    state = CommandState(str(Path.cwd()), list(sys.path), list(sys.argv), Singleton.get_state())
    folder = run_dir if cfg.ckpt_path is None else run_folder(cfg.ckpt_path)
    try:
        run_workers(
            partial(run_command, cfg, state, run_dir),
            num_workers=int(cfg.trainer.num_nodes),
            storage=run_dir.parent,
            use_gpu=cfg.trainer.accelerator in ("gpu", "cuda"),
            address=os.environ.get("RAY_ADDRESS"),
        )
    except KeyboardInterrupt:
        print_resume_command(folder)
        raise
    return folder


def run_command(cfg: DictConfig, state: CommandState, run_dir: Path) -> None:
    """Run the command as one worker, with the state of the process in which the command was started.

    Args:
        cfg: Settings of the command.
        state: State of the process in which the command was started.
        run_dir: Run folder that all workers share.
    """
    os.chdir(state.folder)
    sys.path[:], sys.argv = state.path, state.arguments
    schema.register("train")
    setup_globals()
    Singleton.set_state(state.singletons)
    hydra: Any = HydraConfig.instance().cfg
    with read_write(hydra.hydra.overrides):  # all processes write to this folder, as with torchrun
        hydra.hydra.overrides.hydra.append(f"hydra.run.dir={run_dir}")
    run_job(cfg)
