"""The command line before Hydra reads it."""

from collections.abc import Sequence

from graphrerank.passwords import check_no_password, without_passwords

RENAMED = {"rows": "recipe"} | dict.fromkeys(("tables", "adapter", "curves", "routing", "ket", "retag"), "job")
LISTS = ("report",)


def read_arguments(arguments: Sequence[str]) -> list[str]:
    """Write lists as Hydra reads them; refuse keys of earlier versions and URLs with a password, which Hydra would log.

    Example:
        >>> read_arguments(["report=runs/a,runs/b"])
        ["report=['runs/a','runs/b']"]
    """
    for argument in arguments:
        key = argument.lstrip("+~").split("=", 1)[0]
        first, dot, rest = key.partition(".")
        if first in RENAMED:
            shown = without_passwords(argument)
            raise ValueError(f"`{key}` must be written as `{RENAMED[first]}{dot}{rest}`, got {shown!r}")
        check_no_password(**{key: argument})
    return [_list_override(argument) for argument in arguments]


def _list_override(argument: str) -> str:
    """Write ``key=a,b`` as a list; Hydra would take it for a sweep."""
    key, _, listed = argument.partition("=")
    if key not in LISTS or listed.startswith("["):
        return argument
    quoted = ("'" + entry.replace("'", r"\'") + "'" for entry in listed.split(","))
    return f"{key}=[{','.join(quoted)}]"
