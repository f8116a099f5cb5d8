"""Checks JSON against dataclasses: a type and a name for each entry, stated once."""

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
NAMES = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}


def parse_entries(kind: type[T], content: object, *, key: str = "") -> T:
    """Build a dataclass from a JSON object; entries that the class does not name are ignored.

    A field without a default is an entry that must be there. Fields may be texts, numbers, truth values, ``Any``,
    further dataclasses, ``tuple[X, ...]`` of a list, ``Mapping[str, X]`` of an object, ``X | None``, and classes with a
    method ``from_json``.

    Args:
        kind: The dataclass.
        content: What was read.
        key: Name of the entry in messages; empty for the whole.

    Raises:
        ValueError: If an entry is missing, of another type, or refused by its class; names it.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Encoder:
        ...     name: str
        ...     dim: int
        >>> parse_entries(Encoder, {"name": "small", "dim": 384})
        Encoder(name='small', dim=384)
        >>> parse_entries(Encoder, {"name": "small"}, key="encoder")
        Traceback (most recent call last):
        ValueError: the manifest needs an entry `encoder.dim`, found none
    """
    if not isinstance(content, Mapping):
        raise _refusal(key, "an object", content)
    hints, parsed = get_type_hints(kind), {}
    for field in fields(kind):  # type: ignore[arg-type]
        path = f"{key}.{field.name}" if key else field.name
        if field.name in content:
            parsed[field.name] = _parse(hints[field.name], content[field.name], path)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"the manifest needs an entry `{path}`, found none")
    try:
        return kind(**parsed)
    except ValueError as error:
        raise ValueError(f"the manifest's `{key}` cannot be read: {error}" if key else str(error)) from error


def _parse(kind: Any, entry: Any, key: str) -> Any:
    arguments = get_args(kind)
    if get_origin(kind) is types.UnionType:  # X | None
        return None if entry is None else _parse(arguments[0], entry, key)
    if get_origin(kind) is tuple:
        if not isinstance(entry, list | tuple):
            raise _refusal(key, "a list", entry)
        return tuple(_parse(arguments[0], part, f"{key}.{place}") for place, part in enumerate(entry))
    if get_origin(kind) is Mapping:
        if not isinstance(entry, Mapping):
            raise _refusal(key, "an object", entry)
        return {name: _parse(arguments[1], part, f"{key}.{name}") for name, part in entry.items()}
    if hasattr(kind, "from_json"):
        return kind.from_json(entry)
    if is_dataclass(kind):
        return parse_entries(kind, entry, key=key)  # type: ignore[arg-type]
    accepted = (int, float) if kind is float else kind
    if kind is not Any and (not isinstance(entry, accepted) or (isinstance(entry, bool) and kind is not bool)):
        raise _refusal(key, NAMES[kind], entry)
    return entry


def _refusal(key: str, needed: str, found: object) -> ValueError:
    return ValueError(f"the manifest's `{key}` must be {needed}, got {str(found)[:100]!r}")
