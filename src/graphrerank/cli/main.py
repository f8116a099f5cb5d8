"""``graphrerank train``, ``evaluate``, ``serve``, ``prepare`` and ``doctor``: the command line of the wheel."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from graphrerank.cli.settings_help import is_asked, settings_help
from graphrerank.conf_folder import conf_folder
from graphrerank.extensions import settings_folders
from graphrerank.extras import require_extra

HYDRA_JOBS = {
    "train": "train",
    "evaluate": "train",
    "serve": "serve",
    "prepare": "train",
    "demo": "serve",
}  # -> the extra it needs
HELP = """graphrerank: learned graph rerankers for graph RAG

  graphrerank train SETTING=... ...     train a reranker, and judge it beside the retriever and frozen systems
  graphrerank evaluate checkpoint=...   judge checkpoints, pipelines and run files on data sets
  graphrerank serve artifact=...        export a checkpoint (mode=export), or answer HTTP requests from one
  graphrerank demo                      look at rankings of MITRE ATT&CK in the browser, from what is installed
  graphrerank prepare FOLDER data=...   write a data set as a corpus folder, encoded and indexed
  graphrerank index DOCUMENTS --out F   write a folder of Markdown, HTML, JSON, CSV, PDF or code as a data set folder
  graphrerank build NAME --from F ...   write a public data set from the files that its authors publish
  graphrerank doctor                    what is installed, and what is missing for what; device; cache
  graphrerank doctor DATA               whether the graph of a data set folder helps, or what to judge to find out
  graphrerank completion SHELL          a script for bash, zsh or fish that completes commands and settings

graphrerank COMMAND --help lists its settings, which are those of train.py, evaluate.py and serve.py.
"""


def main(arguments: Sequence[str] | None = None, *, conf: Path | None = None) -> int:
    """Run the command that the arguments name, and return the exit status.

    ``conf`` is the folder of settings; None for the package's.

    Example:
        >>> main(["--version"])  # doctest: +ELLIPSIS
        graphrerank ...
        0
    """
    command, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        if command in HYDRA_JOBS or (command == "doctor" and rest):
            status = run_job_command(command, rest, conf or conf_folder())
        elif command in COMMANDS:
            status = COMMANDS[command](rest)
        else:
            print(f"unknown command {command!r}; graphrerank --help lists them", file=sys.stderr)
            return 2
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # as `head` reads no further
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError) as error:  # of reading arguments, and of packages that are missing
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def run_job_command(command: str, arguments: Sequence[str], conf: Path) -> int:
    """Run one of ``HYDRA_JOBS`` with overrides of the settings in the folder ``conf``, or print these for ``--help``.

    Raises:
        MissingExtraError: If its extra is not installed; ``--help`` needs none.
    """
    name, settings = script_and_settings(command, arguments)
    if is_asked(arguments):
        print(lines_of_help(command), settings_help(name, settings, [conf, *settings_folders()]), sep="\n\n", end="")
        return 0
    require_extra(HYDRA_JOBS.get(command, "train"), f"graphrerank {command}")
    from graphrerank.cli.hydra_jobs import run_hydra

    return run_hydra(name, settings, conf.absolute())


def lines_of_help(command: str) -> str:
    """Return what the list of commands says of one.

    Example:
        >>> print(lines_of_help("demo"))
          graphrerank demo                      look at rankings of MITRE ATT&CK in the browser, from what is installed
    """
    return "\n".join(line for line in HELP.splitlines() if line.split()[:2] == ["graphrerank", command])


def script_and_settings(command: str, arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return which of ``train``, ``evaluate`` and ``serve`` a command is, and with which settings.

    Example:
        >>> script_and_settings("demo", ["port=8080"])
        ('serve', ['mode=demo', 'port=8080'])
    """
    if command == "prepare":
        return "evaluate", prepare_arguments(arguments)
    if command == "doctor":
        return "evaluate", diagnose_arguments(arguments)
    if command == "demo":
        return "serve", ["mode=demo", *arguments]
    return command, list(arguments)


def prepare_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of ``evaluate.py`` that prepare a folder.

    Example:
        >>> prepare_arguments(["out", "data=folder"])
        ['prepare=out', 'data=folder']
    """
    folders = [argument for argument in arguments if "=" not in argument and not argument.startswith("-")]
    if len(folders) > 1:
        raise ValueError(f"graphrerank prepare takes one folder to write, got {folders}")
    if not folders and not any(argument.startswith(("prepare=", "-")) for argument in arguments):
        raise ValueError("graphrerank prepare needs a folder to write: graphrerank prepare FOLDER data=...")
    return [f"prepare={argument}" if argument in folders else argument for argument in arguments]


def diagnose_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of ``evaluate.py`` that diagnose a data set, whose settings need its group.

    Example:
        >>> diagnose_arguments(["my_data", "encoder=minilm"])
        ['diagnose=my_data', 'encoder=minilm']
        >>> diagnose_arguments(["attack", "data.edges=auto"])
        ['diagnose=attack', 'data.edges=auto', 'data=attack']
    """
    named = [argument for argument in arguments if "=" not in argument and not argument.startswith("-")]
    if len(named) > 1:
        raise ValueError(f"graphrerank doctor takes one data set, got {named}")
    written = [f"diagnose={argument}" if argument in named else argument for argument in arguments]
    has_settings = any(argument.startswith("data.") for argument in arguments)
    if named and has_settings and not any(argument.startswith("data=") for argument in arguments):
        is_folder = Path(named[0]).is_dir()
        written += ["data=folder", f"data.path={named[0]}"] if is_folder else [f"data={named[0]}"]
    return written


def _help(arguments: Sequence[str]) -> int:
    print(HELP, end="")
    return 0


def _version(arguments: Sequence[str]) -> int:
    print(f"graphrerank {version('graphrerank')}")
    return 0


def _doctor(arguments: Sequence[str]) -> int:
    from graphrerank.cli.doctor import examination

    print(examination(dict(os.environ)))
    return 0


def _index(arguments: Sequence[str]) -> int:
    from graphrerank.cli.folder_commands import index_command

    return index_command(arguments)


def _build(arguments: Sequence[str]) -> int:
    from graphrerank.cli.folder_commands import build_command

    return build_command(arguments)


def _completion(arguments: Sequence[str]) -> int:
    from graphrerank.cli.completion import completion_script

    if is_asked(arguments):
        print(lines_of_help("completion"))
        return 0
    print(completion_script(*arguments), end="")
    return 0


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "index": _index,
    "build": _build,
    "doctor": _doctor,
    "completion": _completion,
    "--help": _help,
    "-h": _help,
    "help": _help,
    "--version": _version,
}


if __name__ == "__main__":
    sys.exit(main())
