"""Quoting of command-line settings for Hydra's parser."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PATHS = (  # last components of the names of settings whose value is a file or folder
    *("add", "artifact", "cache", "checkpoint", "compare", "dataset", "datasets", "dir", "file", "folder", "index"),
    *("path", "remove", "run_dir", "start_from", "systems"),
)
_QUOTE_OR_END = re.compile(r"(\\*)('|$)")
_ENTRY = re.compile(r"""(?:'(?:\\.|[^'])*'|"(?:\\.|[^"])*"|\[[^\]]*\]|\{[^}]*\}|[^,])+""")


def quoted(text: str) -> str:
    r"""Return a text in quotes for Hydra's parser, in which a backslash is special only before a quote.

    Args:
        text: Text to quote.

    Example:
        >>> print(quoted("it's"))
        'it\'s'
    """
    return "'" + _QUOTE_OR_END.sub(lambda end: 2 * end[1] + end[2].replace("'", r"\'"), text) + "'"


def read_override(argument: str) -> str:
    """Return an override in which the value is quoted if Hydra's parser would reject it or split an existing path.

    The entries of a list are quoted separately. Values that are not paths and that Hydra can parse are unchanged.

    Args:
        argument: Override as ``KEY=VALUE``, or a flag.

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
    """Yield the entries of a list, quoted if necessary."""
    for entry in _ENTRY.findall(text):
        plain = entry.strip()
        yield quoted(plain) if isinstance(_parsed(f"x=[{plain}]"), Exception) else plain


def _parsed(argument: str) -> object:
    """Return the value that Hydra parses, or the error that it raises."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(argument).value()
    except HydraException as error:
        return error


def _exists(text: str) -> bool:
    with suppress(OSError, ValueError):  # raised if the name is too long or contains a null character
        return Path(text).exists()
    return False
