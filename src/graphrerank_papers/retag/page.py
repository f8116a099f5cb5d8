"""The page of ``experiment=retag_podcast``: what there is to read, what is retrieved of it, whose answers win."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from graphrerank.evaluation.paired_tests import compare_pairs
from graphrerank.evaluation.significance import bootstrap_interval
from graphrerank.evaluation.tables import markdown_table, p_text
from graphrerank_papers.answers.win_rates import WinRate, win_rates_table
from graphrerank_papers.retag.cited_answers import CitedAnswers, answers_table
from graphrerank_papers.retag.summary_retrieval import Reading, SummaryResult


@dataclass(frozen=True)
class Compared:
    """One way to choose summaries against another, in recall."""

    first: str  # the one
    second: str  # the other
    difference: float  # mean over questions of first minus second
    interval: tuple[float, float]  # its 95% bootstrap interval
    # of the paired randomisation test, two-sided, after Holm's correction over all comparisons of a table
    p_value: float


@dataclass(frozen=True)
class RecallTable:
    """All ways to choose summaries, among the same candidates."""

    scope: str  # whose candidates: `general graph` or `topics`
    level: int  # of the communities
    top_k: int  # summaries that are retrieved, and that a full read would select
    candidates: float  # mean number of candidates of a question
    num_chosen: int  # questions that settings were chosen on
    results: Sequence[SummaryResult]  # on the other questions
    comparisons: Sequence[Compared]  # between them

    def to_json(self) -> dict[str, Any]:
        """Return its entry of ``metrics.json``."""
        return {
            "scope": self.scope,
            "level": self.level,
            "top_k": self.top_k,
            "candidates": self.candidates,
            "questions": {"chosen_on": self.num_chosen, "judged_on": len(self.results[0].recall)},
            "systems": {result.name: result.to_json() for result in self.results},
            "comparisons": [vars(entry) for entry in self.comparisons],
        }


def compare_recall(results: Sequence[SummaryResult], pairs: Sequence[tuple[str, str]], *, seed: int) -> list[Compared]:
    """Test pairs of results against each other over the same questions; the one expected to be better comes first."""
    position = {result.name: index for index, result in enumerate(results)}
    scores = torch.stack([result.recall for result in results]).unsqueeze(1)  # [S, 1, Q]
    statistics = compare_pairs(scores, [(position[first], position[second]) for first, second in pairs], seed=seed)
    p_values = statistics.p_holm[:, 0].tolist()
    ends = statistics.interval[:, 0].tolist()
    differences = statistics.difference[:, 0].tolist()
    return [
        Compared(*pair, difference, (low, high), p_value)
        for pair, difference, (low, high), p_value in zip(pairs, differences, ends, p_values, strict=True)
    ]


def reading_table(readings: Sequence[Reading]) -> str:
    """Lay out the tokens to read, relative to the first row of each level."""
    counted = ["level", "summaries of", "summaries", "tokens", "tokens, %", "no topic, %", "one", "more"]
    header = [*counted, "p50 ms", "p95 ms", "CPU ms"]
    rows, first = [], {reading.level: reading.tokens for reading in reversed(readings)}
    for reading in readings:
        share = 100 * reading.tokens / first[reading.level] if first[reading.level] else torch.nan
        counts = [f"{reading.summaries:.1f}", f"{reading.tokens:,.0f}", f"{share:.1f}"]
        shares = [f"{100 * part:.0f}" for part in reading.shares]
        times = [f"{number:.1f}" for number in reading.milliseconds]
        rows.append([str(reading.level), reading.name, *counts, *shares, *times])
    return markdown_table(header, rows)


def recall_table(table: RecallTable) -> str:
    """Lay out recall with its interval, latency, settings and comparisons."""
    header = ["retrieval", f"R@{table.top_k}", "95% interval", "p50 ms", "p95 ms", "CPU ms", "settings"]
    rows = []
    for result in table.results:
        low, high = bootstrap_interval(result.recall).tolist()
        settings = ", ".join(f"{name} {value:g}" for name, value in result.settings.items())
        recall = [f"{100 * float(result.recall.nanmean()):.1f}", f"{100 * low:.1f} to {100 * high:.1f}"]
        rows.append([result.name, *recall, *(f"{number:.1f}" for number in result.milliseconds), settings])
    lines = [
        f"- {entry.first} against {entry.second}: {100 * entry.difference:+.1f} points "
        f"({100 * entry.interval[0]:+.1f} to {100 * entry.interval[1]:+.1f}; {p_text(entry.p_value)})"
        for entry in table.comparisons
    ]
    return markdown_table(header, rows) + "\n\n" + "\n".join(lines)


def render_retag(
    command: str,
    index_line: str,
    readings: Sequence[Reading],
    tables: Sequence[RecallTable],
    counts: Sequence[CitedAnswers],
    wins: Mapping[str, Sequence[WinRate]],
) -> str:
    """Write the page."""
    parts = [
        "# ReTAG: retrieval and answers",
        f"`{command}`",
        index_line,
        "## What there is to read",
        "Per question on average. GraphRAG reads all summaries of a level of the general graph; level 0 is the "
        "coarsest. Tokens in percent of GraphRAG's at the same level. p50 and p95 (wall time) and CPU (median CPU "
        "time): choosing the summaries of one question at a time, without encoding it.",
        reading_table(readings),
    ]
    for table in tables:
        judged = len(table.results[0].recall)
        parts += [
            f"## Retrieval, level {table.level}, {table.scope}",
            f"R@{table.top_k}: of the {table.top_k} summaries that a full read would select (best under the "
            f"cross-encoder of {table.candidates:.1f} candidates on average), the share among the first "
            f"{table.top_k}; percent. Settings were chosen on {table.num_chosen} questions; the numbers are for the "
            f"other {judged}. p50, p95 (wall time) and CPU (median CPU time): one question at a time, without encoding "
            "it. p-values: paired randomisation test, after Holm's correction over the comparisons of this table; in "
            "brackets the difference's 95% bootstrap interval.",
            recall_table(table),
        ]
    if counts:
        parts += [
            "## Answers",
            "An answer is empty if no summary helps, or no answer of the model was usable. Tokens to read: of the "
            "summaries, per question. Model tokens and USD: of all questions, as if this system were the only one. "
            "Failed: with what was rejected; unusable: with what was refused.",
            answers_table(counts),
        ]
    for name, rates in wins.items():
        parts += [
            f"## Answers: {name}",
            "Judged by the language model, each pair in both orders; a pair whose two verdicts contradict each other "
            "is tied, as are two equal answers; an empty one loses to any other. Ties count half; two empty answers "
            "and pairs without a usable verdict do not count.",
            win_rates_table(rates),
        ]
    return "\n\n".join(parts) + "\n"
