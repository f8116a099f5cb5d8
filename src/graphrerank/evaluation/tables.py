"""Tables of formatted cells, from which the terminal, Markdown and HTML output are rendered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import isfinite, isnan
from typing import Any

from graphrerank._moved import moved_names
from graphrerank.utils.safe_loading import printable, shown_name

__getattr__ = moved_names(__name__)

NOTHING = "-"
ROW_NAMES = {
    "ppr": "PPR",
    "gcs": "GCS",
    "rank_fusion": "rank fusion",
    "mlp": "MLP",
    "gatv2": "GATv2",
    "cross_encoder": "cross-encoder",
    "granker": "GRanker",
    "cross_encoder_head": "trained head",
    "granker_head": "trained GRanker",
}
TEXTS = ("text", "prose", "system")  # forms of text columns, which are left-aligned
FRAME = 3  # width of the frame of a printed column: two blanks and a line
SHORTEST_NAME = 12  # width in characters to which the first column of a table may be narrowed


@dataclass(frozen=True)
class Cell:
    """Cell of a table.

    Attributes:
        text: Formatted content.
        value: Number to sort by. None and NaN come last. The cells of text columns are sorted by ``text`` instead.
        note: Text in parentheses after the content, such as an interval.
        best: Whether the value is the highest of its row or column.
        prose: Whether the content consists of sentences, which may be wrapped or truncated.
    """

    text: str
    value: float | None = None
    note: str = ""
    best: bool = False
    prose: bool = False

    @property
    def is_number(self) -> bool:
        """Whether the cell has a finite number to sort by."""
        return self.value is not None and isfinite(self.value)

    def __str__(self) -> str:
        return f"{self.text} ({self.note})" if self.note else self.text


@dataclass(frozen=True)
class Table:
    """Table, independent of the output format.

    Attributes:
        title: Title, unique among the tables of a data set.
        header: Names of the columns.
        rows: Rows with one cell per column. The first cell is the name of the row.
        caption: Sentences that explain the table.
        text_columns: Number of text columns, which are the leftmost ones. All other columns contain numbers.
        printed: Whether the table is also printed to the terminal, after the table of quality.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    text_columns: int = 1
    printed: bool = False


def rows_table(title: str, caption: str, rows: Sequence[Mapping[str, Cell]], *, text_columns: int = 1) -> Table:
    """Build a table from rows of cells by column name.

    Args:
        title: Title of the table.
        caption: Sentences that explain the table.
        rows: Rows with the same column names in the same order.
        text_columns: Number of text columns.

    Returns:
        Table without a header if there are no rows.
    """
    header = list(rows[0]) if rows else []
    return Table(title, header, [list(row.values()) for row in rows], caption, text_columns)


def column(header: str, form: str = ".2f", *, note: str | None = None) -> Mapping[str, str | None]:
    """Return the metadata that makes a record's field a column of :func:`records_table`.

    Args:
        header: Name of the column.
        form: Format of the cells: ``system``, ``text``, ``prose``, ``percent``, ``points``, ``p``, or a Python format
            specification.
        note: Name of the field with the interval, or the names, that are shown after the number. If None, there is no
            note.
    """
    return {"header": header, "form": form, "note": note}


def records_table(kind: Any, records: Sequence[Any]) -> Table:
    """Build a table with one row per record.

    Args:
        kind: Class of the records, with the class attributes ``TITLE`` and ``CAPTION``. Fields with the metadata of
            :func:`column` become columns.
        records: Records of this class.

    Returns:
        Table in the order of the records.
    """
    shown = [(entry.name, entry.metadata) for entry in fields(kind) if "header" in entry.metadata]
    rows = [
        [_cell(getattr(record, name), to["form"], getattr(record, to["note"] or "", None)) for name, to in shown]
        for record in records
    ]
    text_columns = sum(to["form"] in TEXTS for _, to in shown)
    return Table(kind.TITLE, [to["header"] for _, to in shown], rows, kind.CAPTION, text_columns)


def _cell(value: Any, form: str, note: Any) -> Cell:
    values = value if isinstance(value, list | tuple) else (value,)
    if form in TEXTS:
        texts = [row_name(entry) if form == "system" else str(entry) for entry in values]
        return Cell(", ".join(texts), prose=form == "prose")
    if form == "percent":
        return percent_cell(value, note)
    if form == "points":
        return points_cell(value, note)
    if form == "p":
        return p_cell(value)
    return number_cell(value if value is None or values == (value,) else len(value), form, ", ".join(note or ()))


def row_name(name: str) -> str:
    """Return the name of a system in tables, such as ``GATv2`` for ``gatv2``.

    Args:
        name: Name of the system.
    """
    return ROW_NAMES.get(name, name)


def number_cell(value: float | None, form: str = ".2f", note: str = "") -> Cell:
    """Return a cell with a number.

    Args:
        value: Number. None or NaN is shown as a dash.
        form: Python format specification.
        note: Note after the number.

    Returns:
        Formatted cell.
    """
    return Cell(NOTHING if value is None or isnan(value) else format(value, form), value, note)


def percent_cell(share: float | None, interval: Sequence[float] | None = None, *, best: bool = False) -> Cell:
    """Return a cell with a fraction in percent.

    Args:
        share: Fraction in [0, 1]. None or NaN is shown as a dash.
        interval: Lower and upper ends of the interval, as fractions. If None, no interval is shown.
        best: Whether the fraction is the highest of its row or column.

    Returns:
        Formatted cell.

    Example:
        >>> str(percent_cell(0.25, (0.2, 0.3)))
        '25.00 (20.0 to 30.0)'
    """
    if share is None or isnan(share):
        return Cell(NOTHING)
    return Cell(f"{100 * share:.2f}", share, interval_text(interval), best)


def points_cell(difference: float, interval: Sequence[float] | None = None) -> Cell:
    """Return a cell with a difference of fractions in percentage points.

    Args:
        difference: Difference of two fractions. NaN is shown as a dash.
        interval: Lower and upper ends of the interval, as fractions. If None, no interval is shown.

    Returns:
        Formatted cell.
    """
    if isnan(difference):
        return Cell(NOTHING)
    return Cell(f"{100 * difference:+.2f}", difference, interval_text(interval, "+.1f"))


def interval_text(ends: Sequence[float] | None, form: str = ".1f") -> str:
    """Return an interval of fractions in percent.

    Args:
        ends: Lower and upper ends, as fractions. None or NaN gives an empty text.
        form: Python format specification.
    """
    if ends is None or isnan(ends[0]):
        return ""
    return f"{100 * ends[0]:{form}} to {100 * ends[1]:{form}}"


def p_cell(p_value: float) -> Cell:
    """Return a cell with a p-value, such as ``0.03`` or ``< 0.0001``.

    Args:
        p_value: p-value. NaN is shown as a dash.
    """
    return Cell(NOTHING if isnan(p_value) else p_text(p_value, name="").strip(" ="), p_value)


def p_text(p_value: float, *, name: str = "p") -> str:
    """Return a p-value as ``p = 0.03`` or ``p < 0.0001``.

    Args:
        p_value: p-value to format.
        name: Name before the value.
    """
    if p_value < 1e-4:
        return f"{name} < 0.0001"
    return f"{name} = {p_value:.4f}" if p_value < 0.001 else f"{name} = {p_value:.2g}"


def print_table(table: Table, *, title: str, lines: Sequence[str] = ()) -> None:
    """Print a table to the terminal, without the notes of its cells.

    Numbers and names are never truncated. Names that are wider than a third of the terminal are wrapped, and a table
    that does not fit is wider than the terminal.

    Args:
        table: Table to print.
        title: Title above the table.
        lines: Sentences below the table. They are centred if all of them are narrower than the table.
    """
    from rich.cells import cell_len  # imported here because rich is not installed with [serve]
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    room = Console().width
    shown = zip(table.header, *([cell.text for cell in row] for row in table.rows), strict=True)
    widths = [max(map(cell_len, texts)) for texts in shown]
    widths[0] = min(widths[0], max(SHORTEST_NAME, room // 3))
    title, lines = shown_name(title), list(map(printable, lines))
    width = sum(widths) + FRAME * len(widths) - 1  # there are no outer blanks
    console = Console(width=max(room, width))
    grid = RichTable(pad_edge=False)
    for place, name in enumerate(table.header):
        side: Any = "left" if place < table.text_columns else "right"
        grid.add_column(Text(shown_name(name)), justify=side, width=widths[place], overflow="fold")
    for row in table.rows:
        grid.add_row(*(Text(shown_name(cell.text), "bold" if cell.best else "") for cell in row))
    fits = max(map(cell_len, [title, *lines])) <= width
    if fits:
        grid.title, grid.caption = Text(title), Text("\n".join(lines)) if lines else None
    for printed in (grid,) if fits else (Text(title), grid, *map(Text, lines)):
        console.print(printed)
