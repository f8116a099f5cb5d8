"""The report of an evaluation: sentences and tables, for the terminal and as Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan

from graphrerank.evaluation.query_browser import SHOWN, QueryBrowser
from graphrerank.evaluation.records import DatasetResult, PairedTest, Replication
from graphrerank.evaluation.result_tables import NAMED, dataset_tables, quality_table
from graphrerank.evaluation.tables import (
    Cell,
    Table,
    markdown_table,
    p_text,
    percent_cell,
    points_cell,
    print_table,
    records_table,
    row_name,
)

SHOWN_TEXT = 120  # characters of a text of several sentences
LEVEL = 0.05  # of the corrected p-value, for sentences
TRAINED_ON_CANDIDATES = ("checkpoint", "operator")  # kinds of systems that rerank the candidates
TIES = {
    "own": "equal scores in the order that the system gave (else that of the corpus)",
    "trec": "equal scores by document id, from the highest to the lowest, as trec_eval does",
}


@dataclass(frozen=True)
class Verdict:
    """The tests' verdict on the primary system and another one."""

    outcome: str  # `ahead`, `behind` or `unclear`, in the first measure tested, at p Holm < 5%
    line: str  # for the terminal: differences in points, with the p-values of the randomisation test
    sentence: str  # for reports: differences with intervals and corrected p-values


def title_of(dataset: DatasetResult) -> str:
    """Name a data set with its size."""
    candidates = "" if dataset.candidates is None else f", {dataset.candidates:,} candidates"
    return f"{dataset.name} {dataset.split}: {len(dataset.query_ids):,} queries{candidates}"


def notes_of(dataset: DatasetResult, ties: str) -> list[str]:
    """List notes: those of the result, the ceiling, ties (``ties``: a key of ``TIES``), missing queries, routes."""
    lines = list(dataset.notes)
    if dataset.ceiling is not None:
        mixed = any(system.kind not in TRAINED_ON_CANDIDATES for system in dataset.systems.values())
        expanded = dataset.base_ceiling not in (None, dataset.ceiling)
        before = f" ({percent_cell(dataset.base_ceiling)} before expansion)" if expanded else ""
        what = "ceiling of PR for checkpoints" if mixed else "ceiling of PR"
        lines.append(f"{what} {percent_cell(dataset.ceiling)}{before}: all relevant are candidates")
    tied = {name: system.tied_share for name, system in dataset.systems.items() if system.tied_share}
    if tied:
        shares = ", ".join(f"{row_name(name)} {percent_cell(share)}%" for name, share in tied.items())
        lines.append(f"queries with a tie in the top 10: {shares}; {TIES[ties]}")
    for name, system in dataset.systems.items():
        if system.missing:
            named = ", ".join(system.missing[:NAMED]) + (", ..." if len(system.missing) > NAMED else "")
            lines.append(
                f"{row_name(name)} ranks nothing for {len(system.missing):,} queries, which count as 0: {named}"
            )
        if system.routes:
            shares = ", ".join(f"{route} {100 * share:.0f}%" for route, share in system.routes.items())
            lines.append(f"{row_name(name)}: {shares} of the queries")
    return lines


def browser_note(browser: QueryBrowser, num_queries: int) -> str:
    """Describe which queries can be browsed, and what is shown of them."""
    kept = len(browser.queries)
    which = "all queries" if kept == num_queries else f"{kept:,} of {num_queries:,} queries"
    if len(browser.systems) > 1:
        which += f", those on which the two systems differ most in {browser.measure} first"
    return f"The first {SHOWN} passages of a query, and the edges between them: {which}."


def verdicts(dataset: DatasetResult) -> list[Verdict]:
    """Return the verdict on the primary system and each other one; differences that are NaN are left out."""
    by_baseline: dict[str, list[PairedTest]] = {}
    for test in dataset.tests:
        if not isnan(test.difference):
            by_baseline.setdefault(test.baseline, []).append(test)
    primary, sentences = row_name(dataset.primary), []
    for baseline, tests in by_baseline.items():
        clear = tests[0].p_holm < LEVEL
        outcome = "unclear" if not clear else "ahead" if tests[0].difference > 0 else "behind"
        verb = {"unclear": "cannot be told from", "ahead": "is ahead of", "behind": "is behind"}[outcome]
        short = [
            f"{test.measure} {100 * test.difference:+.1f} ({p_text(test.p_randomization)})"
            for test in sorted(tests, key=lambda test: dataset.measures.index(test.measure))
        ]
        full = [
            f"{test.measure} {points_cell(test.difference, test.interval)}, {p_text(test.p_holm, name='p Holm')}"
            for test in tests
        ]
        sentences.append(
            Verdict(
                outcome,
                line=f"{primary} against {row_name(baseline)}: {', '.join(short)}",
                sentence=f"{primary} {verb} {row_name(baseline)}: {'; '.join(full)}",
            )
        )
    return sentences


def render_markdown(
    datasets: Mapping[str, DatasetResult], across: Sequence[Replication], *, command: str, ties: str
) -> str:
    """Write all tables and sentences of some data sets, and those over all of them, as Markdown."""
    parts = ["# Systems side by side", f"`{command}`"]
    for dataset in datasets.values():
        parts += [f"## {title_of(dataset)}", _bullets([verdict.sentence for verdict in verdicts(dataset)])]
        for table in dataset_tables(dataset):
            parts += [f"### {table.title.capitalize()}", table.caption, _markdown(table)]
            if table.title == "quality":
                parts.append(_bullets(notes_of(dataset, ties)))
    if across:
        table = records_table(Replication, across)
        parts += [f"## {table.title.capitalize()}", table.caption, _markdown(table)]
    return "\n\n".join(part for part in parts if part) + "\n"


def print_result(dataset: DatasetResult, *, ties: str) -> None:
    """Print the quality of all systems, the ceiling, ties, missing queries, the results of the tests, and stages.

    Means over queries with several relevant nodes (``/multi``) are left to the reports.
    """
    lines = [*notes_of(dataset, ties), *(verdict.line for verdict in verdicts(dataset))]
    shown = [measure for measure in dataset.measures if not measure.endswith("/multi")] or dataset.measures
    print_table(quality_table(dataset, shown), title=title_of(dataset), lines=lines)
    for table in dataset.tables:
        if table.printed:
            print_table(table, title=table.title)


def _bullets(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {_escaped(sentence)}" for sentence in sentences)


def _markdown(table: Table) -> str:
    rows = [[_markdown_cell(cell) for cell in row] for row in table.rows]
    return markdown_table([_escaped(name) for name in table.header], rows, text_columns=table.text_columns)


def _markdown_cell(cell: Cell) -> str:
    text = " ".join(cell.text.split())
    if cell.prose and len(text) > SHOWN_TEXT:
        text = f"{text[: SHOWN_TEXT - 3]}..."
    text = f"**{_escaped(text)}**" if cell.best else _escaped(text)
    return f"{text} ({_escaped(cell.note)})" if cell.note else text


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
