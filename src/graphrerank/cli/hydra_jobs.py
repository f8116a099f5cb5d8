"""``train``, ``evaluate`` and ``serve`` as Hydra runs them, and how their errors are printed."""

import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, InstantiationException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from graphrerank.cli import schema
from graphrerank.cli.arguments import read_arguments
from graphrerank.extensions import check_settings

FULL_ERROR = "HYDRA_FULL_ERROR"  # set by the user: every error with its traceback
INTERRUPTED = 130  # exit status of a command that Ctrl+C ended, as shells give it
UNCHOSEN = re.compile(r"Could not override '(?P<group>data|encoder|retriever|pipeline)\.(?P<key>[\w.]+)'")
PACKAGE = Path(__file__).parents[1]


def train(cfg: DictConfig) -> None:
    """Run the job of ``conf/train.yaml``."""
    from graphrerank.cli.jobs import run_job
    from graphrerank.cli.ray_training import is_for_ray, train_on_ray
    from graphrerank.cli.session import Session

    if is_for_ray(cfg):
        train_on_ray(cfg)
    else:
        run_job(cfg, schema.TrainConfig, Session)


def evaluate(cfg: DictConfig) -> None:
    """Run the job of ``conf/evaluate.yaml``."""
    from graphrerank.cli.jobs import run_job
    from graphrerank.cli.session import Session

    run_job(cfg, schema.EvaluateConfig, Session)


def serve(cfg: DictConfig) -> None:
    """Export an artifact, time it, or serve it over HTTP."""
    from graphrerank.cli.serve import serve as serve_artifact

    schema.check_keys(cfg, schema.ServeConfig)
    serve_artifact(cfg)


TASKS = {"train": train, "evaluate": evaluate, "serve": serve}


def run_hydra(name: str, arguments: Sequence[str], conf: Path) -> int:
    """Compose ``conf/<name>.yaml`` with overrides and do its job, or what Hydra's own flags ask for.

    A user's error is one message on standard error; an error of ours has its traceback, and with ``HYDRA_FULL_ERROR=1``
    every error has.

    Returns:
        The exit status.
    """
    schema.register()
    asked = FULL_ERROR in os.environ and os.environ[FULL_ERROR] != "0"
    os.environ[FULL_ERROR] = "1"  # so that Hydra lets errors through to this function
    try:
        check_settings(conf)
        sys.argv[1:] = read_arguments(arguments)
        hydra.main(version_base="1.3", config_path=str(conf), config_name=name)(_stopping(TASKS[name]))()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except (Exception, _StoppedError) as stopped:
        error = stopped.__cause__ if isinstance(stopped, _StoppedError) else stopped
        assert error is not None
        if name == "train":
            from graphrerank.cli.sweep_summary import summarise_failed

            summarise_failed()
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # as `head` reads no further
        elif asked or not is_users(error):
            traceback.print_exception(error)
        else:
            print(with_advice(message_of(error), arguments), file=sys.stderr)
        return 1
    finally:
        os.environ[FULL_ERROR] = str(int(asked))
    return 0


class _StoppedError(BaseException):
    """An error on its way past Hydra, which would print the overrides once more."""


def _stopping(task: Callable[[DictConfig], None]) -> Callable[[DictConfig], None]:
    """Let errors of a single run pass Hydra; in a sweep it says which run failed."""

    def run(cfg: DictConfig) -> None:
        try:
            task(cfg)
        except Exception as error:
            if HydraConfig.get().mode == RunMode.MULTIRUN:
                raise
            raise _StoppedError from error

    return run


def is_users(error: BaseException) -> bool:
    """Return whether an error is about what the user gave: raised by our checks, by Hydra, or by the file system."""
    if isinstance(error, HydraException) and error.__cause__ is not None:  # of what it builds
        return isinstance(error.__cause__, HydraException | OmegaConfBaseException) or is_users(error.__cause__)
    if isinstance(error, HydraException | OmegaConfBaseException | OSError):
        return True
    frames = list(traceback.walk_tb(error.__traceback__))
    ours = bool(frames) and Path(frames[-1][0].f_code.co_filename).is_relative_to(PACKAGE)
    return ours and isinstance(error, ValueError | ImportError)


def with_advice(message: str, arguments: Sequence[str]) -> str:
    r"""Add to Hydra's message about a setting of a group that the command has not chosen how to choose it.

    Example:
        >>> print(with_advice("Could not override 'data.edges'.\nKey 'edges' is not in struct", ["data.edges=auto"]))
        Could not override 'data.edges'.
        Key 'edges' is not in struct
        choose a file of conf/data beside it: data=folder data.path=DIR data.edges=...
    """
    found = UNCHOSEN.search(message)
    if found is None or any(argument.startswith(f"{found['group']}=") for argument in arguments):
        return message
    example = "data=folder data.path=DIR" if found["group"] == "data" else f"{found['group']}=NAME"
    return f"{message}\nchoose a file of conf/{found['group']} beside it: {example} {found['group']}.{found['key']}=..."


def message_of(error: BaseException) -> str:
    """Return what an error says, and what it was caused by where Hydra only says that it failed.

    Hydra's advice to add a setting with ``+`` is left out: no job has settings that ``conf`` has not.
    """
    lines = [line for line in str(error).splitlines() if not line.strip().startswith("To append to your config")]
    message = "\n".join(lines) or type(error).__name__
    if not isinstance(error, HydraException) or error.__cause__ is None:
        return message
    cause = message_of(error.__cause__)
    return cause if isinstance(error, InstantiationException) else f"{message}\n{cause}"
