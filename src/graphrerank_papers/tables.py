"""Tables of an experiment's rows, as they stand in its ``metrics.json``."""

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any

from graphrerank.evaluation.tables import NOTHING, markdown_table
from graphrerank.files import write_json, write_text


def write_tables(run_dir: Path, title: str, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Write rows by table as ``metrics.json`` and, in Markdown, as ``report.md``; return the latter."""
    parts = [f"# {title}", *(f"## {name}\n\n{rows_table(rows)}" for name, rows in tables.items() if rows)]
    page = "\n\n".join(parts) + "\n"
    write_json(run_dir / "metrics.json", tables)
    write_text(run_dir / "report.md", page)
    return page


def rows_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay out rows in Markdown, a column per key; nested objects are left out.

    Example:
        >>> print(rows_table([{"solution": "ket_p", "Coverage": 0.66666, "interval": [0.6, 0.7]}, {"chunks": 1200}]))
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
