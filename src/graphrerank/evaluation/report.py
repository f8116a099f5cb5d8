"""Tables and sentences of a report, for the terminal and as Markdown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isnan

from graphrerank.evaluation.decision import best_line
from graphrerank.evaluation.latency import TOTAL
from graphrerank.evaluation.legend import explained_name, legend
from graphrerank.evaluation.records import (
    READING,
    Counterfactual,
    DatasetResult,
    ListReliability,
    PairedTest,
    QueryDifference,
    Reliability,
    SystemResult,
)
from graphrerank.evaluation.significance import ALPHA
from graphrerank.evaluation.tables import (
    Cell,
    Table,
    number_cell,
    p_text,
    percent_cell,
    points_cell,
    print_table,
    records_table,
    row_name,
    rows_table,
)
from graphrerank.utils.markdown import markdown_table

QUANTILES = ("p50", "p95")
NAMED = 5  # maximum number of missing queries whose ids are listed
SHOWN_TEXT = 120  # maximum length of prose in a Markdown cell, in characters
RERANK = ("checkpoint", "operator")  # kinds of systems that rerank the candidates
#: Description of each rule for ties.
TIES = {
    "own": "equal scores in the order of the system (otherwise of the corpus)",
    "trec": "equal scores by document id in descending order, as trec_eval does",
}


def print_result(dataset: DatasetResult, *, ties: str, with_legend: bool = True) -> None:
    """Print the quality of all systems, notes, tests, the best system, a legend, and the tables of stages.

    Measures whose names end with ``/multi`` are only shown in the report, unless there are no others. Columns of
    latency are left out if nothing was timed.

    Args:
        dataset: Results of the data set.
        ties: Order of passages with equal scores, a key of ``TIES``.
        with_legend: Whether to explain the rows and columns.
    """
    lines = [*notes_of(dataset, ties), *(verdict.line for verdict in verdicts(dataset)), *best_lines(dataset)]
    shown = [measure for measure in dataset.measures if not measure.endswith("/multi")] or dataset.measures
    explained = legend(dataset, shown) if with_legend else []
    table = quality_table(dataset, shown)
    if all(system.cost is None for system in dataset.systems.values()):
        width = len(table.header) - len(QUANTILES)
        table = replace(table, header=table.header[:width], rows=[row[:width] for row in table.rows])
    print_table(table, title=title_of(dataset), lines=[*lines, *explained])
    for table in dataset.tables:
        if table.printed:
            print_table(table, title=table.title)


@dataclass(frozen=True)
class Verdict:
    """Outcome of the significance tests of the primary system against another system.

    Attributes:
        outcome: ``ahead``, ``behind`` or ``unclear``, in the first tested measure at a corrected p-value below 0.05.
        line: Line for the terminal, with differences in points and the p-values of the randomisation test.
        sentence: Sentence for reports, with differences, intervals and corrected p-values.
    """

    outcome: str
    line: str
    sentence: str


def title_of(dataset: DatasetResult) -> str:
    """Return the title of a data set, with its split and its size.

    Args:
        dataset: Results of the data set.
    """
    candidates = "" if dataset.candidates is None else f", {dataset.candidates:,} candidates"
    count = len(dataset.query_ids)
    if dataset.drafted:
        return f"{dataset.name}: {count:,} drafted questions, not asked by users{candidates}"
    return f"{dataset.name} {dataset.split}: {count:,} queries{candidates}"


def best_lines(dataset: DatasetResult) -> list[str]:
    """Return the line about the best system of a table, if there are several (:func:`best_line`).

    Args:
        dataset: Results of the data set.
    """
    line = best_line(dataset)
    return [] if line is None else [line]


def notes_of(dataset: DatasetResult, ties: str) -> list[str]:
    """Return the notes on a data set: its own notes, the ceiling, ties, missing queries and routes.

    Args:
        dataset: Results of the data set.
        ties: Order of passages with equal scores, a key of ``TIES``.

    Returns:
        One sentence per note.
    """
    lines = list(dataset.notes)
    if dataset.drafted:
        lines.append("the questions are drafted from the passages: gains on them often do not carry over to users")
    if dataset.ceiling is not None:
        mixed = any(system.kind not in RERANK for system in dataset.systems.values())
        expanded = dataset.base_ceiling not in (None, dataset.ceiling)
        before = f" ({percent_cell(dataset.base_ceiling)} before expansion)" if expanded else ""
        label = "ceiling of PR for checkpoints" if mixed else "ceiling of PR"
        lines.append(f"{label} {percent_cell(dataset.ceiling)}{before}: all relevant passages are candidates")
        if dataset.base_ceiling is not None and dataset.ceiling < dataset.base_ceiling:
            lost = round((dataset.base_ceiling - dataset.ceiling) * len(dataset.query_ids))
            lines.append(
                f"warning: expansion along edges loses relevant passages of {lost:,} more questions than it completes. "
                "Use retriever=hybrid, retriever.tail_bonus=0.8, or more edges (edges=auto)"
            )
    tied = {name: system.tied_share for name, system in dataset.systems.items() if system.tied_share}
    if tied:
        shares = ", ".join(f"{row_name(name)} {percent_cell(share)}%" for name, share in tied.items())
        lines.append(f"queries with a tie in the top 10: {shares}; {TIES[ties]}")
    for name, system in dataset.systems.items():
        if system.missing:
            count = len(system.missing)
            ids = ", ".join(system.missing[:NAMED]) + (", ..." if count > NAMED else "")
            lines.append(f"{row_name(name)} returned no passages for {count:,} queries, which score 0: {ids}")
        if system.routes:
            shares = ", ".join(f"{route} {100 * share:.0f}%" for route, share in system.routes.items())
            lines.append(f"{row_name(name)}: {shares} of the queries")
    return lines


def verdicts(dataset: DatasetResult) -> list[Verdict]:
    """Return the verdicts on the primary system against every other system.

    Args:
        dataset: Results of the data set.

    Returns:
        One verdict per system. Tests whose difference is NaN are left out.
    """
    valid_tests = [test for test in dataset.tests if not isnan(test.difference)]
    primary = row_name(dataset.primary)
    sentences = []
    for baseline in dict.fromkeys(test.baseline for test in valid_tests):
        tests = [test for test in valid_tests if test.baseline == baseline]
        outcome = "unclear"
        if tests[0].p_holm < ALPHA:
            outcome = "ahead" if tests[0].difference > 0 else "behind"
        verb = {"unclear": "does not differ clearly from", "ahead": "is ahead of", "behind": "is behind"}[outcome]
        short = [
            f"{test.measure} {100 * test.difference:+.1f} ({p_text(test.p_randomization)})"
            for test in sorted(tests, key=lambda test: dataset.measures.index(test.measure))
        ]
        full = [
            f"{test.measure} {points_cell(test.difference, test.interval)}, {p_text(test.p_holm, name='p Holm')}"
            for test in tests
        ]
        line = f"{primary} against {row_name(baseline)}: {', '.join(short)}"
        sentences.append(Verdict(outcome, line, f"{primary} {verb} {row_name(baseline)}: {'; '.join(full)}"))
    return sentences


def bullets(sentences: Sequence[str]) -> str:
    """Return sentences as a Markdown list.

    Args:
        sentences: Sentences, one per item.
    """
    return "\n".join(f"- {_escaped(sentence)}" for sentence in sentences)


def markdown(table: Table) -> str:
    """Return a table in Markdown. Notes are in parentheses, the best cells in bold, and long prose is truncated.

    Args:
        table: Table to render.
    """
    rows = [list(map(_markdown_cell, row)) for row in table.rows]
    return markdown_table(list(map(_escaped, table.header)), rows, text_columns=table.text_columns)


def _markdown_cell(cell: Cell) -> str:
    text = " ".join(cell.text.split())
    if cell.prose and len(text) > SHOWN_TEXT:
        text = f"{text[: SHOWN_TEXT - 3]}..."
    text = f"**{_escaped(text)}**" if cell.best else _escaped(text)
    return f"{text} ({_escaped(cell.note)})" if cell.note else text


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def dataset_tables(dataset: DatasetResult) -> list[Table]:
    """Return all tables of a data set.

    Args:
        dataset: Results of the data set.

    Returns:
        Tables, quality first. Tables without rows are left out.
    """
    tables = [
        quality_table(dataset),
        records_table(PairedTest, dataset.tests),
        *dataset.tables,
        _cost_table(dataset),
        _groups_table(dataset),
        records_table(Counterfactual, dataset.counterfactuals),
        records_table(Reliability, dataset.reliability),
        records_table(ListReliability, dataset.list_reliability),
        records_table(QueryDifference, dataset.query_differences),
        records_table(SystemResult, list(dataset.systems.values())),
    ]
    return [table for table in tables if table.rows]


def quality_table(dataset: DatasetResult, measures: Sequence[str] = ()) -> Table:
    """Build the table of quality, with one row per system.

    Args:
        dataset: Results of the data set.
        measures: Measures to show. If empty, all measures.

    Returns:
        Table of measures in percent with intervals, and of the milliseconds per query.
    """
    means = {name: system.means for name, system in dataset.systems.items()}
    shown = measures or dataset.measures
    highest = {measure: _highest(of_system[measure] for of_system in means.values()) for measure in shown}
    rows = []
    for name, system in dataset.systems.items():
        row = {"system": Cell(row_name(name), note=explained_name(name))}
        for measure in shown:
            mean = means[name][measure]
            row[measure] = percent_cell(mean, system.intervals.get(measure), best=mean == highest[measure])
        ms = {} if system.cost is None else system.cost.ms.get(TOTAL, {})
        rows.append({**row, **{f"{quantile} ms": number_cell(ms.get(quantile)) for quantile in QUANTILES}})
    caption = (
        "Measures in percent with 95% bootstrap intervals over queries. The highest value of a column is bold. Median "
        "and 95th percentile of the milliseconds per query."
    )
    return rows_table("quality", caption, rows)


def _cost_table(dataset: DatasetResult) -> Table:
    """Build the table of cost: median and 95th percentile of each stage, encoded pairs and memory of timed systems."""
    costs = {name: system.cost for name, system in dataset.systems.items() if system.cost is not None}
    stages = list(dict.fromkeys(stage for cost in costs.values() for stage in cost.ms if stage != TOTAL))
    batched = any(cost.batch_ms for cost in costs.values())
    rows = []
    for name, cost in costs.items():
        row = {"system": Cell(row_name(name))}
        for stage in [TOTAL, *stages] if len(stages) > 1 else [TOTAL]:
            row |= {f"{stage} {q} ms": number_cell(cost.ms.get(stage, {}).get(q)) for q in QUANTILES}
        if batched:
            row["at once ms"] = number_cell(sum(cost.batch_ms.values()) if cost.batch_ms else None)
            row["reading at once ms"] = number_cell(cost.batch_ms.get(READING))
        row["pairs read"] = number_cell(cost.encodings, ",.0f")
        rows.append({**row, "peak MiB": number_cell(cost.peak_memory_mib, ",.0f")})
    caption = (
        "Median and 95th percentile per query, one query at a time. Peak: memory of the whole process, including the "
        "data, while the system ranked many queries at once."
    )
    if batched:
        pair_ms = next((cost.pair_ms for cost in costs.values() if cost.pair_ms), None)
        pairs = "" if pair_ms is None else f", at {pair_ms:.1f} ms per pair, including pairs from the cache"
        caption += f" At once: mean per query for many queries at once. Reading: time of the cross-encoder{pairs}."
    return rows_table("cost", caption, rows)


def _groups_table(dataset: DatasetResult) -> Table:
    """Build the table of means, with one row per group of queries and one column per system."""
    rows = []
    for group in dataset.breakdowns:
        named = {"queries by": Cell(group.by), "group": Cell(group.group), "measure": Cell(group.measure)}
        row = {**named, "queries": number_cell(group.num_queries, ",.0f")}
        highest = _highest(group.means.values())
        for system in dataset.systems:
            share = group.means.get(system)
            row[row_name(system)] = percent_cell(share, best=share == highest)
        rows.append(row)
    caption = "Means over groups of queries, in percent. The highest value of a row is bold."
    return rows_table("groups of queries", caption, rows, text_columns=3)


def _highest(means: Iterable[float]) -> float | None:
    return max((mean for mean in means if not isnan(mean)), default=None)
