"""The result of a data set as tables, for the terminal, ``report.md`` and ``report.html``."""

from collections.abc import Sequence
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
    SeedSpread,
    SystemResult,
)
from graphrerank.evaluation.tables import (
    Cell,
    Columns,
    Table,
    build_table,
    number_cell,
    percent_cell,
    points_cell,
    records_table,
    row_name,
    system_cell,
)

QUANTILES = ("p50", "p95")
NAMED = 5  # missing queries that are named


def dataset_tables(dataset: DatasetResult) -> list[Table]:
    """Lay out everything of a data set, quality first; tables without a row are left out."""
    tables = [
        quality_table(dataset),
        records_table(PairedTest, dataset.tests),
        *dataset.tables,
        _cost_table(dataset),
        _groups_table(dataset),
        records_table(HubBias, dataset.hub_bias),
        records_table(EdgesOfType, dataset.edges_of_type),
        records_table(Counterfactual, dataset.counterfactuals),
        records_table(SeedSpread, dataset.seed_spreads),
        records_table(Reliability, dataset.reliability),
        records_table(ListReliability, dataset.list_reliability),
        _queries_table(dataset),
        _systems_table(dataset),
    ]
    return [table for table in tables if table.rows]


def quality_table(dataset: DatasetResult, measures: Sequence[str] = ()) -> Table:
    """A row per system: measures in percent with intervals, all or some, and milliseconds of all stages."""
    systems = list(dataset.systems.values())
    highest = {
        measure: _highest([system.means[measure] for system in systems]) for measure in measures or dataset.measures
    }

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


def _cost_table(dataset: DatasetResult) -> Table:
    """A row per system that was timed: median and 95th percentile of each stage, pairs, words and memory."""
    timed = [system for system in dataset.systems.values() if system.cost is not None]
    costs = [system.cost for system in timed if system.cost is not None]
    stages = list(dict.fromkeys(stage for cost in costs for stage in cost.ms if stage != TOTAL))
    batched = any(cost.batch_ms for cost in costs)
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
        pair_ms = next((cost.pair_ms for cost in costs if cost.pair_ms), None)
        counted = "" if pair_ms is None else f", {pair_ms:.1f} ms a pair, also of pairs that come from the cache"
        caption += f" At once: mean per query, many queries at once; reading: by the cross-encoder{counted}."
    return build_table("cost", caption, timed, columns)


def _groups_table(dataset: DatasetResult) -> Table:
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


def _queries_table(dataset: DatasetResult) -> Table:
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


def _systems_table(dataset: DatasetResult) -> Table:
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
