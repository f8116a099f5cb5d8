"""Measures of an evaluation: measures of this package, measures of the graph, and expressions of ``ir_measures``."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from graphrerank.core import Ranking
from graphrerank.data.dataset import Dataset
from graphrerank.data.qrels import Qrels
from graphrerank.evaluation.significance import RESAMPLES
from graphrerank.metrics import missed_topological_recall, parse_measure, topological_recall
from graphrerank.metrics.coverage import coverage
from graphrerank.utils.checks import UserError, check_choice, check_counts

TIES = ("own", "trec")
TOPOLOGICAL_RECALL, MISSED = "TR", "MissTR"  # names without a cutoff, which use all retrieved passages
OF_GRAPH = {TOPOLOGICAL_RECALL: topological_recall, MISSED: missed_topological_recall}
JUDGED_ONLY = ("Bpref", "infAP", "Judged", "Compat")  # unsupported, because they need negative judgements

CUT = re.compile(r"(TR|MissTR|Coverage)(@[1-9][0-9]*)?")

RERANKER_MEASURES = ("PR@5", "PR@10", "PR@5/multi", "PR@10/multi", "R@2", "R@5", "R@10", "nDCG@10")
PIPELINE_MEASURES = ("CR@10", "R@5", "R@10", "nDCG@10", TOPOLOGICAL_RECALL, MISSED)
MIXED_MEASURES = ("PR@5", "PR@10", "R@2", "R@5", "R@10", "nDCG@10")  # default for rerankers, pipelines and run files
SIGNIFICANCE_MEASURES = ("nDCG@10", "PR@10", "CR@10")  # tested by default if they are measured


@dataclass(frozen=True)
class EvaluationPlan:
    """Measures, significance tests and tie-breaking.

    Attributes:
        measures: Names of measures, the columns of the tables. Names are stored in canonical form (``R_cap@10``
            becomes ``CR@10``).
        significance_measures: Measures to run significance tests on. Must be a subset of ``measures``. The first tested
            measure is also used for the tables of single queries. If empty, the members of ``SIGNIFICANCE_MEASURES``
            that are measured, or the first measure if there are none.
        ties: Order of passages with equal scores, ``own`` or ``trec`` (:func:`break_ties`).
        resamples: Number of random sign flips of each test, and number of bootstrap samples.
        seed: Random seed for sign flips and bootstrap samples.
        stage: Measures that are computed by a stage after ranking. Must be a subset of ``measures``.

    Raises:
        UserError: If a measure is unknown or duplicated, if a tested measure is not measured, or if another field is
            invalid.
    """

    measures: Sequence[str]
    significance_measures: Sequence[str] = ()
    ties: str = "own"
    resamples: int = RESAMPLES
    seed: int = 0
    stage: Sequence[str] = ()

    def __post_init__(self) -> None:
        measures = tuple(parse_measures(self.measures, self.stage))
        tested = tuple(parse_measures(self.significance_measures, self.stage)) if self.significance_measures else ()
        if unknown := [name for name in tested if name not in measures]:
            raise UserError(f"`significance_measures` must be a subset of `measures` {list(measures)}, got {unknown}")
        check_choice(TIES, ties=self.ties)
        check_counts(resamples=self.resamples)
        usual = tuple(name for name in SIGNIFICANCE_MEASURES if name in measures)
        object.__setattr__(self, "measures", measures)
        object.__setattr__(self, "significance_measures", tested or usual or measures[:1])


def judged_queries(dataset: Dataset, split: str, limit: int | None = None) -> Tensor:
    """Return the queries of a split.

    Args:
        dataset: Data set with the split.
        split: Name of the split.
        limit: Maximum number of queries, the first ones in the order of their ids. If None, all queries.

    Returns:
        Indices of the queries, ``[Q]`` int64, ascending.

    Raises:
        UserError: If there is no such split, or if ``limit`` is not positive.
    """
    check_counts(num_queries=limit)
    queries = dataset.split(split).queries
    by_id = sorted(queries.tolist(), key=lambda query: dataset.query_ids[query])
    return queries if limit is None else torch.tensor(sorted(by_id[:limit]))


def measure_ranking(
    dataset: Dataset,
    qrels: Qrels,
    queries: Tensor,
    ranking: Ranking,
    measures: Sequence[str],
    *,
    stage: Sequence[str] = (),
) -> dict[str, Tensor]:
    """Compute the score of each query in several measures.

    A relevant passage that is not ranked counts as missed, so a query without any ranked passage scores 0.

    Args:
        dataset: Data set of the queries.
        qrels: Judgements of the queries.
        queries: Indices of the queries, ``[Q]`` int64.
        ranking: Ranking ``[Q, K]``, best first. Ties must already be broken (:func:`break_ties`).
        measures: Names of measures.
        stage: Measures that are computed by a stage after ranking. They are left out of the result.

    Returns:
        Scores ``[Q]`` (float64) by canonical name of the measure, NaN for queries that a measure excludes.

    Raises:
        UserError: If a measure is unknown or duplicated, or if ``ir_measures`` cannot compute it.
    """
    kinds = parse_measures(measures, stage)
    nodes = ranking.nodes.cpu()
    relevance = qrels.relevance(queries, nodes, num_nodes=dataset.graph.num_nodes)
    gains, relevant = qrels.gains(queries), relevant_nodes(qrels, queries)
    foreign = [name for name, kind in kinds.items() if kind == "ir_measures"]
    scores = _by_ir_measures(foreign, relevance, gains, nodes >= 0) if foreign else {}
    for name, kind in kinds.items():
        if kind == "ours":
            scores[name] = parse_measure(name)(relevance, gains)
        elif kind == "cut":
            measure, _, top_k = name.partition("@")
            top = nodes[:, : int(top_k)] if top_k else nodes
            if measure == "Coverage":
                scores[name] = _coverage(dataset, queries, top)
            else:
                scores[name] = OF_GRAPH[measure](dataset.graph, top, relevant)
    return {name: scores[name] for name, kind in kinds.items() if kind != "stage"}


def parse_measures(names: Sequence[str], stage: Sequence[str] = ()) -> dict[str, str]:
    """Convert the names of measures to canonical names, and determine how each measure is computed.

    Args:
        names: Names of measures.
        stage: Measures that are computed by a stage after ranking.

    Returns:
        Kind of each measure by canonical name: ``ours`` for measures of gains in this package, ``cut`` for measures of
        passages such as ``TR@5``, ``stage``, or ``ir_measures``.

    Raises:
        UserError: If a measure is unknown or duplicated, or if there is none.

    Example:
        >>> parse_measures(["R_cap@10", "TR@5"])
        {'CR@10': 'ours', 'TR@5': 'cut'}
    """
    kinds = {}
    for name in names:
        if name in stage:
            kinds[name] = "stage"
        elif CUT.fullmatch(name):
            kinds[name] = "cut"
        else:
            try:
                kinds[parse_measure(name).name] = "ours"
            except ValueError as error:
                _parse_foreign(name, error)
                kinds[name] = "ir_measures"
    if not names or len(kinds) != len(names):
        raise UserError(f"`measures` must contain at least one measure and no duplicates, got {list(names)}")
    return kinds


def break_ties(ranking: Ranking, node_ids: Sequence[str], *, ties: str) -> Ranking:
    """Order passages with equal scores.

    Args:
        ranking: Ranking ``[Q, K]``.
        node_ids: Ids of all passages of the corpus.
        ties: ``own`` keeps the order of the system. ``trec`` sorts by id in descending order, as trec_eval does, so
            that the measures agree with those of trec_eval on the run file.

    Returns:
        Ranking ``[Q, K]`` with ties in the given order.
    """
    if ties == "own":
        return ranking
    position = torch.empty(len(node_ids) + 1, dtype=torch.int64)
    descending = sorted(range(len(node_ids)), key=lambda node: node_ids[node].encode("utf-8", "surrogatepass"))[::-1]
    position[torch.tensor(descending, dtype=torch.int64)] = torch.arange(len(node_ids))
    position[-1] = len(node_ids)  # padding (-1) comes last
    by_id = torch.argsort(position[ranking.nodes], dim=1, stable=True)
    by_score = torch.argsort(ranking.scores.gather(1, by_id), dim=1, descending=True, stable=True)
    order = by_id.gather(1, by_score)
    nodes, scores = ranking.nodes.gather(1, order), ranking.scores.gather(1, order)
    padding_last = torch.argsort((nodes < 0).long(), dim=1, stable=True)  # needed for nodes that score -inf
    return Ranking(nodes.gather(1, padding_last), scores.gather(1, padding_last))


def tied_share(ranking: Ranking, *, top_k: int = 10) -> float:
    """Return the fraction of queries with a tie in the top ranks.

    Args:
        ranking: Ranking ``[Q, K]``.
        top_k: Number of top ranks. A tie between the last of them and the next rank counts as well.

    Returns:
        Fraction of queries, in [0, 1].
    """
    nodes, scores = ranking.nodes[:, : top_k + 1], ranking.scores[:, : top_k + 1]
    equal = (scores[:, 1:] == scores[:, :-1]) & (nodes[:, 1:] >= 0)
    return float(equal.any(dim=1).double().mean())


def relevant_nodes(qrels: Qrels, queries: Tensor) -> Tensor:
    """Return the relevant passages of each query.

    Args:
        qrels: Judgements of the data set.
        queries: Indices of the queries, ``[Q]`` int64.

    Returns:
        Indices of the passages, ``[Q, R]`` int64, padded with -1.
    """
    order = torch.argsort(qrels.query, stable=True)
    ordered_queries = qrels.query[order]
    nodes = qrels.node[order]
    starts = torch.searchsorted(ordered_queries, queries).tolist()
    stops = torch.searchsorted(ordered_queries, queries, right=True).tolist()
    rows = [nodes[start:stop] for start, stop in zip(starts, stops, strict=True)]
    return pad_sequence(rows, batch_first=True, padding_value=-1)


def _coverage(dataset: Dataset, queries: Tensor, nodes: Tensor) -> Tensor:
    """Return whether the texts of each query's top nodes contain a correct answer, NaN for queries without answers."""
    scores = torch.full((len(queries),), torch.nan, dtype=torch.float64)
    for row, query in enumerate(queries.tolist()):
        answers = dataset.answers.get(dataset.query_ids[query])
        if answers:
            texts = [dataset.graph.texts[node] for node in nodes[row].tolist() if node >= 0]
            scores[row] = coverage("\n".join(texts), answers)
    return scores


def _by_ir_measures(measures: Sequence[str], relevance: Tensor, gains: Tensor, ranked: Tensor) -> dict[str, Tensor]:
    """Score each query with ``ir_measures``. Ranks are used in place of scores, so that there are no ties."""
    if not torch.equal(gains, gains.round()):
        raise UserError(f"measures of ir_measures require integer judgements, got other numbers for {list(measures)}")
    import ir_measures

    judged: dict[str, dict[str, int]] = {}
    run: dict[str, dict[str, float]] = {}
    depth = relevance.shape[1]
    for row, (ranked_gains, all_gains) in enumerate(zip(relevance.long().tolist(), gains.long().tolist(), strict=True)):
        hits = {str(rank): gain for rank, gain in enumerate(ranked_gains) if gain > 0}
        missed = Counter(gain for gain in all_gains if gain > 0) - Counter(hits.values())
        judged[str(row)] = hits | {f"missed {index}": gain for index, gain in enumerate(missed.elements())}
        run[str(row)] = {str(rank): float(depth - rank) for rank in ranked[row].nonzero().flatten().tolist()}
    parsed: Mapping[str, Any] = {name: _parse_foreign(name) for name in measures}
    scores = {name: torch.zeros(len(relevance), dtype=torch.float64) for name in measures}
    try:
        for entry in ir_measures.iter_calc(list(set(parsed.values())), judged, run):
            for name, measure in parsed.items():
                if measure == entry.measure:
                    scores[name][int(entry.query_id)] = float(entry.value)
    except ValueError as error:
        raise UserError(f"`measures` {list(measures)} cannot be computed by ir_measures: {error}") from error
    return scores


def _parse_foreign(name: str, cause: ValueError | None = None) -> Any:
    try:
        import ir_measures
    except ImportError as error:
        raise UserError(
            f"`measures`: {cause}. Install graphrerank[ir-measures] to use expressions of ir_measures"
        ) from error
    try:
        measure = ir_measures.parse_measure(name)
    except Exception as error:  # the parser of ir_measures raises NameError and exceptions of its grammar
        raise UserError(
            "`measures` must be PR@K, R@K, R_cap@K, nDCG@K, MRR@K, TR@K, MissTR@K, Coverage@K or an expression of "
            f"ir_measures, got {name!r} ({error})"
        ) from error
    if type(measure).__name__.lstrip("_") in JUDGED_ONLY or measure.params.get("judged_only"):
        raise UserError(f"`measures`: {name!r} requires negative judgements, which data sets do not store")
    return measure
