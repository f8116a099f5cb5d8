"""Measure the rankings of all systems on a data set."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graphrerank._moved import moved_names
from graphrerank.core import Ranking
from graphrerank.data.qrels import Qrels
from graphrerank.data.readers.judgements import TRAIN, VAL
from graphrerank.evaluation.comparisons import compare_dataset, measure_rows
from graphrerank.evaluation.measuring import EvaluationPlan, break_ties, relevant_nodes, tied_share
from graphrerank.evaluation.query_browser import browse_queries
from graphrerank.evaluation.records import DatasetResult, SystemResult
from graphrerank.evaluation.reliability import measure_reliability
from graphrerank.evaluation.significance import bootstrap_interval
from graphrerank.evaluation.systems import RankedDataset, RankedSystem, StageResult
from graphrerank.utils.checks import UserError

__getattr__ = moved_names(__name__)


def measure_systems(ranked: RankedDataset, plan: EvaluationPlan, stages: Sequence[StageResult] = ()) -> DatasetResult:
    """Measure all systems on a data set, and compare the last system with every other system.

    Args:
        ranked: Rankings of all systems.
        plan: Measures and significance tests.
        stages: Results of the stages after ranking.

    Returns:
        Scores, significance tests and notes.

    Raises:
        ValueError: If a measure belongs to a stage that was not run.
    """
    result = compare_dataset(measure_dataset(ranked, plan, stages), ranked, plan)
    return replace(result, browser=browse_queries(result, ranked))


def measure_dataset(ranked: RankedDataset, plan: EvaluationPlan, stages: Sequence[StageResult] = ()) -> DatasetResult:
    """Measure all systems on a data set, without comparing them.

    Args:
        ranked: Rankings of all systems.
        plan: Measures, resampling and tie-breaking.
        stages: Results of the stages after ranking.

    Returns:
        Scores of each query with intervals, calibration, the ceiling of the candidates, and notes.

    Raises:
        ValueError: If a measure belongs to a stage that was not run.
    """
    dataset = ranked.dataset
    graph = dataset.graph
    queries = ranked.queries
    qrels = dataset.split(ranked.split)
    indices = queries.tolist()
    reliability = measure_reliability(ranked, qrels)
    ceiling = candidate_ceiling(ranked.candidates, qrels, queries, num_nodes=graph.num_nodes)
    return DatasetResult(
        name=dataset.name,
        split=ranked.split,
        fingerprint=dataset.fingerprint,
        query_ids=[dataset.query_ids[query] for query in indices],
        query_texts=[dataset.query_texts[query] for query in indices],
        num_relevant=(relevant_nodes(qrels, queries) >= 0).sum(1).tolist(),
        systems=system_results(ranked, score_systems(ranked, plan, stages), plan, stages),
        tested=tuple(plan.significance_measures),
        candidates=ceiling.num_candidates,
        ceiling=ceiling.share_complete,
        base_ceiling=ceiling.share_complete_before_expansion,
        reliability=reliability.candidates,
        list_reliability=reliability.lists,
        notes=(*ranked.notes, *(note for stage in stages for note in stage.notes)),
        tables=[table for stage in stages for table in stage.tables],
        groups=query_groups(stages),
        grouped=[name for name in plan.measures if name in plan.stage],
        extra=_merged(stage.extra for stage in stages),
        node_ids=graph.node_ids,
        drafted=dataset.drafted and ranked.split in (TRAIN, VAL),
    )


def score_systems(
    ranked: RankedDataset, plan: EvaluationPlan, stages: Sequence[StageResult] = ()
) -> dict[str, dict[str, Tensor]]:
    """Score every query of every system in all measures.

    Args:
        ranked: Rankings of all systems.
        plan: Measures and tie-breaking.
        stages: Results of the stages after ranking, which contain the scores of additional measures.

    Returns:
        Scores ``[Q]`` (float64) by system and measure, NaN for queries that a measure excludes.

    Raises:
        ValueError: If a measure belongs to a stage that was not run.
    """
    scores = {}
    for system in ranked.systems:
        stage_scores = _merged(stage.measures.get(system.name, {}) for stage in stages)
        available = {**measure_rows(ranked, system.ranking, plan), **stage_scores}
        if missing := [name for name in plan.measures if name not in available]:
            raise UserError(
                f"`measures` {missing} require a stage after ranking that was not run. Enable it, such as answers=..."
            )
        scores[system.name] = {name: available[name] for name in plan.measures}
    return scores


def system_results(
    ranked: RankedDataset,
    scores: Mapping[str, Mapping[str, Tensor]],
    plan: EvaluationPlan,
    stages: Sequence[StageResult] = (),
) -> dict[str, SystemResult]:
    """Build the result of every system from its scores.

    Args:
        ranked: Rankings of all systems.
        scores: Scores by system and measure (:func:`score_systems`).
        plan: Measures, resampling and tie-breaking.
        stages: Results of the stages after ranking.

    Returns:
        Results by system, in the order of the tables' rows.
    """
    table = torch.stack([torch.stack(list(rows.values())) for rows in scores.values()])  # [systems, measures, queries]
    intervals = bootstrap_interval(table, samples=plan.resamples, seed=plan.seed).tolist()
    results = {}
    for system, ends in zip(ranked.systems, intervals, strict=True):
        results[system.name] = SystemResult(
            name=system.name,
            kind=system.kind,
            source=system.source,
            fingerprint=system.fingerprint,
            routes=system.routes,
            values=scores[system.name],
            intervals={name: (low, high) for name, (low, high) in zip(plan.measures, ends, strict=True)},
            cost=system.cost,
            missing=missing_queries(ranked, system),
            tied_share=tied_share(system.ranking),
            ranking=break_ties(system.ranking, ranked.dataset.graph.node_ids, ties=plan.ties),
            extra=_merged(stage.system_extra.get(system.name, {}) for stage in stages),
        )
    return results


def missing_queries(ranked: RankedDataset, system: RankedSystem) -> tuple[str, ...]:
    """List the queries for which a system returned no passages.

    Args:
        ranked: Rankings of all systems.
        system: System whose ranking is examined.

    Returns:
        Ids of the queries.
    """
    is_empty = ~(system.ranking.nodes >= 0).any(dim=1)
    return tuple(ranked.dataset.query_ids[query] for query in ranked.queries[is_empty.cpu()].tolist())


@dataclass(frozen=True)
class CandidateCeiling:
    """Upper limit of perfect recall for any reranker of the candidates. All fields are None without candidates.

    Attributes:
        num_candidates: Largest number of candidates of a query.
        share_complete: Fraction of queries whose relevant passages are all candidates.
        share_complete_before_expansion: The same fraction for the candidates before expansion.
    """

    num_candidates: int | None = None
    share_complete: float | None = None
    share_complete_before_expansion: float | None = None


def candidate_ceiling(candidates: Ranking | None, qrels: Qrels, queries: Tensor, *, num_nodes: int) -> CandidateCeiling:
    """Measure the upper limit of perfect recall that the candidates allow.

    Args:
        candidates: Candidates ``[Q, K]``, or None if no system reranks candidates.
        qrels: Judgements of the split.
        queries: Indices of the queries, ``[Q]`` int64.
        num_nodes: Number of passages in the corpus.

    Returns:
        Upper limits with the number of candidates.
    """
    if candidates is None:
        return CandidateCeiling()
    before_expansion = candidates.nodes if candidates.base_nodes is None else candidates.base_nodes
    return CandidateCeiling(
        min(candidates.nodes.shape[1], num_nodes),
        qrels.share_complete(queries, candidates.nodes, num_nodes=num_nodes),
        qrels.share_complete(queries, before_expansion, num_nodes=num_nodes),
    )


def query_groups(stages: Sequence[StageResult]) -> dict[str, dict[str, list[int]]]:
    """Collect the groups of queries that stages define.

    Args:
        stages: Results of the stages after ranking.

    Returns:
        Row indices of the queries, by kind of group and name of the group.
    """
    return {
        kind: {name: mask.nonzero().flatten().tolist() for name, mask in masks.items()}
        for kind, masks in _merged(stage.groups for stage in stages).items()
    }


def _merged(mappings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: entry for mapping in mappings for key, entry in mapping.items()}
