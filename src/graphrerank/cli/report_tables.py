"""The tables of a report in Markdown, and the numbers of ``metrics.json``, as loggers take them."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CONTAINERS = ("datasets", "systems")  # levels of metrics.json that every number is in
CELL_BORDER = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class ReportTable:
    """A table, a number or a text a cell, each column of one kind."""

    columns: list[str]
    rows: list[list[str | float]]


def report_tables(markdown: str) -> dict[str, ReportTable]:
    r"""Read all tables of a page, by the headings above them; further ones under a heading are numbered.

    Example:
        >>> report_tables("# A\n## B\n| x | y |\n| --- | ---: |\n| **a\\|b** | 1.5 |\n")
        {'B': ReportTable(columns=['x', 'y'], rows=[['a|b', 1.5]])}
    """
    tables: dict[str, ReportTable] = {}
    headings: list[str] = []
    lines = markdown.splitlines()
    for number, line in enumerate(lines):
        if heading := re.match(r"(#+) +(.*)", line):
            headings[max(len(heading[1]) - 2, 0) :] = [heading[2].strip()]  # all but the page's title
        if not re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", line.strip()) or number == 0:
            continue
        columns = _cells(lines[number - 1])
        rows = []
        for row in lines[number + 1 :]:
            if not row.strip().startswith("|"):
                break
            rows.append(_cells(row))
        title = ", ".join(headings[-2:]) or "table"
        known = sum(name == title or name.startswith(f"{title} (") for name in tables)
        tables[title if not known else f"{title} ({known + 1})"] = ReportTable(columns, _typed(rows))
    return tables


def flat_numbers(content: Any, path: str = "") -> dict[str, float]:
    """List the numbers of nested mappings under their joined keys in lower case; lists are left to tables.

    Example:
        >>> flat_numbers({"datasets": {"toy": {"systems": {"a": {"PR@5": 0.5, "PR@5/multi": 0.4}}, "queries": 2}}})
        {'toy/a/pr@5': 0.5, 'toy/a/pr@5_multi': 0.4, 'toy/queries': 2.0}
    """
    if isinstance(content, Mapping):
        numbers: dict[str, float] = {}
        for key, entry in content.items():
            name = str(key).lower().replace("/", "_")  # a name of MLflow is a file's, so none goes on after another
            inner = path if key in CONTAINERS else f"{path}/{name}".strip("/")
            numbers |= flat_numbers(entry, inner)
        return numbers
    is_number = isinstance(content, int | float) and not isinstance(content, bool) and math.isfinite(content)
    return {path: float(content)} if is_number else {}


def _cells(line: str) -> list[str]:
    cells = CELL_BORDER.split(line.strip().removeprefix("|").removesuffix("|"))
    return [cell.strip().replace("**", "").replace("\\|", "|").replace("&lt;", "<") for cell in cells]


def _typed(rows: list[list[str]]) -> list[list[str | float]]:
    """Make numbers of the columns that hold nothing else."""
    columns: list[list[str | float]] = []
    for column in zip(*rows, strict=True):
        try:
            columns.append([float(cell) for cell in column])
        except ValueError:
            columns.append(list(column))
    return [list(row) for row in zip(*columns, strict=True)]
