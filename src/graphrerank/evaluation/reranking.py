"""Systems that rerank candidates: the retriever's order, frozen operators, models; their rankings and their cost."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from graphrerank.evaluation.measuring import measure_ranking
from graphrerank.evaluation.records import RETRIEVER, Cost
from graphrerank.evaluation.systems import RankedSystem, Scorer, System, base_ranking
from graphrerank.features.text_match import MATCH_FEATURES, TextMatch
from graphrerank.graphs import CandidateGraphs, CorpusGraph, ModelInputs, Ranking, candidate_edges
from graphrerank.graphs.edge_types import EDGE_TYPES
from graphrerank.graphs.rewire import shuffle_each_type, shuffle_edges, shuffled_graph
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.models.granker import frozen_grankers
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.operators.gcs import GCS
from graphrerank.operators.ppr import PPR

BATCH_QUERIES = 64
STATES_QUERIES = 4  # where a batch carries the states of all tokens, some tens of MiB a query
SHUFFLED, REMOVED, EACH_TYPE = EDGES = ("shuffled", "removed", "each_type")
WITHOUT_TYPE = "without "  # begins the name of what `each_type` does to one type
TOGETHER = MATCH_FEATURES[2]  # the one that depends on edges
RESTART_GRID = tuple(round(0.1 * step, 1) for step in range(1, 10))


class OtherEdges:
    """Lets systems rank the candidates of a data set with other edges between them.

    ``shuffled``: every candidate keeps its number of neighbours among the candidates, of each type where edges keep
    theirs, but has others. ``removed``: no edge. ``each_type``: without the edges of one type, as ``without entity``,
    once for each type that the corpus has, where it has several. All features of edges (GCS, degrees, best neighbours)
    follow, and so do the words that a candidate's neighbours cover (:class:`TextMatch`). Scores of the retriever stay:
    the candidates are given.
    """

    def __init__(self, prepared: PreparedDataset, kinds: Sequence[str] = EDGES, *, seed: int = 0) -> None:
        self._left_out = left_out_types(prepared.dataset.graph) if EACH_TYPE in kinds else {}
        self._kinds = (*(kind for kind in kinds if kind != EACH_TYPE), *self._left_out)
        self._prepared = prepared
        self._seed = seed
        follows = kinds and TOGETHER in prepared.feature_names
        self._match = TextMatch.of(prepared.dataset.graph) if follows else None

    def systems(self, system: System) -> dict[str, System]:
        """Return a system on each kind of other edges.

        Empty for a system that reads no edges, and for one that reads the states of tokens, which are not kept.
        """
        if not system.reads_graph or system.inputs.last_layers:
            return {}
        return {kind: replace(system, score=partial(self._score, system, kind)) for kind in self._kinds}

    def _score(self, system: System, edges: str, graphs: CandidateGraphs) -> Tensor:
        if edges == SHUFFLED:
            changed = _shuffled(graphs, torch.Generator().manual_seed(self._seed))
        elif edges in self._left_out:
            changed = self._without_type(graphs, self._left_out[edges])
        else:
            changed = graphs.select_edges(torch.zeros_like(graphs.edge_attr, dtype=torch.bool))
        if self._match is not None:
            assert graphs.query_index is not None
            assert graphs.nodes is not None
            texts = [self._prepared.dataset.query_texts[query] for query in graphs.query_index.tolist()]
            x, column = graphs.x.clone(), self._prepared.feature_names.index(TOGETHER)
            x[:, column] = self._match.score(texts, graphs.nodes, changed.edge_index, graphs.ptr)[:, -1]
            changed = replace(changed, x=x)
        return system.score(changed)

    def _without_type(self, graphs: CandidateGraphs, number: int) -> CandidateGraphs:
        """Return the same candidates without the edges of a type; for a system that merges types, merged without it."""
        if graphs.edge_type is not None:
            return graphs.select_edges(graphs.edge_type != number)
        assert graphs.query_index is not None
        nodes = self._prepared.ranking.select(graphs.query_index.cpu()).nodes
        edge_index, weight, _, types = candidate_edges(self._prepared.dataset.graph, nodes, keep_types=True)
        kept = types != number
        both, place = torch.unique_consecutive(edge_index[:, kept], dim=1, return_inverse=True)
        largest = weight.new_zeros(both.shape[1]).scatter_reduce_(0, place, weight[kept], "amax")
        return replace(graphs, edge_index=both.to(graphs.x.device), edge_attr=largest.to(graphs.x.device))


def left_out_types(graph: CorpusGraph) -> dict[str, int]:
    """Number the types of a corpus's edges, as ``without TYPE``; empty where all edges are of one type."""
    types = graph.edge_types()
    return {f"{WITHOUT_TYPE}{EDGE_TYPES[number]}": number for number in types} if len(types) > 1 else {}


def other_graphs(graph: CorpusGraph, kinds: Sequence[str], *, seed: int = 0) -> Iterator[tuple[str, CorpusGraph]]:
    """Make a corpus with other edges of each of some kinds (:data:`EDGES`), for what searches all of it."""
    for kind in kinds:
        if kind == SHUFFLED:
            yield kind, shuffled_graph(graph, seed=seed)
        elif kind == REMOVED:
            yield kind, graph.without_edges()
        else:
            for name, number in left_out_types(graph).items():
                yield name, graph.with_types([other for other in graph.edge_types() if other != number])


def _shuffled(graphs: CandidateGraphs, generator: torch.Generator) -> CandidateGraphs:
    edge_index, edge_attr, edge_type = graphs.edge_index, graphs.edge_attr, graphs.edge_type
    if edge_type is None:
        edge_index, edge_attr = shuffle_edges(edge_index, edge_attr, graphs.ptr, generator=generator)
    else:
        edges = shuffle_each_type(edge_index, edge_attr, edge_type, graphs.ptr, generator=generator)
        edge_index, edge_attr, edge_type = edges
    return replace(graphs, edge_index=edge_index, edge_attr=edge_attr, edge_type=edge_type)


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
    """Rerank a split's queries with one system, and score each of them (:func:`.measuring.measure_ranking`)."""
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
