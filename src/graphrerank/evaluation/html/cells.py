"""What the cells of the report's tables hold: texts as in the other reports, with the numbers that they sort by."""

from collections.abc import Sequence
from math import isnan

from graphrerank.evaluation import study_tables
from graphrerank.evaluation.html.elements import Cell
from graphrerank.evaluation.study_tables import NOTHING, interval_text


def percent(share: float | None, interval: Sequence[float] | None = None, *, strong: bool = False) -> Cell:
    """Write a share in percent, with its interval below; a dash where there is none."""
    if share is None or isnan(share):
        return Cell(NOTHING)
    return Cell(study_tables.percent(share), share, _note(interval), strong)


def points(difference: float, interval: Sequence[float] | None = None) -> Cell:
    """Write a difference of shares in points, with its interval below."""
    return Cell(study_tables.points(difference), difference, _note(interval, signed=True))


def plain(number: float | None, form: str = ".2f") -> Cell:
    """Write a number; a dash where there is none."""
    return Cell(study_tables.number(number, form), number)


def probability(p_value: float) -> Cell:
    """Write a p-value."""
    return Cell(study_tables.p_cell(p_value), p_value)


def _note(interval: Sequence[float] | None, *, signed: bool = False) -> str:
    return "" if interval is None or isnan(interval[0]) else interval_text(interval, signed=signed)
