"""Helpers of experiments: steps that a resumed run does not repeat, tables, and a pseudo-random order of ids."""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any

from graphrerank.config.components import ComponentFactory
from graphrerank.evaluation.tables import NOTHING
from graphrerank.utils.caching import warn_damaged
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import hash_json, read_checked_json, write_checked_json, write_json, write_text
from graphrerank.utils.markdown import markdown_table

#: Cells of a row of a table by column: settings and measures.
TableRow = dict[str, Any]


class Experiment(ABC):
    """Experiment of a paper, whose fields are the settings of ``job`` in a file of ``conf/experiment``.

    An experiment is called once. A resumed run calls it again with the same run folder.
    """

    @abstractmethod
    def __call__(self, parts: ComponentFactory, run_dir: Path) -> Path:
        """Run the experiment, and write its tables to ``metrics.json`` and ``report.md``.

        Args:
            parts: Factory of the components. Also provides the cache folder, the device and the number of threads.
            run_dir: Run folder.

        Returns:
            Run folder.
        """


def step_file(run_dir: Path, name: str, decisive: Any) -> Path:
    """Return the file that stores the result of a step.

    Args:
        run_dir: Run folder.
        name: Name of the step.
        decisive: JSON value of everything that determines the result. Its hash is part of the file name.

    Returns:
        Path in the folder ``steps`` of the run folder.

    Example:
        >>> step_file(Path("run"), "GATv2 scores, loss bce", [0.1]).name.rpartition("-")[0]
        'gatv2-scores-loss-bce'
    """
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return run_dir / "steps" / f"{slug}-{hash_json(decisive)}.json"


def do_step(file: Path, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of a step, computing and writing it first if its file is missing or damaged.

    Args:
        file: File of the step (:func:`step_file`).
        compute: Function that computes the result.

    Returns:
        Result as read from the file.
    """
    if file.is_file():
        try:
            return read_checked_json(file)
        except UserError as error:
            warn_damaged(str(error).rpartition(";")[0])
    write_checked_json(file, compute())
    return read_checked_json(file)


def write_tables(run_dir: Path, title: str, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Write tables to ``metrics.json`` and, as Markdown, to ``report.md``.

    Args:
        run_dir: Folder of both files.
        title: Title of the report.
        tables: Rows of each table.

    Returns:
        Content of ``report.md``.
    """
    parts = [f"# {title}", *(f"## {name}\n\n{columns_table(rows)}" for name, rows in tables.items() if rows)]
    page = "\n\n".join(parts) + "\n"
    write_json(run_dir / "metrics.json", tables)
    write_text(run_dir / "report.md", page)
    return page


def columns_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a Markdown table with one column per key.

    Args:
        rows: Rows. Nested objects are omitted, and a pair of numbers is an interval.

    Returns:
        Markdown table.

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
    """Order ids pseudo-randomly by a hash of the seed and the id.

    The order is the same on every machine, and the order of two ids does not depend on the other ids.

    Args:
        ids: Ids to order.
        seed: Random seed.

    Returns:
        Indices into ``ids`` in the new order.
    """
    keys = [hashlib.sha256(f"{seed} {entry}".encode()).digest() for entry in ids]
    return sorted(range(len(ids)), key=keys.__getitem__)
