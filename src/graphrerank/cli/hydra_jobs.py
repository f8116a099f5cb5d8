"""The commands that take settings of ``conf``, as Hydra runs them."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from graphrerank.cli import schema
from graphrerank.cli.errors import report_end, report_error, terminating
from graphrerank.cli.overrides import read_override
from graphrerank.installation.plugins import check_settings_folders
from graphrerank.utils.redaction import check_no_password

OPEN = ("service.", "settings.", "filter.", "filter={")  # mappings to which keys are added
FULL_ERROR = "HYDRA_FULL_ERROR"  # set by the user: every error with its traceback


def run_hydra(name: str, arguments: Sequence[str], conf: Path, task: Callable[[DictConfig], object]) -> int:
    """Compose ``conf/<name>.yaml`` with overrides, check the settings, and call a task with them.

    Help and the checks need neither torch nor Lightning, so that both are quick. A task should import its module when
    it is called.

    A user's error is one message on standard error. An error of ours has its traceback, and with
    ``HYDRA_FULL_ERROR=1`` every error has. Ctrl+C and SIGTERM end a command with one line, and a sweep with all its
    further runs.

    Args:
        name: Command's file of ``conf``.
        arguments: Overrides of settings, and flags of Hydra.
        conf: Folder of settings.
        task: Function called with the composed settings.

    Returns:
        Exit status.
    """
    schema.register(name)
    if set(arguments) & {"--help", "-h"}:
        # Hydra would compose the command and list all groups before it fills in the same template: seconds of CPU
        print(schema.command_help(name).replace("$$", "$"))
        return 0
    full = os.environ.get(FULL_ERROR, "0") != "0"
    os.environ[FULL_ERROR] = "1"  # so that Hydra lets errors through to this function
    with terminating() as signals:
        try:
            check_settings_folders(conf)
            sys.argv[1:] = read_arguments(arguments)
            hydra.main(version_base="1.3", config_path=str(conf), config_name=name)(_stopping(task, name))()
        except KeyboardInterrupt:
            return report_end(signals)
        except _StoppedError as stopped:
            return report_error(stopped.__cause__ or stopped, full=full, signals=signals)
        except Exception as error:
            return report_error(schema.composition_error(error, name) or error, full=full, signals=signals)
        finally:
            os.environ[FULL_ERROR] = str(int(full))
    return 0


class _StoppedError(BaseException):
    """An error on its way past Hydra, which would print the overrides once more."""


def _stopping(task: Callable[[DictConfig], object], name: str) -> Callable[[DictConfig], None]:
    """Check the settings and call the task. Errors of a single run pass Hydra; in a sweep Hydra names the run."""

    def run(cfg: DictConfig) -> None:
        try:
            schema.check_settings(cfg, name)
            task(cfg)
        except Exception as error:
            if HydraConfig.get().mode == RunMode.MULTIRUN:
                raise
            raise _StoppedError from error

    return run


def read_arguments(arguments: Sequence[str]) -> list[str]:
    """Write settings of pipelines and filters as Hydra adds them, and paths as it reads them.

    URLs with a password, which Hydra would log, are refused.

    Example:
        >>> read_arguments(["settings.fastinsight.budget=50"])
        ['+settings.fastinsight.budget=50']
        >>> read_arguments(["filter={lang: de}"])
        ['+filter={lang: de}']
    """
    for argument in arguments:
        check_no_password(**{argument.lstrip("+~").partition("=")[0]: argument})
    return [read_override(f"+{argument}" if argument.startswith(OPEN) else argument) for argument in arguments]
