"""A study as tables and sentences: what the terminal, ``report.md``, ``report.html`` and W&B show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan

from graphrerank.evaluation.cost import TOTAL
from graphrerank.evaluation.findings import PairedTest
from graphrerank.evaluation.study import Cost, DatasetStudy, Study
from graphrerank.evaluation.tables import (
    Cell,
    Table,
    number_cell,
    p_cell,
    p_text,
    percent_cell,
    points_cell,
    row_name,
    system_cell,
)

LEVEL = 0.05  # of the corrected p-value, for sentences
NAMED = 5  # missing queries that are named
TRAINED_ON_CANDIDATES = ("checkpoint", "operator")  # kinds of systems that rerank the candidates
TIES = {
    "own": "equal scores in the order that the system gave (else that of the corpus)",
    "trec": "equal scores by document id, from the highest to the lowest, as trec_eval does",
}


@dataclass(frozen=True)
class Verdict:
    """What the tests say of the primary system and another one.

    Attributes:
        outcome: ``ahead``, ``behind`` or ``unclear``, in the first measure tested, at p Holm < 5%.
        line: For the terminal: differences in points, with the p-values of the randomisation test.
        sentence: For reports: differences with intervals and corrected p-values.
    """

    outcome: str
    line: str
    sentence: str


def title_of(dataset: DatasetStudy) -> str:
    """Name a data set with its size."""
    candidates = "" if dataset.candidates is None else f", {dataset.candidates:,} candidates"
    return f"{dataset.name} {dataset.split}: {len(dataset.query_ids):,} queries{candidates}"


def notes_of(dataset: DatasetStudy, ties: str) -> list[str]:
    """State what the numbers hide: the ceiling, ties, and queries without a ranking.

    Args:
        dataset: What was judged.
        ties: Name of the rule for ties, a key of ``TIES``.
    """
    lines = []
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
    return lines


def verdicts(dataset: DatasetStudy) -> list[Verdict]:
    """Return what the tests say of the primary system and each other one; differences that are NaN are left out."""
    by_baseline: dict[str, list[PairedTest]] = {}
    for test in dataset.tests:
        if not isnan(test.difference):
            by_baseline.setdefault(test.baseline, []).append(test)
    primary, sentences = row_name(dataset.primary), []
    for baseline, tests in by_baseline.items():
        clear = tests[0].p_holm < LEVEL
        outcome = "unclear" if not clear else "ahead" if tests[0].difference > 0 else "behind"
        verb = {"unclear": "cannot be told from", "ahead": "is ahead of", "behind": "is behind"}[outcome]
        short = [f"{test.measure} {100 * test.difference:+.1f} ({p_text(test.p_randomization)})" for test in tests]
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


def study_tables(study: Study) -> dict[str, Table]:
    """Lay out everything of a study, by data set and title; tables without a row are left out."""
    tables = {
        f"{name}: {table.title}": table for name, dataset in study.datasets.items() for table in dataset_tables(dataset)
    }
    return {**tables, **({"over all data sets": across_table(study)} if study.across else {})}


def dataset_tables(dataset: DatasetStudy) -> list[Table]:
    """Lay out everything of a data set, quality first; tables without a row are left out."""
    return [table for build in DATASET_TABLES if (table := build(dataset)).rows]


def quality_table(dataset: DatasetStudy) -> Table:
    """A row per system: measures in percent with intervals, and milliseconds of all stages."""
    means = {name: system.means for name, system in dataset.systems.items()}
    best = {measure: _highest([of[measure] for of in means.values()]) for measure in dataset.measures}
    rows = [
        [
            system_cell(name),
            *(
                percent_cell(means[name][measure], system.intervals.get(measure), best=means[name][measure] == highest)
                for measure, highest in best.items()
            ),
            *_quantiles(system.cost, TOTAL),
        ]
        for name, system in dataset.systems.items()
    ]
    caption = (
        "Measures in percent with 95% bootstrap intervals over queries; bold is the highest of a column. Median and "
        "95th percentile of the milliseconds per query."
    )
    return Table("quality", ["system", *dataset.measures, "p50 ms", "p95 ms"], rows, caption)


def tests_table(dataset: DatasetStudy) -> Table:
    """A row per comparison of the primary system with another one."""
    rows = [
        [
            system_cell(test.baseline),
            Cell(test.measure),
            points_cell(test.difference, test.interval),
            number_cell(test.effect_size),
            percent_cell(test.share_changed),
            p_cell(test.p_randomization),
            p_cell(test.p_bootstrap),
            p_cell(test.p_holm),
        ]
        for test in dataset.tests
    ]
    header = ["against", "measure", "difference", "effect size", "queries that differ", "p", "p bootstrap", "p Holm"]
    caption = (
        "The last system against each other one: points with 95% intervals, and two-sided paired tests over queries. "
        "p: of the randomisation test; p Holm: the same, corrected for all rows of this table. Effect size: mean over "
        "standard deviation of the queries' differences."
    )
    return Table("tests", header, rows, caption, text_columns=2)


def cost_table(dataset: DatasetStudy) -> Table:
    """A row per system that was timed: median and 95th percentile of each stage, and what else it takes."""
    costs = {name: system.cost for name, system in dataset.systems.items() if system.cost is not None}
    stages = list(dict.fromkeys(stage for cost in costs.values() for stage in cost.ms if stage != TOTAL))
    shown = [TOTAL, *stages] if len(stages) > 1 else [TOTAL]
    rows = [
        [
            system_cell(name),
            *(cell for stage in shown for cell in _quantiles(cost, stage)),
            *(number_cell(entry, ",.0f") for entry in (cost.encodings, cost.tokens, cost.peak_memory_mib)),
        ]
        for name, cost in costs.items()
    ]
    header = ["system", *(f"{stage} {quantile} ms" for stage in shown for quantile in ("p50", "p95"))]
    caption = (
        "Median and 95th percentile per query, one query at a time. Peak: memory of the whole process, data included, "
        "while the system ranked many queries at once."
    )
    return Table("cost", [*header, "pairs read", "words in the top 10", "peak MiB"], rows, caption)


def groups_table(dataset: DatasetStudy) -> Table:
    """A row per group of queries, a column per system."""
    rows = []
    for group in dataset.breakdowns:
        best = _highest(list(group.means.values()))
        means = [percent_cell(group.means.get(name), best=group.means.get(name) == best) for name in dataset.systems]
        rows.append(
            [Cell(group.by), Cell(group.group), Cell(group.measure), number_cell(group.num_queries, ",.0f"), *means]
        )
    header = ["queries by", "group", "measure", "queries", *map(row_name, dataset.systems)]
    caption = "Means over groups of queries, in percent; bold is the highest of a row."
    return Table("groups of queries", header, rows, caption, text_columns=3)


def hubs_table(dataset: DatasetStudy) -> Table:
    """A row per system: whether it prefers nodes with many neighbours more than relevance does."""
    rows = [
        [
            system_cell(entry.system),
            number_cell(entry.correlation, "+.2f"),
            number_cell(entry.relevant_correlation, "+.2f"),
            number_cell(entry.lift),
            number_cell(entry.relevant_lift),
        ]
        for entry in dataset.hub_bias
    ]
    degree = f"{dataset.hub_bias[0].hub_degree:,}" if rows else ""
    caption = (
        "Spearman's correlation of score with number of neighbours, and how much more often hubs (the tenth of the "
        f"nodes with most neighbours: {degree} or more) are in the top 10 than in the corpus. Without bias both equal "
        "those of relevance."
    )
    header = ["system", "correlation with degree", "of relevance", "hubs in the top 10, lift", "among relevant, lift"]
    return Table("hubs", header, rows, caption)


def edges_table(dataset: DatasetStudy) -> Table:
    """A row per system and other graph."""
    rows = [
        [
            system_cell(entry.system),
            Cell(entry.edges),
            Cell(entry.measure),
            percent_cell(entry.mean),
            points_cell(entry.difference, entry.interval),
            p_cell(entry.p_randomization),
            percent_cell(entry.share_changed),
        ]
        for entry in dataset.counterfactuals
    ]
    header = ["system", "edges", "measure", "mean", "worth of the true edges", "p", "queries whose top 10 changed"]
    caption = (
        "Does the graph matter? The same candidates, reranked without edges or with shuffled ones (each candidate with "
        "as many neighbours as before), and how many points the true edges are worth."
    )
    return Table("other edges", header, rows, caption, text_columns=3)


def seeds_table(dataset: DatasetStudy) -> Table:
    """A row per group of checkpoints that differ in their seed alone."""
    rows = [
        [
            Cell(", ".join(map(row_name, entry.systems))),
            Cell(", ".join(map(str, entry.seeds))),
            Cell(entry.measure),
            *(percent_cell(share) for share in (entry.mean, entry.std, entry.lowest, entry.highest)),
        ]
        for entry in dataset.seed_spreads
    ]
    header = ["systems", "seeds", "measure", "mean", "standard deviation", "lowest", "highest"]
    return Table("seeds", header, rows, "One training with several seeds, in percent.", text_columns=3)


def calibration_table(dataset: DatasetStudy) -> Table:
    """A row per system whose scores were calibrated: how near its probabilities are to frequencies."""
    rows = [
        [
            system_cell(entry.system),
            Cell(entry.method),
            number_cell(entry.num_pairs, ",.0f"),
            percent_cell(entry.share_relevant),
            number_cell(entry.ece, ".4f"),
            number_cell(entry.brier, ".4f"),
            number_cell(entry.share_relevant * (1 - entry.share_relevant), ".4f"),
        ]
        for entry in dataset.reliability
    ]
    header = ["system", "calibration", "candidates", "relevant, %", "ECE", "Brier score", "Brier of the share alone"]
    caption = (
        "Scores as probabilities of relevance, over all candidates of all queries: expected calibration error in ten "
        "bins, and the Brier score. The last column is the Brier score of the share of relevant candidates alone."
    )
    return Table("calibration", header, rows, caption, text_columns=2)


def queries_table(dataset: DatasetStudy) -> Table:
    """A row per query that gains or loses most."""
    rows = [
        [
            Cell(entry.query_id),
            Cell(entry.query_text, prose=True),
            system_cell(entry.baseline),
            Cell(entry.measure),
            percent_cell(entry.baseline_score),
            percent_cell(entry.system_score),
            points_cell(entry.system_score - entry.baseline_score),
            number_cell(entry.num_relevant, ",.0f"),
        ]
        for entry in dataset.query_differences
    ]
    primary = row_name(dataset.query_differences[0].system) if rows else ""
    header = [
        "query",
        "text",
        "against",
        "measure",
        "score of the other",
        f"score of {primary}",
        "difference",
        "relevant",
    ]
    caption = "Against the best of the others: the queries that gain most, then those that lose most; in percent."
    return Table("queries", header, rows, caption, text_columns=4)


def systems_table(dataset: DatasetStudy) -> Table:
    """A row per system: its kind, its source, and what it left out."""
    rows = [
        [
            system_cell(name),
            Cell(system.kind),
            Cell(system.source, prose=True),
            Cell(f"{len(system.missing):,}", len(system.missing), ", ".join(system.missing[:NAMED])),
            percent_cell(system.tied_share),
        ]
        for name, system in dataset.systems.items()
    ]
    caption = (
        "Queries that a system ranked nothing for count as zero, and the first of them are named. Tied: percent of the "
        "queries with a tie in the top 10."
    )
    return Table("systems", ["system", "kind", "source", "queries missing", "tied"], rows, caption, text_columns=3)


def across_table(study: Study) -> Table:
    """A row per comparison made on several data sets."""
    rows = [
        [
            system_cell(entry.baseline),
            system_cell(entry.system),
            Cell(entry.measure),
            Cell(f"{entry.num_replicated} of {len(entry.datasets)}", entry.num_replicated, ", ".join(entry.replicated)),
            number_cell(entry.num_replicated_fisher, ".0f"),
            points_cell(entry.difference),
            p_cell(entry.p_combined),
        ]
        for entry in study.across
    ]
    header = ["against", "system", "measure", "wins", "wins, independent", "difference", "p combined"]
    level = f"{study.across[0].level:.0%}" if rows else ""
    caption = (
        f"Wins: on at least so many data sets the win holds, with a chance of {level} to count too many (partial "
        "conjunction; by Bonferroni, then by Fisher for independent data sets); named are those of Holm's procedure. "
        "Difference: mean over data sets. p combined: by sign flips of all queries, each data set with the same "
        "weight; it speaks of other queries, not of other data sets."
    )
    return Table("over all data sets", header, rows, caption, text_columns=3)


DATASET_TABLES: Sequence[Callable[[DatasetStudy], Table]] = (
    quality_table,
    tests_table,
    cost_table,
    groups_table,
    hubs_table,
    edges_table,
    seeds_table,
    calibration_table,
    queries_table,
    systems_table,
)


def _quantiles(cost: Cost | None, stage: str) -> list[Cell]:
    quantiles: Mapping[str, float] = {} if cost is None else cost.ms.get(stage, {})
    return [number_cell(quantiles.get(quantile)) for quantile in ("p50", "p95")]


def _highest(means: Sequence[float]) -> float | None:
    return max((mean for mean in means if not isnan(mean)), default=None)
