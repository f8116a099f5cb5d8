"""Systems that rerank candidates: their rankings of the same queries, and their cost."""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.cost import TOTAL, Laps, latency_sample, stage_quantiles, time_stages, with_peak_memory
from graphrerank.evaluation.counterfactual import OtherEdges
from graphrerank.evaluation.measuring import measure_ranking
from graphrerank.evaluation.records import Cost
from graphrerank.evaluation.systems import RankedSystem, System
from graphrerank.graphs import CandidateGraphs, Ranking

BATCH_QUERIES = 64
STATES_QUERIES = 4  # where a batch carries the states of all tokens, some tens of MiB a query
LATENCY_WARMUP = 10


@torch.inference_mode()
def run_reranker(
    prepared: PreparedDataset,
    queries: Tensor,
    system: System,
    *,
    search: Mapping[str, Sequence[float]] | None = None,
    other_edges: OtherEdges | None = None,
) -> RankedSystem:
    """Rerank the candidates of some queries with a system, time it, and rerank them with other edges between them.

    Args:
        prepared: The data set with its candidates.
        queries: ``[Q]`` int64, the order of the ranking's rows.
        system: The system.
        search: What the candidates took (:func:`graphrerank.evaluation.cost.retrieval_times`); None: not counted.
        other_edges: The other edges; None: none.
    """
    ranking, peak = with_peak_memory(partial(rerank, prepared, queries, system))
    times = _reranking_times(prepared, latency_sample(queries), system)
    cost = Cost(
        ms=stage_quantiles({**(search or {}), **times}),
        encodings=float(prepared.top_k) if system.inputs.reads_pairs else None,
        peak_memory_mib=peak,
        latency_ms=stage_quantiles(times)[TOTAL],
    )
    others = {} if other_edges is None else other_edges.systems(system)
    on_other_edges = {kind: rerank(prepared, queries, changed) for kind, changed in others.items()}
    return RankedSystem(system.name, "operator", system.name, ranking, cost, on_other_edges=on_other_edges)


@torch.inference_mode()
def measure_queries(
    prepared: PreparedDataset, split: str, system: System, *, measures: Sequence[str]
) -> dict[str, Tensor]:
    """Rerank a split's queries with one system and score each of them, as :func:`.measuring.measure_ranking` does."""
    qrels = prepared.dataset.split(split)
    return measure_ranking(prepared.dataset, qrels, qrels.queries, rerank(prepared, qrels.queries, system), measures)


@torch.inference_mode()
def rerank(prepared: PreparedDataset, queries: Tensor, system: System) -> Ranking:
    """Rerank the candidates of some queries (``[Q]`` int64) in batches; returns ``[Q, top_k]``."""
    nodes, scores = [], []
    for batch in torch.split(queries, STATES_QUERIES if system.inputs.last_layers else BATCH_QUERIES):
        part = _rerank_batch(prepared.graphs(batch, inputs=system.inputs), system, prepared.top_k)
        nodes.append(part.nodes)
        scores.append(part.scores)
    return Ranking(torch.cat(nodes), torch.cat(scores))


def _rerank_batch(graphs: CandidateGraphs, system: System, top_k: int) -> Ranking:
    node_scores = system.score(graphs).cpu().float()
    order = graphs.order(node_scores)
    padding, at = order < 0, order.clamp(min=0)
    assert graphs.nodes is not None
    nodes = graphs.nodes[at].masked_fill(padding, -1)
    scores = node_scores[at].masked_fill(padding, -torch.inf)
    missing = top_k - nodes.shape[1]
    return Ranking(
        torch.nn.functional.pad(nodes, (0, missing), value=-1),
        torch.nn.functional.pad(scores, (0, missing), value=-torch.inf),
    )


def _reranking_times(prepared: PreparedDataset, queries: Tensor, system: System) -> dict[str, list[float]]:
    """Time the reranking stage, one query at a time: candidate graph; then scores and order."""

    def run(query: int) -> dict[str, float]:
        laps = Laps()
        at = torch.tensor([query])
        graphs = prepared.graphs(at, inputs=system.inputs, edges=system.reads_graph)
        laps.lap("graph")
        _rerank_batch(graphs, system, prepared.top_k)
        laps.lap("rerank")
        return laps.seconds

    return time_stages(queries.tolist(), run, warm_up=LATENCY_WARMUP)
