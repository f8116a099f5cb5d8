"""The tables of what was found on one data set beside means."""

from collections.abc import Mapping, Sequence
from math import isnan

from graphrerank.evaluation.findings import PairedTest, QueryDifference
from graphrerank.evaluation.html.cells import percent, plain, points, probability
from graphrerank.evaluation.html.elements import Cell, Markup, table
from graphrerank.evaluation.study import DatasetStudy
from graphrerank.evaluation.tables import row_name


def tests_table(tests: Sequence[PairedTest]) -> Markup:
    """The primary system against the others."""
    rows = [
        [
            Cell(row_name(test.baseline)),
            Cell(test.measure),
            points(test.difference, test.interval),
            plain(test.effect_size),
            percent(test.share_changed),
            probability(test.p_randomization),
            probability(test.p_bootstrap),
            probability(test.p_holm),
        ]
        for test in tests
    ]
    header = ["against", "measure", "difference", "effect size", "queries that differ", "p", "p bootstrap", "p Holm"]
    name = row_name(tests[0].system)
    caption = (
        f"{name} against the others: points with 95% intervals, paired tests over {tests[0].num_queries:,} queries"
    )
    return table(header, rows, caption=caption, text_columns=2)


def differences_table(differences: Sequence[QueryDifference], *, caption: str) -> Markup:
    """Queries, with their texts and ids."""
    rows = [
        [
            Cell(found.query_text, note=found.query_id, wraps=True),
            Cell(row_name(found.baseline)),
            points(found.system_score - found.baseline_score),
            percent(found.system_score),
            percent(found.baseline_score),
            plain(found.num_relevant, ",.0f"),
        ]
        for found in differences
    ]
    header = ["query", "against", "difference", "its score", "the other's", "relevant"]
    return table(header, rows, caption=caption, text_columns=2)


def breakdown_table(dataset: DatasetStudy, by: str) -> Markup:
    """The systems' means over groups of queries."""
    groups = [found for found in dataset.breakdowns if found.by == by]
    rows = [
        [
            Cell(found.group),
            Cell(found.measure),
            plain(found.num_queries, ",.0f"),
            *(
                percent(found.means.get(name), strong=found.means.get(name) == _highest(found.means))
                for name in dataset.systems
            ),
        ]
        for found in groups
    ]
    header = [by, "measure", "queries", *map(row_name, dataset.systems)]
    return table(header, rows, caption=f"By {by}, percent", text_columns=2)


def hubs_table(dataset: DatasetStudy) -> Markup:
    """Whether systems prefer nodes of many neighbours."""
    rows = [
        [
            Cell(row_name(found.system)),
            plain(found.correlation),
            plain(found.relevant_correlation),
            plain(found.lift),
            plain(found.relevant_lift),
        ]
        for found in dataset.hub_bias
    ]
    degree = dataset.hub_bias[0].hub_degree
    caption = f"Hubs: nodes of {degree:,} neighbours or more"
    header = [
        "system",
        "correlation with degree",
        "that of relevance",
        "hubs in the top 10, lift",
        "among relevant, lift",
    ]
    return table(header, rows, caption=caption)


def counterfactuals_table(dataset: DatasetStudy) -> Markup:
    """What systems would achieve on another graph."""
    rows = [
        [
            Cell(row_name(found.system)),
            Cell(found.edges),
            Cell(found.measure),
            percent(found.mean),
            points(found.difference, found.interval),
            probability(found.p_randomization),
            percent(found.share_changed),
        ]
        for found in dataset.counterfactuals
    ]
    header = ["system", "edges", "measure", "mean on them", "worth of the true ones", "p", "top 10 changed"]
    caption = "The same systems on other edges, and how many points the true ones are worth"
    return table(header, rows, caption=caption, text_columns=3)


def seeds_table(dataset: DatasetStudy) -> Markup:
    """The spread over training seeds."""
    rows = [
        [
            Cell(", ".join(map(row_name, found.systems))),
            Cell(found.measure),
            plain(len(found.seeds), ".0f"),
            percent(found.mean),
            percent(found.std),
            percent(found.lowest),
            percent(found.highest),
        ]
        for found in dataset.seed_spreads
    ]
    header = ["systems", "measure", "seeds", "mean", "standard deviation", "lowest", "highest"]
    return table(header, rows, caption="One training with several seeds, percent", text_columns=2)


def reliability_table(dataset: DatasetStudy) -> Markup:
    """How near probabilities are to frequencies."""
    rows = [
        [
            Cell(row_name(found.system)),
            Cell(found.method),
            plain(found.num_pairs, ",.0f"),
            percent(found.share_relevant),
            plain(found.ece, ".4f"),
            plain(found.brier, ".4f"),
            plain(found.share_relevant * (1 - found.share_relevant), ".4f"),
        ]
        for found in dataset.reliability
    ]
    header = ["system", "calibration", "candidates", "relevant, %", "ECE", "Brier score", "Brier of the share alone"]
    return table(header, rows, caption="Scores as probabilities of relevance", text_columns=2)


def _highest(means: Mapping[str, float]) -> float | None:
    return max((mean for mean in means.values() if not isnan(mean)), default=None)
