"""Untrusted input: manifests, artifacts, reports and downloads that others made.

An untrusted file describes a model; it never says what this machine runs, imports, reads or overwrites. So its JSON has
bounds, its names are plain names and no paths, its models come from the hub and not from a folder, and its files are no
links. ``SECURITY.md`` has the threat model.
"""

import json
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphrerank._moved import moved_names
from graphrerank.utils.checks import UserError

__getattr__ = moved_names(__name__)

HUB_ID = re.compile(r"(?!.*(--|\.\.))\w[\w.-]{0,95}(/\w[\w.-]{0,95})?", re.ASCII)
# control characters, marks that turn the direction of text, halves of pairs (bytes of file names that are no UTF-8)
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LINE_MARKS = re.compile("[\t\n\u2028\u2029]")
MAX_NAME_CHARS = 200  # characters
MAX_JSON_BYTES = 1 << 26  # of a manifest
MAX_LARGE_BYTES = 1 << 28  # of a file with a number for each query, passage or sentence
BYTES_PER_VALUE = 16  # of the most that a file may have: three bytes (`[],`) take 72 of memory, so 64 MiB took 1.6 GB
MAX_JSON_DEPTH = 32  # objects and lists within each other
MAX_SIZE = 2**20  # a width, a number of candidates, a length
MAX_MODEL_LAYERS = 256
MIN_RESTART_PROB = 1e-3  # 14,000 steps of smoothing; a millionth would be 14 million


def plain_name(name: str) -> str:
    """Return a name that a file in a folder can have: short, printable, no path and not hidden.

    Example:
        >>> plain_name("../x")
        Traceback (most recent call last):
        graphrerank.utils.checks.UserError: must be a plain name, without "/" and not beginning with a dot, got '../x'
    """
    if 0 < len(name) <= MAX_NAME_CHARS and name.isprintable() and name[0] != "." and not set("/\\") & set(name):
        return name
    raise UserError(f'must be a plain name, without "/" and not beginning with a dot, got {name[:MAX_NAME_CHARS]!r}')


def check_name(**names: str) -> None:
    """Require plain names (:func:`plain_name`); the ValueError names the argument."""
    for argument, name in names.items():
        try:
            plain_name(name)
        except ValueError as error:
            raise UserError(f"`{argument}` {error}") from error


def check_hub_model(**models: str) -> None:
    """Require the models that a file names to be models of the Hugging Face hub: ``owner/name`` or ``name``.

    A folder may hold code that its libraries run, so only the user can name one.
    """
    for argument, model in models.items():
        if not HUB_ID.fullmatch(model) or Path(model).exists():
            raise UserError(
                f"`{argument}` of a file must be a model's id on the Hugging Face hub, got {model[:MAX_NAME_CHARS]!r}; "
                f"name a folder on the command line: {argument}=DIR"
            )


def untrusted_file(folder: Path, name: str) -> Path:
    """Return the path of a regular file of an untrusted folder; a ValueError for a path, a link or a missing file.

    In the hub's cache a file is a link to its content, in ``blobs`` next to ``snapshots``; no other link is followed.
    """
    check_name(name=name)
    path = folder / name
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise UserError(f"{path}: no such file") from error
    if stat.S_ISREG(mode) or (stat.S_ISLNK(mode) and _is_hub_link(folder, path)):
        return path
    raise UserError(f"{path}: needed a regular file, found {'a link' if stat.S_ISLNK(mode) else 'none'}")


def _is_hub_link(folder: Path, path: Path) -> bool:
    snapshot, content = folder.resolve(), path.resolve()
    return snapshot.parent.name == "snapshots" and content.parent == snapshot.parents[1] / "blobs" and content.is_file()


def read_json(path: Path, *, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Read an untrusted JSON file; a ValueError that names it if it is too large, not JSON or too deep."""
    with path.open("rb") as stream:
        raw = stream.read(max_bytes + 1)
    if len(raw) > max_bytes:
        raise UserError(f"{path}: needed at most {max_bytes:,} bytes of JSON, found more")
    check_values(raw, max_bytes // BYTES_PER_VALUE, str(path))
    try:
        content = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON: {error}") from error
    check_depth(content, str(path))
    return content


def check_values(raw: bytes, most: int, source: str) -> None:
    """Require JSON of at most so many values, before it is parsed, as each takes up to 72 bytes of memory."""
    if len(raw) > most and (found := sum(map(raw.count, (b",", b"[", b"{")))) > most:
        raise UserError(f"{source}: needed at most {most:,} values of JSON, found up to {found:,}")


def printable(text: str) -> str:
    """Return a text for a terminal: control characters become escapes as in ``repr``; line ends and tabs stay."""
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def shown_name(name: object) -> str:
    r"""Return a name that others chose, such as that of a file, for one line of a terminal or a message.

    Args:
        name: The name or path. Its spaces and letters of all scripts stay.

    Returns:
        The name with control characters, line ends and tabs as escapes, so that it neither controls a terminal nor
        looks like a line of ours.

    Example:
        >>> shown_name("a\nhash 1234")
        'a\\nhash 1234'
    """
    return printable(_LINE_MARKS.sub(lambda found: repr(found[0])[1:-1], str(name)))


def check_depth(content: object, source: str) -> None:
    """Require JSON at most 32 levels deep, so that no recursion over it is too deep; errors name ``source``."""
    level = [content]
    for _ in range(MAX_JSON_DEPTH + 2):  # below the deepest list are plain values, and nothing below those
        if not level:
            return
        level = [list(entry.values()) if isinstance(entry, Mapping) else entry for entry in level]
        level = [part for entry in level if isinstance(entry, list | tuple) for part in entry]
    raise UserError(f"{source}: needed JSON at most {MAX_JSON_DEPTH} levels deep, found more")


def check_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a model or of a group of ``conf`` if they are plain JSON and their sizes within reason.

    Numbers are at most 1,048,576, but for seeds, numbers of layers at most 256, restart probabilities at least 0.001.
    """
    check_depth(arguments, "`arguments`")
    pending: list[tuple[str, object]] = list(arguments.items())
    for name, entry in pending:  # which grows
        if isinstance(entry, Mapping):
            pending += entry.items()
        elif isinstance(entry, list | tuple):
            if len(entry) > MAX_MODEL_LAYERS and name.endswith(("layers", "channels")):
                raise UserError(f"`{name}` must have at most {MAX_MODEL_LAYERS} entries, got {len(entry)}")
            pending += [(name, part) for part in entry]
        elif isinstance(entry, int | float):
            if name.endswith("seed"):
                continue
            largest = MAX_MODEL_LAYERS if name.endswith("layers") else MAX_SIZE
            smallest = MIN_RESTART_PROB if name == "restart_prob" else -largest
            if not smallest <= entry <= largest:
                raise UserError(f"`{name}` must lie in [{smallest}, {largest}], got {str(entry)[:MAX_NAME_CHARS]}")
        elif not isinstance(entry, str | None):
            raise UserError(f"`{name}` must be plain JSON, got {type(entry).__name__}")
    return arguments
