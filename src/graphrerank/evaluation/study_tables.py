"""A study as tables of text: what ``report.md``, the terminal and W&B show."""

import math
from collections.abc import Callable, Mapping, Sequence

from graphrerank.evaluation.cost import TOTAL
from graphrerank.evaluation.study import DatasetStudy, Study, SystemStudy
from graphrerank.evaluation.tables import p_text, row_name

TextTable = tuple[Sequence[str], Sequence[Sequence[str]]]  # header and rows
NOTHING = "-"
SHOWN_TEXT = 120  # characters of a query


def study_tables(study: Study) -> dict[str, TextTable]:
    """Lay out everything of a study, by title; tables without a row are left out."""
    tables = {}
    for name, dataset in study.datasets.items():
        for title, table in DATASET_TABLES.items():
            header, rows = table(dataset)
            if rows:
                tables[f"{name}: {title}"] = header, rows
    if study.across:
        tables["over all data sets"] = across_table(study)
    return tables


def quality_table(dataset: DatasetStudy, *, intervals: bool = True) -> TextTable:
    """A row per system: measures in percent, those that are tested with intervals; milliseconds of all stages."""
    header = ["system", *dataset.measures, "p50 ms", "p95 ms"]
    tested = dataset.tested if intervals else ()
    return header, [[row_name(name), *_means(one, tested), *_total(one)] for name, one in dataset.systems.items()]


def comparisons_table(dataset: DatasetStudy) -> TextTable:
    """A row per comparison of the last system with another one."""
    header = [
        "against",
        "measure",
        "difference",
        "95%",
        "effect size",
        "queries that differ",
        "p",
        "p bootstrap",
        "p Holm",
    ]
    rows = [
        [
            row_name(test.baseline),
            test.measure,
            points(test.difference),
            interval_text(test.interval, signed=True),
            number(test.effect_size),
            percent(test.share_changed),
            *(p_cell(p) for p in (test.p_randomization, test.p_bootstrap, test.p_holm)),
        ]
        for test in dataset.tests
    ]
    return header, rows


def cost_table(dataset: DatasetStudy) -> TextTable:
    """A row per system that was timed: each stage's median and 95th percentile, and what else it takes."""
    timed = {name: one.cost for name, one in dataset.systems.items() if one.cost is not None}
    stages = list(dict.fromkeys(stage for cost in timed.values() for stage in cost.ms if stage != TOTAL))
    header = ["system", *(f"{stage} ms" for stage in (*stages, TOTAL)), "pairs read", "words in the top 10", "peak MiB"]
    rows = []
    for name, cost in timed.items():
        cells = [
            f"{cost.ms[stage]['p50']:.2f} / {cost.ms[stage]['p95']:.2f}" if stage in cost.ms else NOTHING
            for stage in (*stages, TOTAL)
        ]
        rest = [number(one, ".0f") for one in (cost.encodings, cost.tokens, cost.peak_memory_mib)]
        rows.append([row_name(name), *cells, *rest])
    return header, rows


def breakdown_table(dataset: DatasetStudy) -> TextTable:
    """A row per group of queries, a column per system."""
    header = ["queries by", "group", "queries", *(row_name(name) for name in dataset.systems)]
    rows = [
        [one.by, one.group, f"{one.num_queries:,}", *(percent(one.means[name]) for name in dataset.systems)]
        for one in dataset.breakdowns
    ]
    return header, rows


def hubs_table(dataset: DatasetStudy) -> TextTable:
    """A row per system: does it prefer nodes of many neighbours more than relevance does."""
    header = ["system", "correlation with degree", "of relevance", "hubs in the top 10, lift", "among relevant, lift"]
    rows = [
        [
            row_name(one.system),
            *(number(n, "+.2f") for n in (one.correlation, one.relevant_correlation)),
            *(number(n) for n in (one.lift, one.relevant_lift)),
        ]
        for one in dataset.hub_bias
    ]
    return header, rows


def counterfactuals_table(dataset: DatasetStudy) -> TextTable:
    """A row per system and other graph."""
    header = [
        "system",
        "edges",
        "measure",
        "mean",
        "worth of the true edges",
        "95%",
        "p",
        "queries whose top 10 changed",
    ]
    rows = [
        [
            row_name(one.system),
            one.edges,
            one.measure,
            percent(one.mean),
            points(one.difference),
            interval_text(one.interval, signed=True),
            p_cell(one.p_randomization),
            percent(one.share_changed),
        ]
        for one in dataset.counterfactuals
    ]
    return header, rows


def seeds_table(dataset: DatasetStudy) -> TextTable:
    """A row per group of checkpoints that differ in their seed alone."""
    header = ["systems", "seeds", "measure", "mean", "standard deviation", "lowest", "highest"]
    rows = [
        [
            ", ".join(map(row_name, one.systems)),
            ", ".join(map(str, one.seeds)),
            one.measure,
            *(percent(share) for share in (one.mean, one.std, one.lowest, one.highest)),
        ]
        for one in dataset.seed_spreads
    ]
    return header, rows


def calibration_table(dataset: DatasetStudy) -> TextTable:
    """A row per system whose scores were calibrated: how near its probabilities are to frequencies."""
    header = ["system", "calibration", "candidates", "relevant, %", "ECE", "Brier score", "Brier of the share alone"]
    rows = []
    for one in dataset.reliability:
        alone = one.share_relevant * (1 - one.share_relevant)
        numbers = [number(found, ".4f") for found in (one.ece, one.brier, alone)]
        rows.append([row_name(one.system), one.method, f"{one.num_pairs:,}", percent(one.share_relevant), *numbers])
    return header, rows


def differences_table(dataset: DatasetStudy) -> TextTable:
    """A row per query that gains or loses most."""
    if not dataset.query_differences:
        return [], []
    first = dataset.query_differences[0]
    header = ["query", "text", "relevant", row_name(first.baseline), row_name(first.system), "difference"]
    rows = [
        [
            one.query_id,
            _shortened(one.query_text),
            str(one.num_relevant),
            percent(one.baseline_score),
            percent(one.system_score),
            points(one.system_score - one.baseline_score),
        ]
        for one in dataset.query_differences
    ]
    return header, rows


def across_table(study: Study) -> TextTable:
    """A row per comparison made on several data sets."""
    header = [
        "system",
        "against",
        "measure",
        "data sets",
        "wins",
        "wins, independent",
        "which",
        "difference",
        "p combined",
    ]
    rows = [
        [
            row_name(one.system),
            row_name(one.baseline),
            one.measure,
            str(len(one.datasets)),
            str(one.num_replicated),
            str(one.num_replicated_fisher),
            ", ".join(one.replicated) or NOTHING,
            points(one.difference),
            p_cell(one.p_combined),
        ]
        for one in study.across
    ]
    return header, rows


DATASET_TABLES: Mapping[str, Callable[[DatasetStudy], TextTable]] = {
    "quality": quality_table,
    "tests": comparisons_table,
    "cost": cost_table,
    "groups of queries": breakdown_table,
    "hubs": hubs_table,
    "other edges": counterfactuals_table,
    "seeds": seeds_table,
    "calibration": calibration_table,
    "queries": differences_table,
}


def percent(share: float) -> str:
    """Write a share in percent; a dash for NaN."""
    return NOTHING if math.isnan(share) else f"{100 * share:.2f}"


def points(difference: float) -> str:
    """Write a difference of shares in points; a dash for NaN."""
    return NOTHING if math.isnan(difference) else f"{100 * difference:+.2f}"


def number(found: float | None, form: str = ".2f") -> str:
    """Write a number; a dash where there is none."""
    return NOTHING if found is None or math.isnan(found) else format(found, form)


def p_cell(p_value: float) -> str:
    """Write a p-value without its name.

    Example:
        >>> p_cell(0.0251), p_cell(1e-5)
        ('0.025', '< 0.0001')
    """
    return NOTHING if math.isnan(p_value) else p_text(p_value).removeprefix("p ").removeprefix("= ")


def interval_text(ends: Sequence[float], *, signed: bool = False) -> str:
    """Write an interval of shares in percent."""
    if math.isnan(ends[0]):
        return NOTHING
    return " to ".join(f"{100 * end:+.1f}" if signed else f"{100 * end:.1f}" for end in ends)


def _means(system: SystemStudy, with_interval: Sequence[str]) -> list[str]:
    cells = []
    for measure, mean in system.means.items():
        shown = measure in with_interval and not math.isnan(mean)
        ends = f" ({interval_text(system.intervals[measure])})" if shown else ""
        cells.append(percent(mean) + ends)
    return cells


def _total(system: SystemStudy) -> list[str]:
    if system.cost is None or TOTAL not in system.cost.ms:
        return [NOTHING, NOTHING]
    return [f"{system.cost.ms[TOTAL][key]:.2f}" for key in ("p50", "p95")]


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_TEXT else f"{line[: SHOWN_TEXT - 3]}..."
