"""``train.py trainer=ray``: the command by the workers of Ray Train, which train together as those of ``ddp``."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import setup_globals
from omegaconf import DictConfig, OmegaConf, read_write

from graphrerank.cli import schema
from graphrerank.extras import require_extra

OWN_PRINT = {"RAY_TRAIN_ENABLE_PRINT_PATCH": "0"}  # Ray's print ignores that only the first worker's is to be seen
STRATEGY = "ray.train.lightning.RayDDPStrategy"


def is_for_ray(cfg: DictConfig) -> bool:
    """Return whether a configuration's trainer is one of Ray Train."""
    return bool(OmegaConf.is_dict(cfg.trainer.strategy) and cfg.trainer.strategy.get("_target_") == STRATEGY)


def train_on_ray(cfg: DictConfig) -> Path:
    """Let ``trainer.num_nodes`` workers do the job of the command, and print the folder that they wrote to.

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
                lambda: _work(cfg, state, place, str(folder)),
                scaling_config=ScalingConfig(num_workers=workers, use_gpu=cfg.trainer.accelerator in ("gpu", "cuda")),
                run_config=RunConfig(storage_path=storage, name="train", worker_runtime_env={"env_vars": OWN_PRINT}),
            ).fit()
    finally:
        if own:
            ray.shutdown()
    print(folder, flush=True)
    return folder


def _work(cfg: DictConfig, state: Any, place: tuple[str, list[str], list[str]], folder: str) -> None:
    """Do the command's job as one worker, where the command was given."""
    working, sys.path[:], sys.argv = place
    os.chdir(working)
    schema.register()
    setup_globals()
    Singleton.set_state(state)
    hydra: Any = HydraConfig.instance().cfg
    with read_write(hydra.hydra.overrides):  # the folder that all write to is named, as for torchrun
        hydra.hydra.overrides.hydra.append(f"hydra.run.dir={folder}")
    from graphrerank.cli.jobs import run_job

    run_job(cfg, "train")
