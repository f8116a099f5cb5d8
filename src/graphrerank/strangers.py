"""What others made and this package reads: manifests, capsules, reports, artifacts and downloads come through here.

A stranger's file says what a model is; it never says what this machine runs, imports, reads or overwrites. So its JSON
has bounds, its names are names and no paths, its models are the hub's and no folders, and its files are no links.
``SECURITY.md`` has the threat model.
"""

import json
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HUB_ID = re.compile(r"(?!.*(--|\.\.))\w[\w.-]{0,95}(/\w[\w.-]{0,95})?", re.ASCII)
MAX_NAME = 200  # characters


@dataclass(frozen=True)
class Bounds:
    """How much JSON may hold.

    Attributes:
        depth: Objects and lists within each other.
        entries: Of all objects and lists together.
        text: Characters of a text.
        number: Absolute value of a number.
    """

    depth: int = 32
    entries: int = 4_000_000
    text: int = 10_000_000
    number: float = 2.0**63


WHOLE_FILE = Bounds()
LARGE_FILE = Bounds(entries=100_000_000)  # a number of each query, passage or sentence
MAX_LARGE_BYTES = 1 << 31
ARGUMENTS = Bounds(depth=8, entries=100_000, text=100_000, number=2.0**32)  # of a model, or of a group of conf
MAX_SIZE = 2**20  # a width, a number of candidates, a length
MAX_LAYERS = 256
MIN_RESTART_PROB = 1e-3  # 14,000 steps of smoothing; a millionth would be 14 million


def check_name(**names: str) -> None:
    """Require plain names, which a file in a folder can have.

    Raises:
        ValueError: If one is empty, longer than :data:`MAX_NAME`, begins with a dot, or holds a separator of paths or a
            character that cannot be printed.

    Example:
        >>> check_name(name="scifact-G")
        >>> check_name(name="../../x")
        Traceback (most recent call last):
        ValueError: `name` must be a plain name, without "/" and not beginning with a dot, got '../../x'
    """
    for argument, name in names.items():
        if not is_name(name):
            raise ValueError(
                f'`{argument}` must be a plain name, without "/" and not beginning with a dot, got {name[:MAX_NAME]!r}'
            )


def is_name(name: str) -> bool:
    """Return whether a name is plain (:func:`check_name`)."""
    return 0 < len(name) <= MAX_NAME and name.isprintable() and name[0] != "." and not set("/\\") & set(name)


def check_hub_model(**models: str) -> None:
    """Require a stranger's models to be models of the Hugging Face hub: ``owner/name`` or ``name``.

    A folder may hold code that its libraries run, so a folder is the user's to name.

    Raises:
        ValueError: If one is no id of the hub, or a path of this machine.
    """
    for argument, model in models.items():
        if not HUB_ID.fullmatch(model) or Path(model).exists():
            raise ValueError(
                f"`{argument}` of a file must be a model's id on the Hugging Face hub, got {model[:MAX_NAME]!r}; a "
                f"folder is yours to name, on the command line: {argument}=DIR"
            )


def file_of(folder: Path, name: str) -> Path:
    """Return the path of a regular file of a stranger's folder.

    In the hub's cache a file is a link to its content, which lies in ``blobs`` beside ``snapshots``; no other link is
    followed.

    Raises:
        ValueError: If ``name`` is no plain name, there is no such file, or it is a link.
    """
    check_name(name=name)
    path = folder / name
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise ValueError(f"{path}: no such file") from error
    if stat.S_ISREG(mode) or (stat.S_ISLNK(mode) and _is_hub_link(folder, path)):
        return path
    raise ValueError(f"{path}: needed a regular file, found {'a link' if stat.S_ISLNK(mode) else 'none'}")


def _is_hub_link(folder: Path, path: Path) -> bool:
    snapshot, content = folder.resolve(), path.resolve()
    return snapshot.parent.name == "snapshots" and content.parent == snapshot.parents[1] / "blobs" and content.is_file()


def read_json(path: Path, *, max_bytes: int = 1 << 28, bounds: Bounds = WHOLE_FILE) -> Any:
    """Read a stranger's JSON file.

    Args:
        path: The file.
        max_bytes: Its greatest size.
        bounds: Of what it holds.

    Raises:
        ValueError: If it is larger, is not valid JSON, or holds more than ``bounds``; names the file.
    """
    with path.open("rb") as stream:
        raw = stream.read(max_bytes + 1)
    if len(raw) > max_bytes:
        raise ValueError(f"{path}: needed at most {max_bytes:,} bytes of JSON, found more")
    try:
        content = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not valid JSON: {error}") from error
    check_json(content, str(path), bounds)
    return content


def check_json(content: object, source: str, bounds: Bounds = WHOLE_FILE) -> None:
    """Require plain JSON within bounds, one level after the other, so that no depth is too much for the check.

    NaN passes, as Python's JSON has it; infinity is a number out of bounds.

    Raises:
        ValueError: If there is more, or anything else; names ``source`` and what is too much.

    Example:
        >>> check_json({"hidden_channels": 1e12}, "manifest.json", ARGUMENTS)
        Traceback (most recent call last):
        ValueError: manifest.json: needed numbers up to 4294967296, found 1000000000000.0
    """
    level: list[object] = [content]
    entries = 0
    for _ in range(bounds.depth + 1):
        below: list[object] = []
        for entry in level:
            _check_leaf(entry, source, bounds)
            if isinstance(entry, Mapping):
                below += [*entry.keys(), *entry.values()]
            elif isinstance(entry, list | tuple):
                below += entry
        entries += len(below)
        if entries > bounds.entries:
            raise ValueError(f"{source}: needed at most {bounds.entries:,} entries, found more")
        if not below:
            return
        level = below
    raise ValueError(f"{source}: needed JSON at most {bounds.depth} levels deep, found more")


def _check_leaf(entry: object, source: str, bounds: Bounds) -> None:
    if isinstance(entry, str):
        if len(entry) > bounds.text:
            raise ValueError(f"{source}: needed texts of at most {bounds.text:,} characters, found {len(entry):,}")
    elif isinstance(entry, bool | None | Mapping | list | tuple):
        return
    elif not isinstance(entry, int | float):
        raise ValueError(f"{source}: needed plain JSON, found {type(entry).__name__}")
    elif abs(entry) > bounds.number:
        shown = "a number of more digits" if isinstance(entry, int) and entry.bit_length() > 128 else str(entry)
        raise ValueError(f"{source}: needed numbers up to {bounds.number:.0f}, found {shown}")


def check_arguments(arguments: Mapping[str, Any], source: str) -> None:
    """Require arguments of a model or of a group of ``conf`` whose sizes are within reason.

    Raises:
        ValueError: As :func:`check_json`, or if a number is above :data:`MAX_SIZE`, one of layers above
            :data:`MAX_LAYERS`, or a restart probability below :data:`MIN_RESTART_PROB`; seeds may be larger.
    """
    check_json(arguments, source, ARGUMENTS)
    pending: list[tuple[str, object]] = list(arguments.items())
    for name, entry in pending:  # which grows
        if isinstance(entry, Mapping):
            pending += entry.items()
        elif isinstance(entry, list | tuple):
            if len(entry) > MAX_LAYERS and name.endswith(("layers", "channels")):
                raise ValueError(f"{source}: `{name}` must have at most {MAX_LAYERS} entries, got {len(entry)}")
            pending += [(name, part) for part in entry]
        elif isinstance(entry, int | float) and not name.endswith("seed"):
            largest = MAX_LAYERS if name.endswith("layers") else MAX_SIZE
            smallest = MIN_RESTART_PROB if name == "restart_prob" else -largest
            if not smallest <= entry <= largest:
                raise ValueError(f"{source}: `{name}` must lie in [{smallest}, {largest}], got {entry}")
