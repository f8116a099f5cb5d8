"""``graphrerank COMMAND``: run a command, which is a module of :mod:`graphrerank.cli` or of an installed plugin."""

import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from graphrerank.cli.console import closed_pipes_ignored, records_shown
from graphrerank.cli.errors import format_warning, report_end, report_error, terminating
from graphrerank.cli.overrides import quoted
from graphrerank.installation.conf_folder import conf_folder
from graphrerank.installation.extras import require_extra
from graphrerank.installation.plugins import command_entries, describe_entry_point, plugin_command_help
from graphrerank.utils.checks import UserError


class Main(Protocol):
    """Function ``main`` of a command's module, which parses the arguments itself and runs the command."""

    def __call__(self, arguments: Sequence[str], /) -> int:
        """Run the command.

        Args:
            arguments: Command-line arguments after the name of the command.

        Returns:
            Exit status.
        """
        ...


@dataclass(frozen=True)
class Command:
    """Description of a ``graphrerank`` command.

    Attributes:
        usage: Arguments for ``graphrerank --help``.
        summary: One-line description for ``graphrerank --help``.
        config: File of ``conf`` that Hydra composes for the module's ``run(cfg)``. If None, the module's
            ``main(arguments)`` parses the arguments itself.
        extra: Extra that the command needs (``pip install graphrerank[EXTRA]``).
        positional: Setting that an argument without ``=`` sets. If None, there are no positional arguments.
        module: Module that runs the command. If None, the module of ``graphrerank.cli`` with the command's name.
    """

    usage: str
    summary: str
    config: str | None = None
    extra: str = "train"
    positional: str | None = None
    module: str | None = None

    def help_heading(self, name: str) -> str:
        """Return the first lines of the command's help: its usage, and what it does.

        Args:
            name: Name of the command.
        """
        lines = [f"usage: graphrerank {name} {self.usage}", "", f"{self.summary[0].upper()}{self.summary[1:]}."]
        if self.config is not None and self.config != name:
            lines.append(f"The settings are those of graphrerank {self.config}.")
        return "\n".join(lines)


COMMANDS = {
    "train": Command("SETTING=... ...", "train a reranker, and evaluate it against untrained baselines", "train"),
    "evaluate": Command("checkpoint=... ...", "compare checkpoints, pipelines and run files on data sets", "evaluate"),
    "serve": Command("checkpoint=... ...", "answer HTTP requests from a checkpoint or an artifact", "serve", "serve"),
    "demo": Command("SETTING=... ...", "search MITRE ATT&CK in the browser", "serve", "serve"),
    "export": Command("checkpoint=... ...", "write a checkpoint as an artifact to serve", "export"),
    "push": Command("MODEL OWNER/NAME", "upload a model with a model card to the hub", extra="encoders"),
    "prepare": Command(
        "FOLDER data=... ...", "encode and index a data set, or change a corpus folder", "prepare", "train", "folder"
    ),
    "forget": Command("LOG USER", "delete all logged events of a user", extra="serve"),
    "calibrate": Command("checkpoint=... ...", "calibrate the scores of a checkpoint to probabilities", "calibrate"),
    "learn": Command(
        "LOG data=... ...", "update a checkpoint from logged clicks, if it then ranks better", "learn", "serve", "log"
    ),
    "report": Command("RUN RUN ...", "compare finished runs, or average training runs over their seeds"),
    "build": Command(
        "NAME --from F ...", "convert a public data set or a repository's history into a data set", extra="build"
    ),
    "judge": Command(
        "DATA", "judge questions about DATA on a page in the browser", "judge", "train", positional="dataset"
    ),
    "doctor": Command(
        "[DATA ...]", "show the installation, or say which system to deploy for DATA", "doctor", "train", "dataset"
    ),
}


@cache
def commands() -> dict[str, Command]:
    """Return the built-in commands and those of installed plugins, by name.

    Returns:
        Commands in the order of ``graphrerank --help``.

    Raises:
        ValueError: If the command of a plugin has the name of a built-in command, or has no usage or summary.
    """
    added = {}
    for name, entry in command_entries().items():
        if name in COMMANDS:
            raise UserError(f"{describe_entry_point(entry)} must not have a name in {sorted(COMMANDS)}")
        usage, summary = plugin_command_help(entry)
        added[name] = Command(usage, summary, module=entry.value)
    return {**COMMANDS, **added}


FLAGS = """
graphrerank COMMAND --help describes the settings of a command. --cfg job prints their values without running it.
eval "$(graphrerank -sc install=bash)" enables completion in bash (or zsh; in fish: ... | source).
"""


def main(arguments: Sequence[str] | None = None, *, conf: Path | None = None) -> int:
    """Run a command of ``graphrerank``.

    Args:
        arguments: Command and its arguments. If None, those of ``sys.argv`` are used.
        conf: Folder of settings. If None, the folder of the package is used.

    Returns:
        Exit status.
    """
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    name = words[0]
    warnings.formatwarning = format_warning
    logs_json = name in ("serve", "demo")  # these commands log JSON to standard error
    with closed_pipes_ignored(), terminating() as signals, records_shown(progress=not logs_json):
        try:
            status = _run(name, words[1:], conf or conf_folder())
            sys.stdout.flush()
            return status
        except KeyboardInterrupt:
            return report_end(signals)
        except Exception as error:
            return report_error(error, signals=signals)


def _run(name: str, arguments: list[str], conf: Path) -> int:
    if name == "-sc":
        name, arguments = _completing(arguments)
    command = commands().get(name)
    if command is not None:
        module = command.module or f"graphrerank.cli.{name}"
        if command.config is None or (name == "doctor" and not arguments):
            command_main: Main = import_module(module).main
            return command_main(arguments)
        overrides = settings(name, arguments)
        require_extra(command.extra, f"graphrerank {name}")
        from graphrerank.cli.hydra_jobs import run_hydra

        return run_hydra(
            command.config,
            overrides,
            conf.absolute(),
            lambda cfg: import_module(module).run(cfg),
            command=name,
            heading=command.help_heading(name),
        )
    if name in ("--help", "-h", "help"):
        usages = {name: f"graphrerank {name} {command.usage}" for name, command in commands().items()}
        width = max(map(len, usages.values()))
        lines = [f"  {usages[name]:{width}}  {command.summary}" for name, command in commands().items()]
        print("graphrerank: learned graph rerankers for graph RAG", "", *lines, FLAGS, sep="\n", end="")
    elif name == "--version":
        print(f"graphrerank {version('graphrerank')}")
    elif name == "--commands":
        print(*commands())
    else:
        print(f"unknown command {name!r}. graphrerank --help lists all commands", file=sys.stderr)
        return 2
    return 0


def settings(name: str, arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command as overrides of settings.

    Args:
        name: Name of the command.
        arguments: Command-line arguments. One of them may be a positional argument, which has no ``=``.

    Returns:
        Overrides and flags for Hydra.

    Raises:
        ValueError: If there are too many positional arguments.

    Example:
        >>> settings("prepare", ["my corpus", "data=folder"])
        ["folder='my corpus'", 'data=folder']
    """
    positional = commands()[name].positional
    overrides: list[str] = []
    flags = False  # after -m, -c job and the like
    for argument in arguments:
        is_path = positional is not None and Path(argument).exists()
        is_word = ("=" not in argument or is_path) and not argument.startswith(("-", "~")) and not flags
        flags = argument.startswith("-")
        if is_word and positional is None:
            raise UserError(f"arguments of graphrerank {name} must be settings (NAME=...), got {argument!r}")
        if is_word and any(override.startswith(f"{positional}=") for override in overrides):
            raise UserError(f"graphrerank {name} accepts only one {positional}, got {argument!r} in addition")
        overrides.append(f"{positional}={quoted(argument)}" if is_word else argument)
        needs_group = any(word.startswith("data.") for word in arguments) and not any(
            word.startswith("data=") for word in arguments
        )
        if is_word and positional == "dataset" and needs_group:
            is_folder = Path(argument).is_dir()
            overrides += ["data=folder", f"data.path={quoted(argument)}"] if is_folder else [f"data={quoted(argument)}"]
    return overrides


def _completing(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command whose settings the shell completes, and its arguments.

    Hydra's completion scripts put the current line into ``COMP_LINE`` and expect a program without commands, so the
    command is removed from the line.
    """
    if not any(argument.startswith("query=") for argument in arguments):
        return "train", ["-sc", *arguments]
    program, *words = os.environ.get("COMP_LINE", "").split(" ")
    if len(words) < 2 or (words[0] in commands() and commands()[words[0]].config is None):
        return "--commands", []
    overrides = [word for word in words[1:-1] if "=" in word]
    os.environ["COMP_LINE"] = " ".join([program, *overrides, words[-1]])
    return words[0], ["-sc", *arguments]


if __name__ == "__main__":
    sys.exit(main())
