"""Results of a job for trackers: numbers, tables and images from its run folder."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphrerank.utils.run_files import METRICS

REPORTS = ("report.md", "report.html", METRICS)
PLOTS = ("*.png", "plots/*.png")
CONTAINERS = ("datasets", "systems")  # keys of metrics.json that are omitted in log keys
NOT_MEASURES = ("missing", "tied_share")  # numbers of a system that are not measures
TESTS = {"p_value": "p", "p_holm": "p Holm"}  # column title of each entry of a comparison

CellValue = str | float | int | bool | None


@dataclass(frozen=True)
class ResultTable:
    """Result table.

    Attributes:
        name: Name of the table in the run, such as ``attack/systems``.
        columns: Names of the columns. The first column has the names of the rows.
        rows: Cells of each row, one per column. None for an empty cell.
    """

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[CellValue]]

    @property
    def markdown(self) -> str:
        """Table as Markdown text."""
        lines = [self.columns, ["---"] * len(self.columns), *([_cell_text(cell) for cell in row] for row in self.rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def job_metrics(folder: Path) -> Any:
    """Return the content of a job's ``metrics.json``.

    Args:
        folder: Run folder.

    Returns:
        Content of the file. An empty mapping if the file does not exist.
    """
    file = folder / METRICS
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def plots_of(folder: Path) -> list[Path]:
    """Return the plots in a folder.

    Args:
        folder: Run folder, or folder of a system.

    Returns:
        Paths of PNG files.
    """
    return sorted(path for pattern in PLOTS for path in folder.glob(pattern))


def flat_numbers(content: Any, path: str = "") -> dict[str, float]:
    """Return all finite numbers of ``metrics.json`` by log key.

    A list of rows is treated as a mapping from the key of each row (:func:`row_keys`) to the row. Other lists, strings
    and booleans are skipped.

    Args:
        content: Content of the file, or a nested object of it.
        path: Log key of the nested object.

    Returns:
        Numbers by lower-case log key. Levels are separated by ``/``, and each ``/`` in a name is replaced by ``_``.

    Example:
        >>> flat_numbers({"datasets": {"toy": {"systems": {"a": {"PR@5": 0.5, "PR@5/multi": 0.4}}, "queries": 2}}})
        {'toy/a/pr@5': 0.5, 'toy/a/pr@5_multi': 0.4, 'toy/queries': 2.0}
        >>> flat_numbers({"sets": [{"set": "musique", "left out": 3}, {"set": "hotpotqa", "left out": 0}]})
        {'sets/musique/left out': 3.0, 'sets/hotpotqa/left out': 0.0}
    """
    if _is_rows(content):
        keys = row_keys(content)
        content = content[0] if keys == [""] else dict(zip(keys, content, strict=True))
    if isinstance(content, Mapping):
        numbers: dict[str, float] = {}
        for key, entry in content.items():
            name = str(key).lower().replace("/", "_")
            inner = path if _is_container(key, entry) else f"{path}/{name}".strip("/")
            numbers |= flat_numbers(entry, inner)
        return numbers
    is_number = isinstance(content, int | float) and not isinstance(content, bool) and math.isfinite(content)
    return {path: float(content)} if is_number else {}


def row_keys(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a unique key for each row of a table.

    A key is the cell of the first column, extended by further columns as long as keys are equal. A single row whose
    first cell is a number has an empty key, because a number would differ from run to run.

    Args:
        rows: Rows as mappings from column to cell.

    Returns:
        One key per row.

    Example:
        >>> row_keys([{"pipeline": "gar", "top": 5, "budget": 10}, {"pipeline": "gar", "top": 5, "budget": 20}])
        ['gar 10', 'gar 20']
        >>> row_keys([{"best epoch": 3, "AUC": 0.8}])
        ['']
    """
    columns = _columns(rows)
    if len(rows) == 1 and not isinstance(rows[0].get(columns[0]), str):
        return [""]
    keys = [_cell_text(_cell(row.get(columns[0]))) for row in rows]
    for column in columns[1:]:
        if _num_different(keys) == len(keys):
            return keys
        longer = [f"{key} {_cell_text(_cell(row.get(column)))}" for key, row in zip(keys, rows, strict=True)]
        if _num_different(longer) > _num_different(keys):
            keys = longer
    if _num_different(keys) == len(keys):
        return keys
    return [f"{key} {number}" for number, key in enumerate(keys, 1)]


def result_tables(content: Any, path: str = "") -> Iterator[ResultTable]:
    """Yield the tables of ``metrics.json``: the systems of each data set, and every list of rows.

    Args:
        content: Content of the file, or a nested object of it.
        path: Name of the nested object.

    Example:
        >>> [table.name for table in result_tables({"datasets": {"toy": {"systems": {"a": {"PR@5": 0.5}}}}})]
        ['toy/systems']
    """
    if _is_rows(content):
        columns = _columns(content)
        yield ResultTable(path, columns, [[_cell(row.get(column)) for column in columns] for row in content])
    elif isinstance(content, Mapping):
        if isinstance(systems := content.get("systems"), Mapping):
            yield comparison_table(f"{path}/systems".strip("/"), systems, content.get("comparisons") or ())
        for key, entry in content.items():
            name = re.sub(r"[^\w.,@% -]+", "-", str(key)).strip("- ")
            yield from result_tables(entry, path if _is_container(key, entry) else f"{path}/{name}".strip("/"))


def comparison_table(
    name: str, systems: Mapping[str, Mapping[str, Any]], comparisons: Sequence[Mapping[str, Any]]
) -> ResultTable:
    """Return a table of the systems of a data set, with the measures, latency and p-values of each system.

    Args:
        name: Name of the table.
        systems: Entries of the systems in ``metrics.json``.
        comparisons: Significance tests of the primary system against each other system.

    Returns:
        Table with one row per system. Columns such as ``p nDCG@10`` have the p-values, and ``p Holm nDCG@10`` those
        after the Holm correction. They are None for the primary system.
    """
    measures = dict.fromkeys(
        measure
        for entry in systems.values()
        for measure, mean in entry.items()
        if (mean is None or isinstance(mean, int | float)) and measure not in NOT_MEASURES
    )
    quantiles = dict.fromkeys(quantile for entry in systems.values() for quantile in entry.get("latency_ms") or {})
    tested = dict.fromkeys(str(test["measure"]) for test in comparisons)
    p_values = {
        (str(test["baseline"]), f"{shown} {test['measure']}"): test.get(entry)
        for test in comparisons
        for entry, shown in TESTS.items()
    }
    p_columns = [f"{shown} {measure}" for measure in tested for shown in TESTS.values()]
    rows = [
        [
            system,
            *(_cell(entry.get(measure)) for measure in measures),
            *(_cell((entry.get("latency_ms") or {}).get(quantile)) for quantile in quantiles),
            *(_cell(p_values.get((system, column))) for column in p_columns),
        ]
        for system, entry in systems.items()
    ]
    return ResultTable(name, ["system", *measures, *(f"{quantile} ms" for quantile in quantiles), *p_columns], rows)


def _is_container(key: Any, entry: Any) -> bool:
    """Return whether a key of ``metrics.json`` is omitted in log keys. A table may have the same name."""
    return key in CONTAINERS and isinstance(entry, Mapping)


def _num_different(keys: Sequence[str]) -> int:
    """Return the number of distinct keys, ignoring case because log keys are in lower case."""
    return len({key.lower() for key in keys})


def _is_rows(content: Any) -> bool:
    """Return whether the content is a list of rows with at least one column."""
    is_list = isinstance(content, Sequence) and not isinstance(content, str)
    return is_list and bool(content) and all(isinstance(row, Mapping) for row in content) and bool(_columns(content))


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns of rows. Nested objects are skipped."""
    return list(dict.fromkeys(str(key) for row in rows for key, cell in row.items() if not isinstance(cell, Mapping)))


def _cell(cell: Any) -> CellValue:
    """Return a cell of a table. A sequence is converted to a string."""
    if isinstance(cell, Sequence) and not isinstance(cell, str):
        return " to ".join(_cell_text(_cell(each)) for each in cell)
    if cell is None or isinstance(cell, str | bool | int):
        return cell
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else None
    return str(cell)


def _cell_text(cell: CellValue) -> str:
    if cell is None:
        return "-"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
