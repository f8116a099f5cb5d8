"""A study for people: on the terminal, as Markdown, and as the numbers of ``metrics.json``."""

import math
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from graphrerank.evaluation.study import DatasetStudy, Study
from graphrerank.evaluation.study_tables import (
    DATASET_TABLES,
    TextTable,
    across_table,
    percent,
    points,
    quality_table,
)
from graphrerank.evaluation.tables import markdown_table, row_name
from graphrerank.files import write_json

NAMED = 5  # missing queries that are named
LEVEL = 0.05
TIES = {
    "own": "equal scores in the order that the system gave (else that of the corpus)",
    "trec": "equal scores by document id, from the highest to the lowest, as trec_eval does",
}
EXPLAINED = {
    "tests": (
        "Paired tests over queries: p of the randomisation test and of the bootstrap, two-sided; p Holm, the former "
        "corrected for all rows of this table. Effect size: mean over standard deviation of the queries' differences."
    ),
    "cost": (
        "Median / 95th percentile per query, one query at a time. Peak: of the whole process, with the data, while the "
        "system ranked many queries at once."
    ),
    "hubs": (
        "Spearman's correlation of score with number of neighbours, and how much more often hubs (the tenth of the "
        "nodes with most neighbours) stand in the top 10 than in the corpus. Without bias both are those of relevance."
    ),
    "other edges": (
        "The same candidates, reranked with shuffled edges (each candidate with as many neighbours as before) or none."
    ),
    "calibration": (
        "Scores as probabilities of relevance, over all candidates of all queries: expected calibration error in ten "
        "bins, and the Brier score, which knowing nothing but the share of relevant candidates would give as the last."
    ),
    "queries": "Against the best of the others: the queries that gain most, then those that lose most.",
}
ACROSS = (
    "Wins: on at least so many data sets the win holds, at a chance of 5% to count too many (partial conjunction; by "
    "Bonferroni, then by Fisher for independent data sets). Which: by Holm's procedure. Combined: sign flips of all "
    "queries, each data set with the same weight; it speaks of other queries, not of other data sets."
)


def render_study(study: Study) -> str:
    """Write everything of a study as Markdown."""
    parts = ["# Systems side by side", f"`{study.command}`"]
    for dataset in study.datasets.values():
        parts += [f"## {title_of(dataset)}", "\n".join(f"- {said}" for said in verdicts(dataset))]
        for title, table in DATASET_TABLES.items():
            header, rows = table(dataset)
            if rows:
                heading = [] if title == "quality" else [f"### {title.capitalize()}"]
                explained = [EXPLAINED[title]] if title in EXPLAINED else []
                parts += [*heading, *explained, _markdown((header, rows))]
            if title == "quality":
                parts.append("\n".join(f"- {note}" for note in notes(dataset, study.settings.get("ties", "own"))))
    if study.across:
        parts += ["## Over all data sets", ACROSS, _markdown(across_table(study))]
    return "\n\n".join(part for part in parts if part) + "\n"


def print_study(dataset: DatasetStudy, *, ties: str) -> None:
    """Print the quality of all systems and what the tests say."""
    header, rows = quality_table(dataset, intervals=False)
    table = Table(title=title_of(dataset), caption="\n".join([*notes(dataset, ties), *verdicts(dataset)]))
    for column in header:
        table.add_column(column, justify="left" if column == "system" else "right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def title_of(dataset: DatasetStudy) -> str:
    """Name a data set with its size."""
    candidates = "" if dataset.candidates is None else f", {dataset.candidates} candidates"
    return f"{dataset.name} {dataset.split}: {len(dataset.query_ids):,} queries{candidates}"


def notes(dataset: DatasetStudy, ties: str) -> list[str]:
    """Say what the numbers hide: the ceiling, ties, missing queries."""
    lines = []
    if dataset.ceiling is not None:
        expanded = dataset.base_ceiling not in (None, dataset.ceiling)
        before = f" ({100 * (dataset.base_ceiling or 0):.2f} before expansion)" if expanded else ""
        lines.append(f"ceiling of PR for checkpoints {100 * dataset.ceiling:.2f}{before}: all relevant are candidates")
    shares = {name: one.tied_share for name, one in dataset.systems.items() if one.tied_share}
    shown = ", ".join(f"{row_name(name)} {100 * share:.1f}%" for name, share in shares.items())
    lines.append(f"{TIES[ties]}; queries with a tie in the top 10: {shown or 'none'}")
    for name, one in dataset.systems.items():
        if one.missing:
            some = ", ".join(one.missing[:NAMED]) + (", ..." if len(one.missing) > NAMED else "")
            lines.append(f"{row_name(name)} ranks nothing for {len(one.missing):,} queries, which count as 0: {some}")
    return lines


def study_metrics(study: Study) -> dict[str, Any]:
    """Return what ``metrics.json`` holds: means, intervals, costs and comparisons, without single queries."""
    datasets = {}
    for name, dataset in study.datasets.items():
        systems = {
            key: {
                **one.means,
                "interval": {measure: list(ends) for measure, ends in one.intervals.items() if not math.isnan(ends[0])},
                "cost": None if one.cost is None else vars(one.cost),
                "missing": len(one.missing),
                "tied_share": one.tied_share,
            }
            for key, one in dataset.systems.items()
        }
        datasets[name] = {
            "split": dataset.split,
            "queries": len(dataset.query_ids),
            "candidates": dataset.candidates,
            "ceiling": dataset.ceiling,
            "base_ceiling": dataset.base_ceiling,
            "systems": systems,
            "comparisons": [test.to_json() for test in dataset.tests],
        }
    return {"datasets": datasets, "across": [finding.to_json() for finding in study.across]}


def write_study_metrics(path: Path, study: Study, **extra: Any) -> None:
    """Write ``metrics.json`` of a study, and whatever else the run measured."""
    write_json(path, {**study_metrics(study), **extra})


def verdicts(dataset: DatasetStudy) -> list[str]:
    """Say per measure whom the last system is ahead of, behind, and whom it cannot be told from (p Holm < 5%)."""
    sentences = []
    for measure in dataset.tested:
        groups: dict[str, list[str]] = {"is ahead of": [], "is behind": [], "cannot be told from": []}
        for test in dataset.tests:
            if test.measure == measure and not math.isnan(test.difference):
                told = test.p_holm < LEVEL
                verb = "cannot be told from" if not told else "is ahead of" if test.difference > 0 else "is behind"
                groups[verb].append(
                    f"{row_name(test.baseline)} ({points(test.difference)})" if told else row_name(test.baseline)
                )
        said = "; ".join(f"{verb} {', '.join(names)}" for verb, names in groups.items() if names)
        if said:
            mean = percent(dataset.systems[dataset.primary].means[measure])
            sentences.append(f"{measure}: {row_name(dataset.primary)} ({mean}) {said}")
    return sentences


def _markdown(table: TextTable) -> str:
    header, rows = table
    return markdown_table(header, [[cell.replace("|", "\\|").replace("<", "&lt;") for cell in row] for row in rows])
