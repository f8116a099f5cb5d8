"""Share of the questions on which one system's answers are preferred to another's, with its interval and test."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from graphrerank.evaluation.significance import bootstrap_interval, paired_randomization
from graphrerank.evaluation.tables import (
    Cell,
    Columns,
    Table,
    build_table,
    number_cell,
    p_cell,
    percent_cell,
    system_cell,
)
from graphrerank.files import without_nan
from graphrerank_papers.answers.answer_judge import Verdicts


@dataclass(frozen=True)
class WinRate:
    """The first system against the second by one criterion."""

    system: str  # name of the first
    baseline: str  # name of the second
    criterion: str
    wins: int  # questions on which the first system's answer is better
    ties: int  # questions on which neither is
    losses: int  # questions on which the second system's is
    without: int  # questions without a verdict in both orders, or with two blank answers
    rate: float  # share of wins, ties counted half; NaN if no question counts
    interval: tuple[float, float]  # its 95% bootstrap interval over questions
    p_value: float  # of the paired randomisation test against 0.5
    agreement: float  # share of the questions whose verdict is the same in both orders of the answers

    def to_json(self) -> dict[str, Any]:
        """Return plain values; NaN becomes null."""
        content: dict[str, Any] = without_nan(asdict(self))
        return content


def win_rates(verdicts: Verdicts, *, system: str, baseline: str, seed: int = 0) -> list[WinRate]:
    """Count verdicts by criterion, one entry each; questions without a usable verdict do not count."""
    rates = []
    for criterion, scores, agreement in zip(
        verdicts.criteria, verdicts.scores, verdicts.agreement.tolist(), strict=True
    ):
        low, high = bootstrap_interval(scores, seed=seed).tolist()
        wins, ties, losses = (int((scores == score).sum()) for score in (1.0, 0.5, 0.0))
        p_value = float(paired_randomization(scores, 1 - scores, seed=seed))
        counts = (system, baseline, criterion, wins, ties, losses, len(scores) - wins - ties - losses)
        rates.append(WinRate(*counts, float(scores.nanmean()), (low, high), p_value, agreement))
    return rates


def wins_table(rates: Sequence[WinRate]) -> Table:
    """Lay out a row per other system and criterion."""

    def count(name: str, rate: WinRate) -> Cell:
        return number_cell(getattr(rate, name), ",.0f")

    columns: Columns[WinRate] = {
        "against": lambda rate: system_cell(rate.baseline),
        "criterion": lambda rate: Cell(rate.criterion),
        "won": partial(count, "wins"),
        "tied": partial(count, "ties"),
        "lost": partial(count, "losses"),
        "no verdict": partial(count, "without"),
        "win rate": lambda rate: percent_cell(rate.rate, rate.interval),
        "p": lambda rate: p_cell(rate.p_value),
        "same in both orders": lambda rate: percent_cell(rate.agreement),
    }
    caption = (
        "Answers of the last system against those of each other one, judged by a model in both orders: a win in one "
        "order and a tie in the other is a win, opposite verdicts are a tie, and ties count half. No verdict: both are "
        "blank, one is missing, or an order lacks a usable verdict; these do not count. Win rate: percent with its 95% "
        "bootstrap interval; p: paired randomisation test against one half. Same: percent of the pairs with one "
        "verdict in both orders."
    )
    return replace(build_table("win rates", caption, rates, columns, text_columns=2), printed=True)
