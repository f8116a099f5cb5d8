"""Tables on the terminal, in which neither a number nor a name is ever cut."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from graphrerank.evaluation.tables import Table

FRAME = 3  # characters of a column around its text: two blanks and a line
OUTER = 2  # blanks at both ends of a row
SHORTEST_NAME = 12


def print_table(table: Table, *, title: str, lines: Sequence[str] = ()) -> None:
    """Print a table, in several parts if the terminal is too narrow for all columns; each part has the rows' names.

    Names take at most a third of the width; longer ones take several lines. Notes of cells are left out. ``lines`` are
    sentences below, centred if all of them fit under the table.
    """
    console = Console()
    widths = [max(map(cell_len, texts)) for texts in _columns(table)]
    widths[0] = min(widths[0], max(SHORTEST_NAME, console.width // 3))
    tight = 0 < _width(widths) - console.width <= OUTER  # whole without the outer blanks
    parts = [list(range(1, len(widths)))] if tight else _parts(widths, console.width)
    needed = [_width([widths[0], *(widths[column] for column in part)]) - OUTER * tight for part in parts]
    console = Console(width=max(console.width, *needed))  # of a terminal too narrow for a name and a number
    for part, width in zip(parts, needed, strict=True):
        grid = RichTable(pad_edge=not tight)
        for column in (0, *part):
            justify: JustifyMethod = "left" if column < table.text_columns else "right"
            grid.add_column(Text(table.header[column]), justify=justify, width=widths[column], overflow="fold")
        for row in table.rows:
            grid.add_row(*(Text(row[column].text, "bold" if row[column].best else "") for column in (0, *part)))
        above, below = [title] if part is parts[0] else [], lines if part is parts[-1] else []
        fits = max(map(cell_len, [*above, *below]), default=0) <= width
        if fits:
            grid.title, grid.caption = (Text("\n".join(texts)) if texts else None for texts in (above, below))
        for printed in (grid,) if fits else (*map(Text, above), grid, *map(Text, below)):
            console.print(printed)


def _parts(widths: Sequence[int], room: int) -> list[list[int]]:
    """Distribute the columns after the first over tables that fit the width, at least one to a table."""
    parts: list[list[int]] = [[]]
    for column in range(1, len(widths)):
        if parts[-1] and _width([widths[0], *(widths[other] for other in (*parts[-1], column))]) > room:
            parts.append([])
        parts[-1].append(column)
    return parts


def _columns(table: Table) -> list[list[str]]:
    rows = [list(table.header), *([cell.text for cell in row] for row in table.rows)]
    return [list(column) for column in zip(*rows, strict=True)]


def _width(columns: Sequence[int]) -> int:
    return 1 + sum(width + FRAME for width in columns)
