"""Execution of commands with Hydra: composition and checks of their settings, errors and exit statuses."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from graphrerank.cli import schema
from graphrerank.cli.errors import report_end, report_error, terminating
from graphrerank.cli.overrides import read_override
from graphrerank.cli.run_folder import check_run_name, print_sweep_table, remove_if_empty
from graphrerank.installation.plugins import check_settings_folders
from graphrerank.utils.redaction import check_no_password

OPEN = ("service.", "settings.", "filter.", "filter={")  # prefixes of mappings that accept new keys
FULL_ERROR = "HYDRA_FULL_ERROR"  # environment variable that prints a traceback for every error


def run_hydra(
    name: str,
    arguments: Sequence[str],
    conf: Path,
    task: Callable[[DictConfig], object],
    *,
    command: str | None = None,
    heading: str = "",
) -> int:
    """Compose ``conf/<name>.yaml`` with overrides, check the settings, and call a task with them.

    The help and the checks do not import torch or Lightning, so that they are fast. A task should therefore import its
    modules when it is called.

    A user error prints one message to standard error. A bug prints a traceback, and with ``HYDRA_FULL_ERROR=1`` every
    error does. Ctrl+C and SIGTERM print one line and stop the command, including all remaining runs of a sweep.

    Args:
        name: Name of the command's file in ``conf``.
        arguments: Overrides of settings, and flags of Hydra.
        conf: Folder of settings.
        task: Function that is called with the composed settings.
        command: Name of the command, whose examples the help shows. If None, ``name`` is used.
        heading: First lines of the help: the usage of the command, and what it does.

    Returns:
        Exit status.
    """
    schema.register(name)
    if set(arguments) & {"--help", "-h"}:
        # printed directly, because Hydra would first compose the command and list all groups, which takes seconds
        print(schema.command_help(name, command=command, heading=heading))
        return 0
    full = os.environ.get(FULL_ERROR, "0") != "0"
    os.environ[FULL_ERROR] = "1"  # makes Hydra raise errors instead of printing them
    failures: list[_FailedRun] = []
    with terminating() as signals:
        try:
            check_settings_folders(conf)
            sys.argv[1:] = read_arguments(arguments)
            hydra.main(version_base="1.3", config_path=str(conf), config_name=name)(_stopping(task, name, failures))()
        except KeyboardInterrupt:
            return report_end(signals)
        except _StoppedError as stopped:
            return report_error(stopped.__cause__ or stopped, full=full, signals=signals)
        except Exception as error:
            if failures and not signals:
                return _report_sweep(failures, full=full)
            return report_error(schema.composition_error(error, name) or error, full=full, signals=signals)
        finally:
            os.environ[FULL_ERROR] = str(int(full))
    return 0


class _StoppedError(BaseException):
    """Wrapper of an error that Hydra does not handle. Hydra would print the overrides again for other errors."""


class _FailedRun(NamedTuple):
    """Run of a sweep that ended with an error.

    Attributes:
        folder: Folder of the sweep.
        name: Number of the run in the sweep.
        overrides: Settings of the run.
        error: Error that ended it.
    """

    folder: Path
    name: str
    overrides: Sequence[str]
    error: Exception


def _report_sweep(failures: Sequence[_FailedRun], *, full: bool) -> int:
    """Print the table of a sweep's finished runs, and every failed run with its error."""
    print_sweep_table(failures[0].folder)
    status = 1
    for failed in failures:
        print(f"run {failed.name} failed ({' '.join(failed.overrides)}):", file=sys.stderr)
        status = report_error(failed.error, full=full)
    return status


def _stopping(
    task: Callable[[DictConfig], object], name: str, failures: list[_FailedRun]
) -> Callable[[DictConfig], object]:
    """Return a function that checks the settings, calls the task, and returns its result to Hydra's sweeper.

    Errors of a single run bypass Hydra. Errors of a sweep's runs are added to ``failures``, and the other runs go on.
    """

    def run(cfg: DictConfig) -> object:
        try:
            schema.check_settings(cfg, name)
            check_run_name(cfg.get("name"))
            return task(cfg)
        except KeyboardInterrupt:
            remove_if_empty(HydraConfig.get())
            raise
        except Exception as error:
            remove_if_empty(HydraConfig.get())
            hydra_config = HydraConfig.get()
            if hydra_config.mode == RunMode.MULTIRUN:
                overrides = list(hydra_config.overrides.task)
                folder = Path(str(hydra_config.sweep.dir))
                failures.append(_FailedRun(folder, str(hydra_config.job.num), overrides, error))
                raise
            raise _StoppedError from error

    return run


def read_arguments(arguments: Sequence[str]) -> list[str]:
    """Return command-line arguments in the form that Hydra's parser requires.

    Settings of pipelines and filters get the prefix ``+``, and paths are quoted.

    Args:
        arguments: Overrides of settings, and flags of Hydra.

    Returns:
        Arguments for Hydra.

    Raises:
        ValueError: If an argument contains a URL with a password, because Hydra would log it.

    Example:
        >>> read_arguments(["settings.fastinsight.budget=50"])
        ['+settings.fastinsight.budget=50']
        >>> read_arguments(["filter={lang: de}"])
        ['+filter={lang: de}']
    """
    for argument in arguments:
        check_no_password(**{argument.lstrip("+~").partition("=")[0]: argument})
    return [read_override(f"+{argument}" if argument.startswith(OPEN) else argument) for argument in arguments]
