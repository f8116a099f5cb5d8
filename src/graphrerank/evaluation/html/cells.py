"""What the cells of the report's tables hold."""

from math import isnan

from graphrerank.evaluation.html.elements import Cell
from graphrerank.evaluation.report import ROW_NAMES, p_text

NOTHING = "-"


def row_name(name: str) -> str:
    """Return the name that tables give a system."""
    return ROW_NAMES.get(name, name)


def percent(share: float | None, *, note: str = "", strong: bool = False) -> Cell:
    """Write a share in percent."""
    if share is None or isnan(share):
        return Cell(NOTHING)
    return Cell(f"{100 * share:.2f}", share, note, strong)


def points(difference: float, interval: tuple[float, float] | None = None) -> Cell:
    """Write a difference of shares in points, signed, with its interval below."""
    if isnan(difference):
        return Cell(NOTHING)
    return Cell(f"{100 * difference:+.2f}", difference, "" if interval is None else ends(interval, signed=True))


def ends(interval: tuple[float, float], *, signed: bool = False) -> str:
    """Write an interval of shares in percent; nothing where it is NaN."""
    low, high = (100 * end for end in interval)
    if isnan(low):
        return ""
    return f"{low:+.1f} to {high:+.1f}" if signed else f"{low:.1f} to {high:.1f}"


def plain(number: float | None, form: str = ".2f") -> Cell:
    """Write a number, a dash where there is none."""
    return Cell(NOTHING) if number is None or isnan(number) else Cell(format(number, form), number)


def probability(p: float) -> Cell:
    """Write a p-value."""
    return Cell(NOTHING) if isnan(p) else Cell(p_text(p).removeprefix("p ").removeprefix("= "), p)
