"""Tables of formatted cells, shared by the terminal, Markdown and HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import isfinite, isnan
from typing import Any

from graphrerank.utils.safe_loading import printable, shown_name

NOTHING = "-"
ROW_NAMES = {
    "ppr": "PPR",
    "gcs": "GCS",
    "mlp": "MLP",
    "gatv2": "GATv2",
    "cross_encoder": "cross-encoder",
    "granker": "GRanker",
    "cross_encoder_head": "trained head",
    "granker_head": "trained GRanker",
}
TEXTS = ("text", "prose", "system")  # forms of columns on the left
FRAME = 3  # characters of a printed column around its text: two blanks and a line
SHORTEST_NAME = 12


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str  # what it shows
    value: float | None = None  # what it sorts by; None or NaN comes last. The cells of text columns sort by their text
    note: str = ""  # shown after the text, such as an interval
    best: bool = False  # whether it is the highest of those it is compared with
    prose: bool = False  # whether it holds sentences, which may take several lines and may be shortened

    @property
    def is_number(self) -> bool:
        """Whether there is a number to sort by."""
        return self.value is not None and isfinite(self.value)

    def __str__(self) -> str:
        return f"{self.text} ({self.note})" if self.note else self.text


@dataclass(frozen=True)
class Table:
    """A table, before it is rendered."""

    title: str  # its name among the tables of a data set
    header: Sequence[str]  # names of the columns
    rows: Sequence[Sequence[Cell]]  # a cell per column; the first names the row
    caption: str = ""  # sentences that say what the table shows
    text_columns: int = 1  # how many columns, from the left, hold texts; the others hold numbers
    printed: bool = False  # whether the terminal shows it besides the table of quality


def rows_table(title: str, caption: str, rows: Sequence[Mapping[str, Cell]], *, text_columns: int = 1) -> Table:
    """Lay out rows of cells by the columns' names, the same in each."""
    header = list(rows[0]) if rows else []
    return Table(title, header, [list(row.values()) for row in rows], caption, text_columns)


def column(header: str, form: str = ".2f", *, note: str | None = None) -> Mapping[str, str | None]:
    """Return the metadata of a record's field that :func:`records_table` shows.

    ``form`` is ``system``, ``text``, ``prose``, ``percent``, ``points``, ``p``, or a format specification. ``note``
    names the field of an interval, or of names, that stands next to the number.
    """
    return {"header": header, "form": form, "note": note}


def records_table(kind: Any, records: Sequence[Any]) -> Table:
    """Lay out a row per record of one class: the fields with a :func:`column`."""
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
    """Return the name that tables give a system."""
    return ROW_NAMES.get(name, name)


def number_cell(value: float | None, form: str = ".2f", note: str = "") -> Cell:
    """Show a number; a dash if there is none."""
    return Cell(NOTHING if value is None or isnan(value) else format(value, form), value, note)


def percent_cell(share: float | None, interval: Sequence[float] | None = None, *, best: bool = False) -> Cell:
    """Show a share in percent, with its interval; a dash if there is none."""
    if share is None or isnan(share):
        return Cell(NOTHING)
    return Cell(f"{100 * share:.2f}", share, interval_text(interval), best)


def points_cell(difference: float, interval: Sequence[float] | None = None) -> Cell:
    """Show a difference of shares in points, with its interval; a dash for NaN."""
    if isnan(difference):
        return Cell(NOTHING)
    return Cell(f"{100 * difference:+.2f}", difference, interval_text(interval, "+.1f"))


def interval_text(ends: Sequence[float] | None, form: str = ".1f") -> str:
    """Write an interval of shares in percent; nothing where there is none."""
    if ends is None or isnan(ends[0]):
        return ""
    return f"{100 * ends[0]:{form}} to {100 * ends[1]:{form}}"


def p_cell(p_value: float) -> Cell:
    """Show a p-value without its name."""
    return Cell(NOTHING if isnan(p_value) else p_text(p_value, name="").strip(" ="), p_value)


def p_text(p_value: float, *, name: str = "p") -> str:
    """Write a p-value as ``p = 0.03`` or ``p < 0.0001``."""
    if p_value < 1e-4:
        return f"{name} < 0.0001"
    return f"{name} = {p_value:.4f}" if p_value < 0.001 else f"{name} = {p_value:.2g}"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, text_columns: int = 1) -> str:
    """Write a table in Markdown, numbers to the right of their columns."""
    rule = ["---"] * text_columns + ["--:"] * (len(header) - text_columns)
    return "\n".join(f"| {' | '.join(map(shown_name, line))} |" for line in [header, rule, *rows])


def print_table(table: Table, *, title: str, lines: Sequence[str] = ()) -> None:
    """Print a table, as wide as its columns are, with notes of cells left out.

    Neither a number nor a name is ever cut: names take at most a third of the terminal's width, longer ones several
    lines. ``lines`` are sentences below, centred if all of them fit under the table.
    """
    from rich.cells import cell_len  # not installed with [serve]
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    room = Console().width
    shown = zip(table.header, *([cell.text for cell in row] for row in table.rows), strict=True)
    widths = [max(map(cell_len, texts)) for texts in shown]
    widths[0] = min(widths[0], max(SHORTEST_NAME, room // 3))
    title, lines = shown_name(title), list(map(printable, lines))
    width = sum(widths) + FRAME * len(widths) - 1  # without the outer blanks
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
