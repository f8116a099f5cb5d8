"""JSON, JSONL, CSV and TSV to documents: an object, or a row, is one."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from graphrerank.data.documents.document import Document, Section, UnreadableError, text_of
from graphrerank.data.readers.records import read_csv, read_tsv

TEXT_KEYS, TITLE_KEYS, ID_KEYS = ("text", "content", "body", "abstract"), ("title", "name"), ("_id", "id")
_MAX_DEPTH = 32


def read_json(path: Path, name: str) -> list[Document]:
    """Read a list of objects or texts, or one: its text, and perhaps a title and an id, or else all that it says."""
    text = text_of(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableError("not JSON") from error
    rows = content if isinstance(content, list) else [content]
    return _documents(name, enumerate(rows, 1), several=isinstance(content, list) and len(rows) > 1)


def read_jsonl(path: Path, name: str) -> list[Document]:
    """Read such an object from each line."""
    rows = []
    for number, line in enumerate(text_of(path).split("\n"), 1):
        if line.strip():
            try:
                rows.append((number, json.loads(line)))
            except (ValueError, RecursionError) as error:
                raise UnreadableError(f"not JSON in line {number}") from error
    return _documents(name, rows)


def read_table(path: Path, name: str) -> list[Document]:
    """Read such an object from each row of a table, whose first row names the columns."""
    try:
        rows = list(read_csv(path) if path.suffix.lower() == ".csv" else read_tsv(path))
    except ValueError as error:
        raise UnreadableError(str(error).removeprefix(f"{path}, ")) from error
    if not rows:
        return []
    header = [cell.strip() or f"column {place}" for place, cell in enumerate(rows[0][1], 1)]
    if line := next((line for line, cells in rows if len(cells) > len(header)), None):
        raise UnreadableError(f"line {line} has more columns than the {len(header)} that the first one names")
    return _documents(name, ((line, dict(zip(header, cells, strict=False))) for line, cells in rows[1:]))


def _documents(name: str, rows: Iterable[tuple[int, Any]], *, several: bool = True) -> list[Document]:
    taken: set[str] = set()
    found = []
    for number, row in rows:
        entries = row if isinstance(row, Mapping) else {"text": row} if isinstance(row, str) else {}
        own = _id(entries, number)
        own = f"{own}:{number}" if own in taken else own  # an id that came before
        taken.add(own)
        found.append(_document(f"{name}#{own}" if several else name, entries))
    return found


def _id(row: Mapping[str, Any], number: int) -> str:
    for key in ID_KEYS:
        if isinstance(row.get(key), str | int) and (own := " ".join(str(row[key]).split())):
            return own
    return str(number)


def _document(name: str, row: Mapping[str, Any]) -> Document:
    text = next((row[key] for key in TEXT_KEYS if isinstance(row.get(key), str)), None)
    title_key = next((key for key in TITLE_KEYS if isinstance(row.get(key), str)), None)
    if text is None:
        text = "\n".join(_said({key: row[key] for key in row if key not in (title_key, *ID_KEYS)}))
    title = "" if title_key is None else " ".join(row[title_key].split())
    return Document(name, title, (Section("", text.strip()),))


def _said(value: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """Write what a record says as lines ``name: text``, names of nested ones by points; lists of numbers are left out.

    Example:
        >>> list(_said({"colour": "red", "size": {"width": 2}, "tags": ["a", "b"], "vector": [0.1, 0.2], "sold": None}))
        ['colour: red', 'size.width: 2', 'tags: a, b']
    """
    if isinstance(value, Mapping):
        if depth < _MAX_DEPTH:
            for key, part in value.items():
                yield from _said(part, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(value, list):
        if words := [part.strip() for part in value if isinstance(part, str) and part.strip()]:
            yield f"{path}: {', '.join(words)}"
        for part in value if depth < _MAX_DEPTH else ():
            if isinstance(part, Mapping | list):
                yield from _said(part, path, depth + 1)
    elif isinstance(value, bool):
        yield f"{path}: {str(value).lower()}"
    elif value is not None and str(value).strip():
        yield f"{path}: {str(value).strip()}"
