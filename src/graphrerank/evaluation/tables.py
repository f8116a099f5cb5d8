"""Tables of formatted cells, shared by the terminal, Markdown and HTML."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isnan
from typing import TypeVar

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


Entry = TypeVar("Entry")


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


Columns = Mapping[str, Callable[[Entry], Cell]]


def build_table(
    title: str, caption: str, entries: Sequence[Entry], columns: Columns[Entry], *, text_columns: int = 1
) -> Table:
    """Lay out a row per entry; a column is a name and a function of an entry."""
    rows = [[cell(entry) for cell in columns.values()] for entry in entries]
    return Table(title, list(columns), rows, caption, text_columns)


def row_name(name: str) -> str:
    """Return the name that tables give a system."""
    return ROW_NAMES.get(name, name)


def system_cell(name: str) -> Cell:
    """Show a system's name."""
    return Cell(row_name(name))


def number_cell(value: float | None, form: str = ".2f", note: str = "") -> Cell:
    """Show a number; a dash if there is none."""
    return Cell(NOTHING if value is None or isnan(value) else format(value, form), value, note)


def percent_cell(share: float | None, interval: Sequence[float] | None = None, *, best: bool = False) -> Cell:
    """Show a share in percent, with its interval; a dash if there is none."""
    if share is None or isnan(share):
        return Cell(NOTHING)
    return Cell(f"{100 * share:.2f}", share, _interval(interval, ".1f"), best)


def points_cell(difference: float, interval: Sequence[float] | None = None) -> Cell:
    """Show a difference of shares in points, with its interval; a dash for NaN."""
    if isnan(difference):
        return Cell(NOTHING)
    return Cell(f"{100 * difference:+.2f}", difference, _interval(interval, "+.1f"))


def p_cell(p_value: float) -> Cell:
    """Show a p-value without its name."""
    text = NOTHING if isnan(p_value) else p_text(p_value, name="").strip(" =")
    return Cell(text, p_value)


def p_text(p_value: float, *, name: str = "p") -> str:
    """Write a p-value as ``p = 0.03`` or ``p < 0.0001``."""
    if p_value < 1e-4:
        return f"{name} < 0.0001"
    return f"{name} = {p_value:.4f}" if p_value < 0.001 else f"{name} = {p_value:.2g}"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, text_columns: int = 1) -> str:
    """Write a table in Markdown, numbers to the right of their columns."""
    rule = ["---"] * text_columns + ["--:"] * (len(header) - text_columns)
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, rule, *rows])


def _interval(ends: Sequence[float] | None, form: str) -> str:
    if ends is None or isnan(ends[0]):
        return ""
    return f"{100 * ends[0]:{form}} to {100 * ends[1]:{form}}"
