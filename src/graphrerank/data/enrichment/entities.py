"""Named entities of passages: who finds them, and the file that can bring them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class EntityExtractor(Protocol):
    """Anything that finds named entities in texts."""

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever the entities would."""

    def extract(self, texts: Sequence[str]) -> list[list[str]]:
        """List the entities of each of ``n`` texts, as they are written there."""


def read_entities(path: str | Path, node_ids: Sequence[str]) -> list[list[str]]:
    """Read ``entities.jsonl``: one ``{"_id": ..., "entities": [...]}`` a line; other keys are left alone.

    Args:
        path: The file.
        node_ids: ``N`` ids of the corpus.

    Returns:
        ``N`` lists of names as written; empty for a passage without a line.

    Raises:
        ValueError: If the file cannot be read, a line is not of that form, or an id is unknown or comes twice; with
            file and line.
    """
    number = {node_id: i for i, node_id in enumerate(node_ids)}
    rows: list[list[str] | None] = [None] * len(node_ids)
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read as UTF-8 text: {error}") from error
    for line_number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        node_id, entities = _parse(line, f"{path}:{line_number}")
        if node_id not in number:
            raise ValueError(f"{path}:{line_number}: `_id` {node_id!r} is not in the corpus")
        if rows[number[node_id]] is not None:
            raise ValueError(f"{path}:{line_number}: `_id` {node_id!r} comes a second time")
        rows[number[node_id]] = entities
    return [row or [] for row in rows]


def _parse(line: str, where: str) -> tuple[str, list[str]]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: not JSON: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get("_id"), str) or "entities" not in record:
        raise ValueError(f'{where}: needed {{"_id": "...", "entities": [...]}}, got {line[:80]!r}')
    return record["_id"], check_names(record["entities"], f"{where}: `entities`")


def check_names(names: object, where: str) -> list[str]:
    """Return ``names`` if it is a list of strings.

    Raises:
        ValueError: If it is not; the message begins with ``where``.
    """
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{where} must be a list of strings, got {str(names)[:80]!r}")
    return names
