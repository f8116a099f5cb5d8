"""Execution of the job of a composed configuration: check its settings, build it, call it, and print its folder."""

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

#: Function of a :class:`CommandContext`, or of a component factory, a run folder and (optionally) a training plan.
Job = Callable[..., Path | None]


@quiet_lightning()
def run_job(cfg: DictConfig, job: Job | None = None) -> Path | None:
    """Call a job, and print its run folder as the last line.

    Args:
        cfg: Checked settings of the command.
        job: Function to call. If None, the job is built from ``cfg.job``.

    Returns:
        Run folder. None if the job wrote none. In distributed training, None in all processes except the first.
    """
    check_processes(cfg)
    if cfg.get("logger"):
        from graphrerank.cli.tracking.trackers import check_loggers  # imports Lightning

        check_loggers(cfg.logger)  # fail before anything is computed
    register_models(cfg.models)
    job, command = job or build_job(cfg), CommandContext(cfg)
    helps = "trainer" in cfg and not is_first_process()  # only the first process prints and locks the folder
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
    """Call a job with the command, or an experiment with the factory, the run folder and, if it trains, the plan."""
    parameters = inspect.signature(job).parameters
    if len(parameters) == 1:
        return job(command)
    if "training" not in parameters:
        return job(command.parts, command.run_dir)
    from graphrerank.cli.training_settings import training_folder, training_plan  # imports Lightning

    with training_folder(command) as run_dir:
        return job(command.parts, run_dir, training_plan(command))


def build_job(cfg: DictConfig) -> Job:
    """Build the job of a configuration, which is an instance of a class or a function without settings.

    Args:
        cfg: Configuration with ``job``.

    Returns:
        The job.

    Raises:
        ValueError: If a setting of the job is unknown or invalid.
    """
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
    """Register model classes, so that checkpoints can load them.

    Args:
        paths: Import paths of the classes, as ``PACKAGE.CLASS``.

    Raises:
        ValueError: If a path cannot be imported, or is not a model class.
    """
    for path in paths:
        try:
            register_model(get_object(path))
        except (ImportError, ValueError) as error:
            raise UserError(f"`models` must contain import paths of model classes, got {path!r}: {error}") from error


def check_plan(node: DictConfig, key: str) -> Any:
    """Check settings with a ``_target_`` against the parameters and types of their class, including nested settings.

    Args:
        node: Settings to check.
        key: Key of the settings in the configuration, for messages.

    Returns:
        Class or function that ``_target_`` names.

    Raises:
        ValueError: If the target cannot be imported, or a setting is unknown, missing or of a wrong type.
    """
    if not OmegaConf.is_dict(node) or "_target_" not in node:
        raise UserError(f"`{key}` must be a mapping with the class to build as `_target_`, got {node}")
    try:
        target = get_object(node._target_)
    except (ImportError, ValueError) as error:
        raise UserError(f"`{key}._target_` must name a class, got {node._target_!r}: {error}") from error
    if not isinstance(target, type):
        return target
    signature = inspect.signature(target)
    arguments = [str(name) for name in node if not str(name).startswith("_")]
    try:
        (signature.bind_partial if node.get("_partial_") else signature.bind)(**dict.fromkeys(arguments))
    except TypeError as error:
        settings = list(signature.parameters)
        raise UserError(f"`{key}`: {error}; the settings of {target.__name__} are {settings}") from None
    types = get_type_hints(target.__init__)  # type: ignore[misc]
    for name in arguments:
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
