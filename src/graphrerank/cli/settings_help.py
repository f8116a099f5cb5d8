"""``--help``: the settings of a command as their files have them, with the comments."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import indent, wrap

WIDTH = 78
ASKED = ("--help", "-h")
_GROUP = re.compile(r"  - (?:optional )?(\w+): ")
_INHERITED = re.compile(r"shared/[\w-]+")


def is_asked(arguments: Sequence[str]) -> bool:
    """Return whether the arguments ask for the settings."""
    return any(argument in ASKED for argument in arguments)


def settings_help(name: str, arguments: Sequence[str], folders: Sequence[Path]) -> str:
    """Describe a command's settings.

    Args:
        name: ``train``, ``evaluate`` or ``serve``.
        arguments: Of the command; of ``GROUP=CHOICE`` the settings of that file are shown, too.
        folders: Those of settings: our own first, then those that packages bring.

    Raises:
        ValueError: If a choice is no file.
    """
    text = (folders[0] / f"{name}.yaml").read_text(encoding="utf-8")
    groups = list(dict.fromkeys(_groups(text)))
    parts = [f"python {name}.py SETTING=VALUE ...    # or: graphrerank {name} SETTING=VALUE ...", _shown(text)]
    lines = [
        part
        for group in groups
        for part in wrap(
            f"{group}: {', '.join(_choices(group, folders))}", WIDTH, initial_indent="  ", subsequent_indent="      "
        )
    ]
    parts.append("\n".join(["GROUP=CHOICE takes another file; --help GROUP=CHOICE shows its settings:", *lines]))
    for argument in arguments:
        group, equals, choice = argument.partition("=")
        if equals and group in groups and choice != "null":
            parts += _files(group, choice, folders)
    parts.append("--hydra-help: what Hydra itself can do (--cfg job, --multirun, ...)")
    return "\n\n".join(parts) + "\n"


def _groups(text: str) -> Iterator[str]:
    """Yield the groups of ``conf`` that a file's defaults name."""
    for line in text.splitlines():
        found = _GROUP.match(line)
        if found and "override" not in line:
            yield found[1]


def _choices(group: str, folders: Sequence[Path]) -> list[str]:
    return sorted(path.stem for folder in folders for path in (folder / group).glob("*.yaml"))


def _files(group: str, choice: str, folders: Sequence[Path]) -> list[str]:
    """Return the text of a choice's file, and of those that it inherits from."""
    known = _choices(group, folders)
    if choice not in known:
        raise ValueError(f"`{group}` must be one of {known}, got {choice!r}")
    path = next(found for folder in folders if (found := folder / group / f"{choice}.yaml").is_file())
    text = path.read_text(encoding="utf-8")
    inherited = [path.parent / f"{name}.yaml" for name in dict.fromkeys(_INHERITED.findall(text))]
    files = [path, *(file for file in inherited if file.is_file())]
    return [f"{group}/{file.stem}.yaml\n{indent(file.read_text(encoding='utf-8').rstrip(), '  ')}" for file in files]


def _shown(text: str) -> str:
    """Leave out what Hydra's own parts are set to."""
    kept = [line for line in text.split("\nhydra:\n")[0].splitlines() if "- override " not in line]
    return "\n".join(kept).rstrip()
