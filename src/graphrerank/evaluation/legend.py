"""Legend of a table: what its rows, columns and notes mean, for readers who do not know the terms."""

import re
from collections.abc import Iterable

from graphrerank.evaluation.baselines import OPTIONAL_BASELINES, RANK_FUSION
from graphrerank.evaluation.records import RETRIEVER, DatasetResult
from graphrerank.evaluation.tables import row_name
from graphrerank.models.checkpoint import shipped_checkpoints

#: Plain names of rows, which reports show next to the short ones.
PLAIN_NAMES = {
    RETRIEVER: "the search alone",
    "ppr": "personalized PageRank, no training",
    "gcs": "scores smoothed over neighbours, no training",
    RANK_FUSION: "ranks by BM25, dense search and PPR, no training",
    "mlp": "trained, without the graph",
    "gatv2": "trained, with the graph",
    "cross_encoder": "reads question and passage together",
}
_ROWS = {
    RETRIEVER: "the search alone, whose candidates all other rows reorder",
    "ppr": "personalized PageRank: candidates pass their scores on along edges (no training)",
    "gcs": "Graph Cohesive Smoothing: candidates with good neighbours gain (no training)",
    RANK_FUSION: "sum of 1 / (60 + rank) over the ranks by BM25, dense search and PPR (no training)",
    "mlp": "trained model without the graph",
    "gatv2": "trained graph attention network",
    "without the graph": "the reranker {checkpoint}without edges",
    "with the graph": "the reranker {checkpoint}with the edges of the corpus",
}
_SHIPPED = {"gatv2": "the checkpoint {checkpoint}, a trained graph attention network"}
_MEASURES = {
    "nDCG": "nDCG@K: how early the relevant passages are ranked, 100 if all are first",
    "R": "R@K: percentage of the relevant passages that are among the first K",
    "CR": "CR@K: R@K with at most K relevant passages",
    "PR": "PR@K: percentage of questions whose relevant passages are all among the first K",
    "MRR": "MRR: mean of 1 / rank of the first relevant passage",
    "TR": "TR: how near the ranking comes to the relevant passages along edges",
    "MissTR": "MissTR: the part of TR without passages that were found",
}


def legend(dataset: DatasetResult, measures: Iterable[str]) -> list[str]:
    """Return the legend of a table of quality.

    Args:
        dataset: Results of the data set, whose rows are described.
        measures: Measures of the columns.

    Returns:
        One line per kind of entry: rows, columns, and the ceiling of PR. Entries that need no description are left out.
    """
    rows = [f"{row_name(name)}: {_description(name, dataset)}" for name in _ROWS if name in dataset.systems]
    for baseline in OPTIONAL_BASELINES:
        if any(name.startswith(f"{baseline}-") for name in dataset.systems):
            rows.append(f"{baseline}-NAME: {_ROWS[baseline]}, with the restart probability of the checkpoint NAME")
    kinds = dict.fromkeys(re.split("[@/]", measure)[0] for measure in measures)
    columns = [_MEASURES[kind] for kind in kinds if kind in _MEASURES]
    lines = [*rows, *columns]
    if dataset.ceiling is not None and "PR" in kinds:
        lines.append(
            "ceiling of PR: percentage of questions whose relevant passages are all candidates, which no row can exceed"
        )
    return lines


def _description(name: str, dataset: DatasetResult) -> str:
    """Return the description of a row, with the name of a checkpoint that comes with the package."""
    source = dataset.systems[name].source
    is_shipped = source in shipped_checkpoints()
    if not is_shipped:
        return _ROWS[name].format(checkpoint="")
    if name in _SHIPPED:
        return _SHIPPED[name].format(checkpoint=source)
    return _ROWS[name].format(checkpoint=f"{source} ")


def explained_name(name: str) -> str:
    """Return the plain name of a row, or an empty string if it needs none.

    Args:
        name: Name of the row.

    Example:
        >>> explained_name("ppr"), explained_name("base")
        ('personalized PageRank, no training', '')
    """
    return PLAIN_NAMES.get(name, "")
