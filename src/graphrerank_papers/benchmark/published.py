"""Published figures, read from a data file: whose they are, over which embedder."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

OURS = Path(__file__).with_name("published.json")  # the file of the repository


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """What somebody published about a method."""

    method: str  # as rows of the benchmark that run it name it
    source: str  # who says so, and on which corpus where they say that
    embedder: str
    language_model: str
    recall: Mapping[str, float]  # R@5 in percent, by data set


def read_published(path: Path) -> list[PublishedRow]:
    """Read a JSON list of objects: ``method``, ``source``, ``embedder``, ``language_model``, and ``R@5`` by data set.

    Raises:
        ValueError: If the file is no such list or a figure is no percentage; names the file and the row.

    Example:
        >>> read_published(OURS)[0].recall["2wikimultihopqa"]
        90.4
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: needed a JSON list of published rows, got {error}") from error
    if not isinstance(content, list):
        raise ValueError(f"{path}: needed a JSON list of published rows, got {type(content).__name__}")
    return [_row(entry, f"{path}: row {number}") for number, entry in enumerate(content, 1)]


def _row(entry: Any, where: str) -> PublishedRow:
    needed = {"method", "source", "embedder", "language_model", "R@5"}
    if not isinstance(entry, dict) or entry.keys() != needed:
        raise ValueError(f"{where}: needed the keys {sorted(needed)}, got {entry!r}"[:300])
    try:
        settings = {("recall" if key == "R@5" else key): value for key, value in entry.items()}
        row = TypeAdapter(PublishedRow).validate_python(settings, strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{where}: `{first['loc'][0]}`: {first['msg'].lower()}, got {first['input']!r}") from None
    if wrong := [figure for figure in row.recall.values() if not 0 <= figure <= 100]:
        raise ValueError(f"{where}: `R@5` must be in percent, got {wrong[0]}")
    return row
