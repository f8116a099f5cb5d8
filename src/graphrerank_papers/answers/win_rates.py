"""Share of the questions on which one system's answers are preferred to another's, with its interval and test."""

from collections.abc import Sequence
from dataclasses import dataclass

from graphrerank.evaluation.findings import Finding
from graphrerank.evaluation.significance import bootstrap_interval, paired_randomization
from graphrerank.evaluation.tables import markdown_table, p_cell
from graphrerank_papers.answers.answer_judge import Verdicts


@dataclass(frozen=True)
class WinRate(Finding):
    """The first system against the second by one criterion."""

    system: str  # name of the first
    baseline: str  # name of the second
    criterion: str
    wins: int  # questions on which the first system's answer is better
    ties: int  # questions on which neither is
    losses: int  # questions on which the second system's is
    without: int  # questions without a verdict in both orders, or with two blank answers
    rate: float  # share of wins, ties counted half; NaN where no question counts
    interval: tuple[float, float]  # its 95% bootstrap interval over questions
    p_value: float  # of the paired randomisation test against 0.5
    agreement: float  # share of the questions whose verdict is the same in both orders of the answers


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


def win_rates_table(rates: Sequence[WinRate]) -> str:
    """Lay win rates out in Markdown, in percent."""
    header = ["criterion", "won", "tied", "lost", "no verdict", "win rate", "95% interval", "p", "same in both orders"]
    rows = []
    for rate in rates:
        counts = (rate.wins, rate.ties, rate.losses, rate.without)
        shares = [
            f"{100 * rate.rate:.1f}",
            f"{100 * rate.interval[0]:.1f} to {100 * rate.interval[1]:.1f}",
            p_cell(rate.p_value).text,
            f"{100 * rate.agreement:.0f}",
        ]
        rows.append([rate.criterion, *map(str, counts), *(shares if any(counts[:3]) else [""] * len(shares))])
    return markdown_table(header, rows)
