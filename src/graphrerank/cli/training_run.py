"""What every command that trains has in common: the folder that it trains or resumes in, and its settings by model."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from graphrerank.cli.command import CommandContext, portable_config
from graphrerank.training.fit import built_trainer
from graphrerank.training.resume import run_folder
from graphrerank.training.session import TrainingPlan
from graphrerank.training.trainer import built_callbacks
from graphrerank.utils.files import sole_use
from graphrerank.utils.processes import is_first_process


@contextmanager
def training_folder(command: CommandContext) -> Iterator[Path]:
    """Yield the run folder of a training: that of the run to resume (``ckpt_path``), in sole use, or a new one."""
    resume = command.cfg.ckpt_path
    run_dir = command.run_dir if resume is None else run_folder(resume)
    with nullcontext() if resume is None or not is_first_process() else sole_use(run_dir):
        yield run_dir


def model_config(cfg: DictConfig, run_dir: Path, name: str) -> DictConfig:
    """Return a copy of a command's configuration for one model of a run, which names the model's folders."""
    copied = deepcopy(cfg)
    copied.system, copied.paths.run_dir = name, str(run_dir)
    return copied


def resolved(node: Any) -> Any:
    """Return plain settings, with interpolations resolved."""
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


def trainer_settings(cfg: DictConfig) -> dict[str, Any]:
    """Build the arguments ``trainer`` and ``callbacks`` of a training from these groups of the configuration.

    Args:
        cfg: Configuration of one model, as :func:`model_config` returns it.
    """
    return {"trainer": built_trainer(resolved(cfg.trainer)), "callbacks": built_callbacks(resolved(cfg.callbacks))}


def training_plan(command: CommandContext) -> TrainingPlan:
    """Return how an experiment of a command trains: its trainer, callbacks, loggers and the run to resume."""

    def settings(run_dir: Path, name: str) -> Mapping[str, Any]:
        return trainer_settings(model_config(command.cfg, run_dir, name))

    def loggers(run_dir: Path, name: str) -> list[Any]:
        return command.tracking.open(model_config(command.cfg, run_dir, name))

    return TrainingPlan(
        settings=settings, loggers=loggers, resume=command.cfg.ckpt_path, config=portable_config(command.cfg)
    )
