"""Systems that rerank candidates: the retriever's order, frozen operators, models; their rankings and their cost."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.vector_cache import PairCache
from graphrerank.evaluation.cost import (
    TOTAL,
    WARM_UP,
    latency_sample,
    stage_quantiles,
    time_stages,
    with_peak_memory,
)
from graphrerank.evaluation.counterfactual import OtherEdges
from graphrerank.evaluation.measuring import measure_ranking
from graphrerank.evaluation.records import RETRIEVER, Cost
from graphrerank.evaluation.systems import RankedSystem, Scorer, System, base_ranking
from graphrerank.graphs import CandidateGraphs, ModelInputs, Ranking
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.models.granker import frozen_grankers
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.operators.gcs import GCS
from graphrerank.operators.ppr import PPR

BATCH_QUERIES = 64
STATES_QUERIES = 4  # where a batch carries the states of all tokens, some tens of MiB a query
RESTART_GRID = tuple(round(0.1 * step, 1) for step in range(1, 10))


@torch.inference_mode()
def run_reranker(
    prepared: PreparedDataset,
    queries: Tensor,
    system: System,
    *,
    search: Mapping[str, Sequence[float]] | None = None,
    other_edges: OtherEdges | None = None,
) -> RankedSystem:
    """Rerank the candidates of queries ``[Q]`` int64 with a system, time it, and rerank them with other edges.

    ``search`` is what the candidates took (:func:`graphrerank.evaluation.cost.retrieval_times`); None: not counted.
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
    parts = [
        _rerank_batch(prepared.graphs(batch, inputs=system.inputs), system, prepared.top_k)
        for batch in torch.split(queries, STATES_QUERIES if system.inputs.last_layers else BATCH_QUERIES)
    ]
    return Ranking(torch.cat([part.nodes for part in parts]), torch.cat([part.scores for part in parts]))


def _rerank_batch(graphs: CandidateGraphs, system: System, top_k: int) -> Ranking:
    node_scores = system.score(graphs).cpu().float()
    order = graphs.order(node_scores)
    padding, at = order < 0, order.clamp(min=0)
    assert graphs.nodes is not None
    nodes = graphs.nodes[at].masked_fill(padding, -1)
    scores = node_scores[at].masked_fill(padding, -torch.inf)
    missing = (0, top_k - nodes.shape[1])
    pad = torch.nn.functional.pad
    return Ranking(pad(nodes, missing, value=-1), pad(scores, missing, value=-torch.inf))


def _reranking_times(prepared: PreparedDataset, queries: Sequence[int], system: System) -> dict[str, list[float]]:
    """Time the reranking stage, one query at a time: candidate graph; then scores and order."""

    def run(query: int) -> dict[str, float]:
        begin = time.perf_counter()
        graphs = prepared.graphs(torch.tensor([query]), inputs=system.inputs, edges=system.reads_graph)
        built = time.perf_counter()
        _rerank_batch(graphs, system, prepared.top_k)
        return {"graph": built - begin, "rerank": time.perf_counter() - built}

    return time_stages(queries, run, warm_up=WARM_UP)


def reranking_systems(
    models: Mapping[str, nn.Module],
    restart_probs: Mapping[str, float],
    *,
    device: torch.device,
    scorers: Iterable[System] = (),
) -> list[System]:
    """List the rows of a table of rerankers: the retriever, PPR, GCS, further scorers, the models."""
    return [
        System(RETRIEVER, base_ranking, reads_graph=False),
        System("ppr", PPR(restart_prob=restart_probs["ppr"]).score),
        System("gcs", GCS(restart_prob=restart_probs["gcs"]).score),
        *scorers,
        *(trained_system(name, model, device) for name, model in models.items()),
    ]


def trained_system(name: str, model: nn.Module, device: torch.device) -> System:
    """Let a trained model rerank on a device."""
    model = model.to(device).eval()
    inputs = cast(ModelInputs, model.inputs)

    def score(graphs: CandidateGraphs) -> Tensor:
        scores: Tensor = model(*graphs.to(device).model_inputs(inputs))
        return scores

    return System(name, score, inputs=inputs)


def tune_restart_probs(
    prepared: PreparedDataset, split: str, given: Mapping[str, float | None] | None = None
) -> dict[str, float]:
    """Choose the restart probabilities of GCS and PPR on a split, except those that are given."""
    build = {"gcs": lambda p: GCS(restart_prob=p).score, "ppr": lambda p: PPR(restart_prob=p).score}
    return {name: (given or {}).get(name) or tune_restart_prob(prepared, split, build[name]) for name in build}


def tune_restart_prob(
    prepared: PreparedDataset, split: str, build: Callable[[float], Scorer], *, measure: str = "PR@10"
) -> float:
    """Search a grid for the restart probability with the best mean of a measure on a split; the first of equals wins.

    Source: GraphER, appendix A.3 (grid 0.1 to 0.9 on one training set). We search each data set's validation split.
    """
    means = []
    for restart_prob in RESTART_GRID:
        (values,) = measure_queries(prepared, split, System("tuned", build(restart_prob)), measures=[measure]).values()
        means.append(float(values.nanmean()))
    return RESTART_GRID[means.index(max(means))]


def with_frozen(models: Mapping[str, nn.Module], prepared: PreparedDataset) -> dict[str, nn.Module]:
    """Put the frozen models that trained ones are compared with before them: for models of pairs, GRanker's."""
    inputs = cast(ModelInputs, list(models.values())[-1].inputs)
    return {**(frozen_grankers(own_encoder(prepared), inputs) if inputs.reads_pairs else {}), **models}


def own_encoder(prepared: PreparedDataset) -> CrossEncoder:
    """Return the cross-encoder that reads a data set's pairs, which must be one of transformers."""
    encoder = prepared.pair_encoder.encoder if isinstance(prepared.pair_encoder, PairCache) else prepared.pair_encoder
    if not isinstance(encoder, CrossEncoder):
        raise ValueError(f"`pair_encoder` must be a CrossEncoder, whose head is trained, got {type(encoder).__name__}")
    return encoder


def check_encoder(checkpoint: Checkpoint, prepared: PreparedDataset) -> None:
    """Refuse a data set with vectors of another encoder, of texts or of pairs, than a model was trained on."""
    inputs = checkpoint.reranker.inputs
    if inputs.reads_vectors:
        checkpoint.check_encoder(prepared.encoder_name, prepared.encoder_fingerprint)
    if inputs.reads_pairs and prepared.pair_encoder is not None:
        checkpoint.check_pair_encoder(prepared.pair_encoder.fingerprint)
