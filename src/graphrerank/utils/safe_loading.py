"""Safe loading of untrusted input: manifests, artifacts, reports and downloads.

An untrusted file describes a model. It never decides what this machine runs, imports, reads or overwrites. Therefore
its JSON has limits on size and depth, its names are plain names and not paths, its models come from the hub and not
from a folder, and its files are not links. ``SECURITY.md`` describes the threat model.
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
# Control characters, marks of text direction, and lone surrogates (bytes of file names that are not valid UTF-8).
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_PLAIN = (str, int, float, type(None))  # Types of JSON values that contain no others.
_LINE_MARKS = re.compile("[\t\n\u2028\u2029]")
MAX_NAME_CHARS = 200
MAX_JSON_BYTES = 1 << 26  # Limit for manifests.
MAX_LARGE_BYTES = 1 << 28  # Limit for files with a number per query, passage or sentence.
# A file of `n` bytes may have `n / BYTES_PER_VALUE` values. Three bytes (`[],`) take 72 bytes of memory, so 64 MiB of
# them would take 1.6 GB.
BYTES_PER_VALUE = 16
MAX_JSON_DEPTH = 32  # Levels of nested objects and lists.
MAX_SIZE = 2**20  # Limit for widths, lengths and numbers of candidates.
MAX_MODEL_LAYERS = 256
MIN_RESTART_PROB = 1e-3  # Leads to 14,000 smoothing steps. A value of 1e-6 would lead to 14 million.


def plain_name(name: str) -> str:
    """Return a name that is safe as a file name: short, printable, not a path and not hidden.

    Args:
        name: Name to check.

    Returns:
        The same name.

    Raises:
        ValueError: If the name is not a plain name.

    Example:
        >>> plain_name("../x")
        Traceback (most recent call last):
        graphrerank.utils.checks.UserError: must be a plain name, without "/" and not beginning with a dot, got '../x'
    """
    if 0 < len(name) <= MAX_NAME_CHARS and name.isprintable() and name[0] != "." and not set("/\\") & set(name):
        return name
    raise UserError(f'must be a plain name, without "/" and not beginning with a dot, got {name[:MAX_NAME_CHARS]!r}')


def check_name(**names: str) -> None:
    """Require plain names (:func:`plain_name`).

    Args:
        **names: Names by argument name.

    Raises:
        ValueError: If a name is not a plain name. The message contains the argument's name.
    """
    for argument, name in names.items():
        try:
            plain_name(name)
        except ValueError as error:
            raise UserError(f"`{argument}` {error}") from error


def check_hub_model(**models: str) -> None:
    """Require that the models named in a file are models on the Hugging Face hub (``owner/name`` or ``name``).

    A local folder may contain code that libraries run, so only the user may choose one.

    Args:
        **models: Model names by argument name.

    Raises:
        ValueError: If a name is not a hub id, or if a local folder has this name.
    """
    for argument, model in models.items():
        if not HUB_ID.fullmatch(model) or Path(model).exists():
            raise UserError(
                f"`{argument}` in a file must be a model id on the Hugging Face hub, got {model[:MAX_NAME_CHARS]!r}; "
                f"to use a folder, set it on the command line: {argument}=DIR"
            )


def untrusted_file(folder: Path, name: str) -> Path:
    """Return the path of a regular file in an untrusted folder.

    In the hub's cache, files are links from ``snapshots`` to ``blobs``. No other link is followed.

    Args:
        folder: Untrusted folder.
        name: File name in the folder.

    Returns:
        Path of the file.

    Raises:
        ValueError: If ``name`` is a path, or if the file is missing, a link or not a regular file.
    """
    check_name(name=name)
    path = folder / name
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise UserError(f"{path}: no such file") from error
    if stat.S_ISREG(mode) or (stat.S_ISLNK(mode) and _is_hub_link(folder, path)):
        return path
    raise UserError(
        f"{path}: expected a regular file, got {'a link' if stat.S_ISLNK(mode) else 'another kind of file'}"
    )


def _is_hub_link(folder: Path, path: Path) -> bool:
    snapshot, content = folder.resolve(), path.resolve()
    return snapshot.parent.name == "snapshots" and content.parent == snapshot.parents[1] / "blobs" and content.is_file()


def read_json(path: Path, *, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Read an untrusted JSON file.

    Args:
        path: File to read.
        max_bytes: Maximum size of the file in bytes.

    Returns:
        Content of the file.

    Raises:
        ValueError: If the file is too large, has too many values, is nested too deeply, or is not valid JSON.
    """
    with path.open("rb") as stream:
        raw = stream.read(max_bytes + 1)
    if len(raw) > max_bytes:
        raise UserError(f"{path}: expected at most {max_bytes:,} bytes of JSON, got more")
    check_values(raw, max_bytes // BYTES_PER_VALUE, str(path))
    try:
        content = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON: {error}") from error
    check_depth(content, str(path))
    return content


def check_values(raw: bytes, most: int, source: str) -> None:
    """Limit the number of values in JSON before it is parsed, because each value takes up to 72 bytes of memory.

    Args:
        raw: JSON text in UTF-8.
        most: Maximum number of values.
        source: Name of the source, used in error messages.

    Raises:
        ValueError: If the text may contain more values.
    """
    if len(raw) > most and (count := sum(map(raw.count, (b",", b"[", b"{")))) > most:
        raise UserError(f"{source}: expected at most {most:,} JSON values, got up to {count:,}")


def printable(text: str) -> str:
    """Return a text that is safe to print on a terminal.

    Args:
        text: Any text.

    Returns:
        Text with control characters escaped as in ``repr``. Line ends and tabs are not escaped.
    """
    return _CONTROLS.sub(lambda match: repr(match[0])[1:-1], text)


def shown_name(name: object) -> str:
    r"""Return an untrusted name, such as a file name, in a form that is safe in a line of output.

    Args:
        name: Name or path. Spaces and letters of all scripts are preserved.

    Returns:
        Name with control characters, line ends and tabs escaped, so that the name can neither control the terminal nor
        imitate a line of output.

    Example:
        >>> shown_name("a\nhash 1234")
        'a\\nhash 1234'
    """
    return printable(_LINE_MARKS.sub(lambda match: repr(match[0])[1:-1], str(name)))


def check_depth(content: object, source: str) -> None:
    """Limit the depth of nested JSON to 32 levels, so that recursive functions can process it.

    Args:
        content: Parsed JSON.
        source: Name of the source, used in error messages.

    Raises:
        ValueError: If the content has more levels.
    """
    level = [content]
    for _ in range(MAX_JSON_DEPTH + 2):  # One level for plain values, and one empty level.
        if not level:
            return
        level = [entry for entry in level if not isinstance(entry, _PLAIN)]  # Most values, and faster than an ABC.
        level = [list(entry.values()) if isinstance(entry, Mapping) else entry for entry in level]
        level = [child for entry in level if isinstance(entry, list | tuple) for child in entry]
    raise UserError(f"{source}: expected JSON with at most {MAX_JSON_DEPTH} levels, got more")


def check_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Check that the arguments of a model or of a configuration group are plain JSON of reasonable size.

    Numbers must be at most 1,048,576 in absolute value (except seeds), numbers of layers at most 256, and restart
    probabilities at least 0.001.

    Args:
        arguments: Arguments by name.

    Returns:
        The same arguments.

    Raises:
        ValueError: If an argument is out of range or not plain JSON.
    """
    check_depth(arguments, "`arguments`")
    pending: list[tuple[str, object]] = list(arguments.items())
    for name, entry in pending:  # The list grows during the loop.
        if isinstance(entry, Mapping):
            pending += entry.items()
        elif isinstance(entry, list | tuple):
            if len(entry) > MAX_MODEL_LAYERS and name.endswith(("layers", "channels")):
                raise UserError(f"`{name}` must have at most {MAX_MODEL_LAYERS} entries, got {len(entry)}")
            pending += [(name, child) for child in entry]
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
