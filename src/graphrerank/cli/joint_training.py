"""Training by several processes, of which the first one alone prints, writes and evaluates.

With ``trainer.strategy=ddp`` Lightning starts the same command once more for every further device; ``torchrun`` and
Slurm start it for all of them. With ``trainer=ray`` the workers of Ray Train run the command.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import setup_globals
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, read_write

from graphrerank.checks import UserError
from graphrerank.cli import schema
from graphrerank.extras import require_extra
from graphrerank.processes import is_first_process

JOINT_JOB = "graphrerank.cli.train.train"  # the one that processes can do together
OWN_PRINT = {"RAY_TRAIN_ENABLE_PRINT_PATCH": "0"}  # Ray's print shows the output of every worker
RAY_STRATEGY = "ray.train.lightning.RayDDPStrategy"
# what Lightning's launcher sets
LAUNCHED = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")


@contextmanager
def joint_training() -> Iterator[None]:
    """Let the trainers of a block share the processes that the first of them starts; end the group with the block.

    Lightning starts them with the command line, which for a run of a sweep is that of the whole sweep, and leaves
    their group's address in the environment, where the next run would look for processes that are gone.
    """
    environment = {name: os.environ.get(name) for name in LAUNCHED}
    os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))  # else Lightning chooses a number
    arguments, hydra = sys.argv, HydraConfig.get()
    own_folder = hydra.run.dir
    if hydra.mode == RunMode.MULTIRUN:
        sys.argv = [arguments[0], *hydra.overrides.task]
        _set_folder(hydra.runtime.output_dir)
    if Path(arguments[0]).stem == "graphrerank":  # the console script takes the command first
        sys.argv = [arguments[0], str(hydra.job.config_name), *sys.argv[1:]]
    try:
        yield
        if dist.is_initialized():
            dist.barrier()  # no process leaves while another still reads from it
    finally:
        sys.argv = arguments
        _set_folder(own_folder)
        if dist.is_initialized():
            dist.destroy_process_group()
        for name, setting in environment.items():
            os.environ.pop(name, None)
            if setting is not None:
                os.environ[name] = setting


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


def is_for_ray(cfg: DictConfig) -> bool:
    """Return whether a configuration's trainer is one of Ray Train."""
    return bool(OmegaConf.is_dict(cfg.trainer.strategy) and cfg.trainer.strategy.get("_target_") == RAY_STRATEGY)


def train_on_ray(cfg: DictConfig, run: Callable[[DictConfig], object]) -> Path:
    """Let ``trainer.num_nodes`` workers ``run`` the command, and print the folder that they wrote to.

    They see one file system. The cluster is that of ``RAY_ADDRESS``, or else one that is started here.
    """
    require_extra("ray", "trainer=ray")
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    schema.check_settings(cfg, "train")
    workers, folder = int(cfg.trainer.num_nodes), Path(cfg.paths.run_dir).absolute()
    state, place = Singleton.get_state(), (str(Path.cwd()), list(sys.path), list(sys.argv))
    here = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": workers, "include_dashboard": False}
    own = not ray.is_initialized()
    if own:
        ray.init(logging_level="WARNING", **({"address": "local"} if here else {}), **here)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".ray-", dir=folder.parent) as storage:
            TorchTrainer(
                partial(_work, cfg, run, state, place, str(folder)),
                scaling_config=ScalingConfig(num_workers=workers, use_gpu=cfg.trainer.accelerator in ("gpu", "cuda")),
                run_config=RunConfig(storage_path=storage, name="train", worker_runtime_env={"env_vars": OWN_PRINT}),
            ).fit()
    finally:
        if own:
            ray.shutdown()
    print(folder, flush=True)
    return folder


def _work(cfg: DictConfig, run: Callable[[DictConfig], object], state: Any, place: Any, folder: str) -> None:
    """Do the command's job as one worker, where the command was given: its working folder, path and arguments."""
    working, sys.path[:], sys.argv = place
    os.chdir(working)
    schema.register()
    setup_globals()
    Singleton.set_state(state)
    hydra: Any = HydraConfig.instance().cfg
    with read_write(hydra.hydra.overrides):  # the folder that all write to is named, as for torchrun
        hydra.hydra.overrides.hydra.append(f"hydra.run.dir={folder}")
    run(cfg)
