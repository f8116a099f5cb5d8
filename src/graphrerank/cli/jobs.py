"""From a composed configuration to its one job: checked by name and type, built, called, and its folder printed."""

import inspect
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from copy import deepcopy
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, get_type_hints

from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from graphrerank.cli.command import CommandContext
from graphrerank.cli.joint_training import check_processes
from graphrerank.config.command_settings import check_type
from graphrerank.models.registry import register_model
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import sole_use
from graphrerank.utils.processes import is_first_process
from graphrerank.utils.quiet import quiet_lightning

Job = Callable[..., Path | None]  # takes a command; or parts and a run folder, and to train a `TrainingPlan`


@quiet_lightning()
def run_job(cfg: DictConfig, job: Job | None = None) -> Path | None:
    """Call a job, and print the folder that it wrote to as the last line.

    Args:
        cfg: Checked settings of the command.
        job: Function to call. If None, the one that ``cfg.job`` describes.

    Returns:
        Folder of the run. None if the job wrote none, and in all processes of a joint training but the first.
    """
    check_processes(cfg)
    if cfg.get("logger"):
        from graphrerank.cli.tracking.trackers import check_loggers  # imports Lightning

        check_loggers(cfg.logger)  # before anything is computed
    register_models(cfg.models)
    job, command = job or build_job(cfg), CommandContext(cfg)
    helps = "trainer" in cfg and not is_first_process()  # to train: the first one prints, and holds the folder
    with redirect_stdout(StringIO()) if helps else sole_use(command.run_dir):
        try:
            folder = _call(job, command)
        except BaseException:
            command.tracking.close(failed=True)
            raise
        command.tracking.reads_job(cfg.get("job") or {})
        command.tracking.finish(cfg, folder, {"command": command.line, "config": command.config})
    if folder is not None and not helps:
        print(folder, flush=True)
    return None if helps else folder


def _call(job: Job, command: CommandContext) -> Path | None:
    """Call a job with the command; an experiment with parts and a folder, and if it trains with ``training``."""
    parameters = inspect.signature(job).parameters
    if len(parameters) == 1:
        return job(command)
    if "training" not in parameters:
        return job(command.parts, command.run_dir)
    from graphrerank.cli.training_settings import training_folder, training_plan  # imports Lightning

    with training_folder(command) as run_dir:
        return job(command.parts, run_dir, training_plan(command))


def build_job(cfg: DictConfig) -> Job:
    """Build a configuration's ``job``: a class with its settings, or a function without any."""
    node = deepcopy(cfg).job
    target = check_plan(node, "job")
    if not isinstance(target, type):
        return partial(target)
    try:
        job: Job = instantiate(node, _convert_="all")
    except InstantiationException as error:
        if isinstance(error.__cause__, ValueError):
            raise error.__cause__ from None
        raise
    return job


def register_models(paths: Sequence[str]) -> None:
    """Let checkpoints name the classes that a command's ``models`` names."""
    for path in paths:
        try:
            register_model(get_object(path))
        except (ImportError, ValueError) as error:
            raise UserError(f"`models` must name classes of models, got {path!r}: {error}") from error


def check_plan(node: DictConfig, key: str) -> Any:
    """Return the class or function of settings with a ``_target_``, at any depth with the types of its parameters.

    ``key`` is the place of the settings in the configuration, for messages.
    """
    if not OmegaConf.is_dict(node) or "_target_" not in node:
        raise UserError(f"`{key}` must be settings with a `_target_`, the class to build, got {node}")
    try:
        target = get_object(node._target_)
    except (ImportError, ValueError) as error:
        raise UserError(f"`{key}._target_` must name a class, got {node._target_!r}: {error}") from error
    if not isinstance(target, type):
        return target
    signature = inspect.signature(target)
    given = [str(name) for name in node if not str(name).startswith("_")]
    try:
        (signature.bind_partial if node.get("_partial_") else signature.bind)(**dict.fromkeys(given))
    except TypeError as error:
        settings = list(signature.parameters)
        raise UserError(f"`{key}`: {error}; the settings of {target.__name__} are {settings}") from None
    types = get_type_hints(target.__init__)  # type: ignore[misc]
    for name in given:
        _check_setting(node, name, f"{key}.{name}", types.get(name, Any))
    return target


def _check_setting(node: DictConfig, name: str, key: str, needed: Any) -> None:
    try:
        setting = node[name]
    except OmegaConfBaseException as error:
        raise UserError(f"`{key}` must be set: {str(error).splitlines()[0]}") from error
    if OmegaConf.is_dict(setting) and "_target_" in setting:
        if not OmegaConf.is_interpolation(node, name):
            check_plan(setting, key)
        return
    check_type(setting, needed, key)
