"""The result of a data set as tables, for the terminal, ``report.md`` and ``report.html``."""

from collections.abc import Callable, Sequence
from functools import partial
from math import isnan

from graphrerank.evaluation.cost import TOTAL
from graphrerank.evaluation.records import (
    READING,
    Breakdown,
    Counterfactual,
    DatasetResult,
    EdgesOfType,
    HubBias,
    ListReliability,
    PairedTest,
    QueryDifference,
    Reliability,
    Replication,
    SeedSpread,
    SystemResult,
)
from graphrerank.evaluation.tables import (
    Cell,
    Columns,
    Table,
    build_table,
    number_cell,
    p_cell,
    percent_cell,
    points_cell,
    row_name,
    system_cell,
)

QUANTILES = ("p50", "p95")
NAMED = 5  # missing queries that are named


def dataset_tables(dataset: DatasetResult) -> list[Table]:
    """Lay out everything of a data set, quality first; tables without a row are left out."""
    quality, tests, *others = (build(dataset) for build in DATASET_TABLES)
    return [table for table in (quality, tests, *dataset.tables, *others) if table.rows]


def quality_table(dataset: DatasetResult, measures: Sequence[str] = ()) -> Table:
    """A row per system: measures in percent with intervals, all or some, and milliseconds of all stages."""
    systems = list(dataset.systems.values())
    means = {measure: [system.means[measure] for system in systems] for measure in measures or dataset.measures}
    highest = {measure: _highest(column) for measure, column in means.items()}

    def mean(measure: str, system: SystemResult) -> Cell:
        share = system.means[measure]
        return percent_cell(share, system.intervals.get(measure), best=share == highest[measure])

    columns: Columns[SystemResult] = {
        "system": lambda system: system_cell(system.name),
        **{measure: partial(mean, measure) for measure in highest},
        **{f"{quantile} ms": partial(_milliseconds, TOTAL, quantile) for quantile in QUANTILES},
    }
    caption = (
        "Measures in percent with 95% bootstrap intervals over queries; bold is the highest of a column. Median and "
        "95th percentile of the milliseconds per query."
    )
    return build_table("quality", caption, systems, columns)


def tests_table(dataset: DatasetResult) -> Table:
    """A row per comparison of the primary system with another one."""
    columns: Columns[PairedTest] = {
        "against": lambda test: system_cell(test.baseline),
        "measure": lambda test: Cell(test.measure),
        "difference": lambda test: points_cell(test.difference, test.interval),
        "effect size": lambda test: number_cell(test.effect_size),
        "queries that differ": lambda test: percent_cell(test.share_changed),
        "p": lambda test: p_cell(test.p_randomization),
        "p bootstrap": lambda test: p_cell(test.p_bootstrap),
        "p Holm": lambda test: p_cell(test.p_holm),
    }
    caption = (
        "The last system against each other one: points with 95% intervals, and two-sided paired tests over queries. "
        "p: of the randomisation test; p Holm: the same, corrected for all rows of this table. Effect size: mean over "
        "standard deviation of the queries' differences."
    )
    return build_table("tests", caption, dataset.tests, columns, text_columns=2)


def cost_table(dataset: DatasetResult) -> Table:
    """A row per system that was timed: median and 95th percentile of each stage, pairs, words and memory."""
    timed = [system for system in dataset.systems.values() if system.cost is not None]
    stages = list(dict.fromkeys(stage for system in timed if system.cost for stage in system.cost.ms if stage != TOTAL))
    batched = any(system.cost and system.cost.batch_ms for system in timed)
    columns: Columns[SystemResult] = {
        "system": lambda system: system_cell(system.name),
        **{
            f"{stage} {quantile} ms": partial(_milliseconds, stage, quantile)
            for stage in ([TOTAL, *stages] if len(stages) > 1 else [TOTAL])
            for quantile in QUANTILES
        },
        **({"at once ms": _batch_ms, "reading at once ms": partial(_batch_ms, stage=READING)} if batched else {}),
        "pairs read": partial(_cost, "encodings"),
        "words in the top 10": partial(_cost, "tokens"),
        "peak MiB": partial(_cost, "peak_memory_mib"),
    }
    caption = (
        "Median and 95th percentile per query, one query at a time. Peak: memory of the whole process, data included, "
        "while the system ranked many queries at once."
    )
    if batched:
        pair_ms = next((system.cost.pair_ms for system in timed if system.cost and system.cost.pair_ms), None)
        counted = "" if pair_ms is None else f", {pair_ms:.1f} ms a pair, also of pairs that come from the cache"
        caption += f" At once: mean per query, many queries at once; reading: by the cross-encoder{counted}."
    return build_table("cost", caption, timed, columns)


def groups_table(dataset: DatasetResult) -> Table:
    """A row per group of queries, a column per system."""

    def mean(system: str, group: Breakdown) -> Cell:
        share = group.means.get(system)
        return percent_cell(share, best=share == _highest(list(group.means.values())))

    columns: Columns[Breakdown] = {
        "queries by": lambda group: Cell(group.by),
        "group": lambda group: Cell(group.group),
        "measure": lambda group: Cell(group.measure),
        "queries": lambda group: number_cell(group.num_queries, ",.0f"),
        **{row_name(system): partial(mean, system) for system in dataset.systems},
    }
    caption = "Means over groups of queries, in percent; bold is the highest of a row."
    return build_table("groups of queries", caption, dataset.breakdowns, columns, text_columns=3)


def hubs_table(dataset: DatasetResult) -> Table:
    """A row per system: whether it prefers nodes with many neighbours more than relevance does."""
    columns: Columns[HubBias] = {
        "system": lambda entry: system_cell(entry.system),
        "correlation with degree": lambda entry: number_cell(entry.correlation, "+.2f"),
        "of relevance": lambda entry: number_cell(entry.relevant_correlation, "+.2f"),
        "hubs in the top 10, lift": lambda entry: number_cell(entry.lift),
        "among relevant, lift": lambda entry: number_cell(entry.relevant_lift),
        "neighbours of a hub": lambda entry: number_cell(entry.hub_degree, ",.0f"),
    }
    caption = (
        "Spearman's correlation of score with number of neighbours, and how much more often hubs (the tenth of the "
        "nodes with most neighbours) are in the top 10 than in the corpus. Without bias both equal those of relevance. "
        "A hub has at least as many neighbours as the last column says."
    )
    return build_table("hubs", caption, dataset.hub_bias, columns)


def types_table(dataset: DatasetResult) -> Table:
    """A row per type of edges between the candidates."""
    columns: Columns[EdgesOfType] = {
        "edges": lambda entry: Cell(entry.edges),
        "pairs a query": lambda entry: number_cell(entry.per_query, ".1f"),
        "candidates with one": lambda entry: percent_cell(entry.share_joined),
        "relevant ones with a relevant neighbour": lambda entry: percent_cell(entry.share_reached),
        "neighbours of relevant ones that are relevant": lambda entry: percent_cell(entry.share_relevant),
        "candidates that are relevant": lambda entry: percent_cell(entry.base_rate),
    }
    caption = (
        "Pairs of candidates that are joined, by type of the edges, in percent. Edges tell something where the "
        "neighbours of relevant candidates are relevant far more often than candidates are. What removing each type "
        "does is below, under other edges."
    )
    return build_table("edges by type", caption, dataset.edges_of_type, columns)


def edges_table(dataset: DatasetResult) -> Table:
    """A row per system and other graph."""
    columns: Columns[Counterfactual] = {
        "system": lambda entry: system_cell(entry.system),
        "edges": lambda entry: Cell(entry.edges),
        "measure": lambda entry: Cell(entry.measure),
        "mean": lambda entry: percent_cell(entry.mean),
        "worth of the true edges": lambda entry: points_cell(entry.difference, entry.interval),
        "p": lambda entry: p_cell(entry.p_randomization),
        "queries whose top 10 changed": lambda entry: percent_cell(entry.share_changed),
    }
    caption = (
        "The same candidates, reranked without edges, without those of one type, or with shuffled ones (each "
        "candidate with as many neighbours as before), and how many points the true edges are worth."
    )
    return build_table("other edges", caption, dataset.counterfactuals, columns, text_columns=3)


def seeds_table(dataset: DatasetResult) -> Table:
    """A row per group of checkpoints that differ in their seed alone."""
    columns: Columns[SeedSpread] = {
        "systems": lambda entry: Cell(", ".join(map(row_name, entry.systems))),
        "seeds": lambda entry: Cell(", ".join(map(str, entry.seeds))),
        "measure": lambda entry: Cell(entry.measure),
        "mean": lambda entry: percent_cell(entry.mean),
        "standard deviation": lambda entry: percent_cell(entry.std),
        "lowest": lambda entry: percent_cell(entry.lowest),
        "highest": lambda entry: percent_cell(entry.highest),
    }
    caption = "One training with several seeds, in percent."
    return build_table("seeds", caption, dataset.seed_spreads, columns, text_columns=3)


def calibration_table(dataset: DatasetResult) -> Table:
    """A row per system with calibrated scores: the errors of its probabilities."""
    columns: Columns[Reliability] = {
        "system": lambda entry: system_cell(entry.system),
        "calibration": lambda entry: Cell(entry.method),
        "candidates": lambda entry: number_cell(entry.num_pairs, ",.0f"),
        "relevant, %": lambda entry: percent_cell(entry.share_relevant),
        "ECE": lambda entry: number_cell(entry.ece, ".4f"),
        "Brier score": lambda entry: number_cell(entry.brier, ".4f"),
        "Brier of the share alone": lambda entry: number_cell(entry.share_relevant * (1 - entry.share_relevant), ".4f"),
    }
    caption = (
        "Scores as probabilities of relevance, over all candidates of all queries: expected calibration error in ten "
        "bins, and the Brier score. The last column is the Brier score of the share of relevant candidates alone."
    )
    return build_table("calibration", caption, dataset.reliability, columns, text_columns=2)


def confidence_table(dataset: DatasetResult) -> Table:
    """A row per system with a confidence in whole lists, and rank: the errors of its probabilities."""
    columns: Columns[ListReliability] = {
        "system": lambda entry: system_cell(entry.system),
        "measure": lambda entry: Cell(entry.measure),
        "queries": lambda entry: number_cell(entry.num_queries, ",.0f"),
        "complete, %": lambda entry: percent_cell(entry.share_complete),
        "predicted, %": lambda entry: percent_cell(entry.mean_probability),
        "ECE": lambda entry: number_cell(entry.ece, ".4f"),
        "Brier score": lambda entry: number_cell(entry.brier, ".4f"),
        "Brier of the share alone": lambda entry: number_cell(entry.share_complete * (1 - entry.share_complete), ".4f"),
        "AUC": lambda entry: number_cell(entry.auc, ".3f"),
    }
    caption = (
        "How likely all relevant passages of a query are in the top of its list, as predicted from the list's "
        "probabilities, and how often they are. Relevant passages that are no candidates count as missed."
    )
    return build_table("confidence", caption, dataset.list_reliability, columns, text_columns=2)


def queries_table(dataset: DatasetResult) -> Table:
    """A row per query that gains or loses most."""
    columns: Columns[QueryDifference] = {
        "query": lambda entry: Cell(entry.query_id),
        "text": lambda entry: Cell(entry.query_text, prose=True),
        "against": lambda entry: system_cell(entry.baseline),
        "measure": lambda entry: Cell(entry.measure),
        "of the other": lambda entry: percent_cell(entry.baseline_score),
        f"of {row_name(dataset.primary)}": lambda entry: percent_cell(entry.system_score),
        "difference": lambda entry: points_cell(entry.system_score - entry.baseline_score),
        "relevant": lambda entry: number_cell(entry.num_relevant, ",.0f"),
    }
    caption = "Against the best of the others: the queries that gain most, then those that lose most; in percent."
    return build_table("queries", caption, dataset.query_differences, columns, text_columns=4)


def systems_table(dataset: DatasetResult) -> Table:
    """A row per system: its kind, its source and the queries it left out."""
    columns: Columns[SystemResult] = {
        "system": lambda system: system_cell(system.name),
        "kind": lambda system: Cell(system.kind),
        "source": lambda system: Cell(system.source, prose=True),
        "queries missing": lambda system: number_cell(len(system.missing), ",.0f", ", ".join(system.missing[:NAMED])),
        "tied": lambda system: percent_cell(system.tied_share),
    }
    caption = (
        "Queries that a system ranked nothing for count as zero, and the first of them are named. Tied: percent of the "
        "queries with a tie in the top 10."
    )
    return build_table("systems", caption, list(dataset.systems.values()), columns, text_columns=3)


def across_table(across: Sequence[Replication]) -> Table:
    """A row per comparison made on several data sets."""
    columns: Columns[Replication] = {
        "against": lambda entry: system_cell(entry.baseline),
        "system": lambda entry: system_cell(entry.system),
        "measure": lambda entry: Cell(entry.measure),
        "data sets": lambda entry: number_cell(len(entry.datasets), ".0f"),
        "wins": lambda entry: number_cell(entry.num_replicated, ".0f", ", ".join(entry.replicated)),
        "wins, independent": lambda entry: number_cell(entry.num_replicated_fisher, ".0f"),
        "difference": lambda entry: points_cell(entry.difference),
        "p combined": lambda entry: p_cell(entry.p_combined),
    }
    level = f"{across[0].level:.0%}" if across else ""
    caption = (
        f"Wins: the win holds on at least this many data sets, with a chance of {level} to count too many (partial "
        "conjunction; by Bonferroni, then by Fisher for independent data sets); named are those of Holm's procedure. "
        "Difference: mean over data sets. p combined: by sign flips of all queries, each data set with the same "
        "weight; it speaks of other queries, not of other data sets."
    )
    return build_table("over all data sets", caption, across, columns, text_columns=3)


DATASET_TABLES: Sequence[Callable[[DatasetResult], Table]] = (
    quality_table,
    tests_table,
    cost_table,
    groups_table,
    hubs_table,
    types_table,
    edges_table,
    seeds_table,
    calibration_table,
    confidence_table,
    queries_table,
    systems_table,
)


def _milliseconds(stage: str, quantile: str, system: SystemResult) -> Cell:
    return number_cell(None if system.cost is None else system.cost.ms.get(stage, {}).get(quantile))


def _batch_ms(system: SystemResult, *, stage: str | None = None) -> Cell:
    if system.cost is None or not system.cost.batch_ms:
        return number_cell(None)
    return number_cell(system.cost.batch_ms.get(stage) if stage else sum(system.cost.batch_ms.values()))


def _cost(name: str, system: SystemResult) -> Cell:
    return number_cell(None if system.cost is None else vars(system.cost)[name], ",.0f")


def _highest(means: Sequence[float]) -> float | None:
    return max((mean for mean in means if not isnan(mean)), default=None)
