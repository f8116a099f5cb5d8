"""Settings on the command line, written so that Hydra's parser reads them as they were meant."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PATHS = (  # last parts of settings that name a file or folder
    *("add", "artifact", "cache", "checkpoint", "compare", "dataset", "datasets", "dir", "file", "folder", "index"),
    *("path", "remove", "run_dir", "start_from", "systems"),
)
_QUOTE_OR_END = re.compile(r"(\\*)('|$)")
_ENTRY = re.compile(r"""(?:'(?:\\.|[^'])*'|"(?:\\.|[^"])*"|\[[^\]]*\]|\{[^}]*\}|[^,])+""")


def quoted(text: str) -> str:
    r"""Quote a text as Hydra reads it: backslashes have a meaning before quotes only.

    Example:
        >>> print(quoted("it's"))
        'it\'s'
    """
    return "'" + _QUOTE_OR_END.sub(lambda end: 2 * end[1] + end[2].replace("'", r"\'"), text) + "'"


def read_override(argument: str) -> str:
    """Quote the value of a setting if Hydra's parser does not read it, or would divide a path that exists.

    A list is quoted entry by entry. Whatever Hydra reads and is no path stays as it is.

    Example:
        >>> print(read_override("data.path=Käse=1"), read_override("datasets=[./ü b, attack]"), read_override("seed=1"))
        data.path='Käse=1' datasets=['./ü b',attack] seed=1
    """
    key, sign, text = argument.partition("=")
    if not sign or argument.startswith("-") or not text:
        return argument
    value = _parsed(argument)
    is_path = key.lstrip("+~").rpartition(".")[2] in PATHS
    if is_path and value != text and not isinstance(value, bool | None) and _exists(text):
        return f"{key}={quoted(text)}"
    if is_path and text[0] + text[-1] == "[]" and "," in text and _exists(text[1:-1]):
        return f"{key}=[{quoted(text[1:-1])}]"
    if not isinstance(value, Exception) or text.startswith("{"):
        return argument
    if text[0] + text[-1] == "[]":
        return f"{key}=[{','.join(_entries(text[1:-1]))}]"
    return f"{key}={quoted(text)}"


def _entries(text: str) -> Iterator[str]:
    """List the entries of a list, quoted where necessary."""
    for entry in _ENTRY.findall(text):
        plain = entry.strip()
        yield quoted(plain) if isinstance(_parsed(f"x=[{plain}]"), Exception) else plain


def _parsed(argument: str) -> object:
    """Return the value that Hydra reads, or the error."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(argument).value()
    except HydraException as error:
        return error


def _exists(text: str) -> bool:
    with suppress(OSError, ValueError):  # a name that is too long, or holds a null character
        return Path(text).exists()
    return False
