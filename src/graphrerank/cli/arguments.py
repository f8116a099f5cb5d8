"""The command line before Hydra reads it."""

from collections.abc import Sequence

from graphrerank.passwords import check_no_password, without_passwords

RENAMED = {"rows": "recipe"} | dict.fromkeys(("tables", "adapter", "curves", "routing", "ket", "retag"), "job")
LISTS = ("report", "files")
OPEN = ("options.", "service.", "settings.")  # mappings to which keys are added
WORDS = {"demo": "mode=demo"}
KEYWORD = "from"  # a word of Python, so that no setting can have this name: `from=` is `files=`


def read_arguments(arguments: Sequence[str]) -> list[str]:
    """Write lists and words as Hydra reads them, and ``from=`` as ``files=``.

    Keys of earlier versions are refused, and URLs with a password, which Hydra would log.

    Example:
        >>> read_arguments(["report=runs/a,runs/b"])
        ["report=['runs/a','runs/b']"]
        >>> read_arguments(["from=a.zip,b c.json"])
        ["files=['a.zip','b c.json']"]
        >>> read_arguments(["demo", "port=8080"])
        ['mode=demo', 'port=8080']
    """
    for argument in arguments:
        key = argument.lstrip("+~").split("=", 1)[0]
        first, dot, rest = key.partition(".")
        if first in RENAMED:
            shown = without_passwords(argument)
            raise ValueError(f"`{key}` must be written as `{RENAMED[first]}{dot}{rest}`, got {shown!r}")
        check_no_password(**{key: argument})
    return [WORDS.get(argument) or _list_override(argument) for argument in arguments]


def _list_override(argument: str) -> str:
    """Write ``key=a,b`` as a list; Hydra would take it for a sweep."""
    key, _, listed = argument.partition("=")
    key = "files" if key == KEYWORD else key
    if key.startswith(OPEN):
        return f"+{argument}"
    if key not in LISTS or listed.startswith("["):
        return argument if not argument.startswith(f"{KEYWORD}=") else f"{key}={listed}"
    quoted = ("'" + entry.replace("'", r"\'") + "'" for entry in listed.split(","))
    return f"{key}=[{','.join(quoted)}]"
