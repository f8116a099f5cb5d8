"""What several experiments share: steps that a stopped run does not repeat, tables of rows, an order of ids."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any

from graphrerank.evaluation.tables import NOTHING, markdown_table
from graphrerank.utils.caching import warn_damaged
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import hash_json, read_checked_json, write_checked_json, write_json, write_text


def step_file(run_dir: Path, name: str, decisive: Any) -> Path:
    """Return the file of a step; ``decisive`` is all that decides its result, as JSON can write it.

    Example:
        >>> step_file(Path("run"), "GATv2 scores, loss bce", [0.1]).name.rpartition("-")[0]
        'gatv2-scores-loss-bce'
    """
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return run_dir / "steps" / f"{slug}-{hash_json(decisive)}.json"


def do_step(file: Path, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Read the result of a step; compute and write it if it is missing or damaged."""
    if file.is_file():
        try:
            return read_checked_json(file)
        except UserError as error:
            warn_damaged(str(error).rpartition(";")[0])
    write_checked_json(file, compute())
    return read_checked_json(file)


def write_tables(run_dir: Path, title: str, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Write rows by table as ``metrics.json`` and, in Markdown, as ``report.md``; return the latter."""
    parts = [f"# {title}", *(f"## {name}\n\n{columns_table(rows)}" for name, rows in tables.items() if rows)]
    page = "\n\n".join(parts) + "\n"
    write_json(run_dir / "metrics.json", tables)
    write_text(run_dir / "report.md", page)
    return page


def columns_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay out rows in Markdown, a column per key; nested objects are left out.

    Example:
        >>> print(columns_table([{"solution": "ket_p", "Coverage": 0.66666, "interval": [0.6, 0.7]}, {"chunks": 1200}]))
        | solution | Coverage | interval | chunks |
        | --- | --: | --: | --: |
        | ket_p | 0.6667 | 0.6 to 0.7 | - |
        | - | - | - | 1,200 |
    """
    header = dict.fromkeys(key for row in rows for key, entry in row.items() if not isinstance(entry, Mapping))
    return markdown_table(list(header), [[_text(row.get(key)) for key in header] for row in rows])


def _text(entry: Any) -> str:
    if entry is None or (isinstance(entry, float) and isnan(entry)):
        return NOTHING
    if isinstance(entry, list | tuple):
        return " to ".join(map(_text, entry))
    if isinstance(entry, int) and not isinstance(entry, bool):
        return f"{entry:,}"
    return f"{entry:.4g}" if isinstance(entry, float) else str(entry)


def hashed_order(ids: Sequence[str], seed: int) -> list[int]:
    """Order ids by a hash of them and the seed: the same on every machine, and in every subset of the ids."""
    keys = [hashlib.sha256(f"{seed} {entry}".encode()).digest() for entry in ids]
    return sorted(range(len(ids)), key=keys.__getitem__)
