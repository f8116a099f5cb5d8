"""Rankings of systems, with their cost: rerankers of the same candidates, and pipelines, which retrieve themselves."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphrerank.core import CandidateGraphs, ModelInputs, PairEncoder, Queries, Ranking
from graphrerank.corpus import CorpusGraph, candidate_edges
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.vector_cache import PairCache
from graphrerank.evaluation.cost import (
    TOTAL,
    WARM_UP,
    latency_sample,
    retrieval_times,
    spread_over,
    stage_quantiles,
    time_stages,
    with_peak_memory,
)
from graphrerank.evaluation.edge_rewiring import shuffle_each_type, shuffle_edges
from graphrerank.evaluation.measuring import measure_ranking
from graphrerank.evaluation.records import READING, RETRIEVER, Cost
from graphrerank.evaluation.systems import RankedSystem, Scorer, System, base_ranking
from graphrerank.features.text_match import MATCH_FEATURES, TextMatch
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.models.granker import frozen_grankers
from graphrerank.models.manifest import RerankerManifest
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.operators.gcs import GCS
from graphrerank.operators.ppr import PPR
from graphrerank.pipelines.pipeline import Pipeline, Retrieved
from graphrerank.pipelines.router import route_shares
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import hash_files
from graphrerank.utils.progress import advance, progress_bar

BATCH_QUERIES = 64
SHUFFLED, REMOVED, EACH_TYPE = EDGES = ("shuffled", "removed", "each_type")
WITHOUT_TYPE = "without "  # begins the name of what `each_type` does to one type
TOGETHER = MATCH_FEATURES[2]  # the one that depends on edges
RESTART_GRID = tuple(round(0.1 * step, 1) for step in range(1, 10))
FROZEN = (RETRIEVER, "ppr", "gcs", "cross_encoder", "granker")  # rows without training, next to those of checkpoints
TIMED_QUERIES, TIMED_PAIRS = 8, 128  # read once more, past the cache, to know what reading takes


class OtherEdges:
    """The candidates of a data set with other edges between them, for systems to rank.

    ``shuffled``: every candidate keeps its number of neighbours among the candidates, of each type where edges keep
    theirs. ``removed``: no edge. ``each_type``: without the edges of one type, as ``without entity``, for each type
    where the corpus has several. All features of edges follow, also the words that a candidate's neighbours cover
    (:class:`TextMatch`).
    """

    def __init__(self, prepared: PreparedDataset, kinds: Sequence[str] = EDGES, *, seed: int = 0) -> None:
        corpus, types = prepared.dataset.graph, prepared.dataset.graph.edge_types()
        self._graphs: dict[str, CorpusGraph | None] = {SHUFFLED: None} if SHUFFLED in kinds else {}  # None: of a batch
        if REMOVED in kinds:
            self._graphs[REMOVED] = corpus.without_edges()
        if EACH_TYPE in kinds and len(types) > 1:
            for number in types:
                kept = corpus.with_types([other for other in types if other != number])
                self._graphs[f"{WITHOUT_TYPE}{EDGE_TYPES[number]}"] = kept
        self._prepared = prepared
        self._seed = seed
        follows = kinds and TOGETHER in prepared.feature_names
        self._match = TextMatch.of(prepared.dataset.graph) if follows else None

    def systems(self, system: System) -> dict[str, System]:
        """Return a system on each kind of other edges; empty for a system that reads no edges."""
        if not system.reads_graph:
            return {}
        return {
            kind: replace(system, score=partial(self._score, system, graph)) for kind, graph in self._graphs.items()
        }

    def _score(self, system: System, corpus: CorpusGraph | None, graphs: CandidateGraphs) -> Tensor:
        changed = self._shuffled(graphs) if corpus is None else self._among(graphs, corpus)
        if self._match is not None:
            assert graphs.query_index is not None
            assert graphs.nodes is not None
            texts = [self._prepared.dataset.query_texts[query] for query in graphs.query_index.tolist()]
            x, column = graphs.x.clone(), self._prepared.feature_names.index(TOGETHER)
            x[:, column] = self._match.score(texts, graphs.nodes, changed.edge_index, graphs.ptr)[:, -1]
            changed = replace(changed, x=x)
        return system.score(changed)

    def _shuffled(self, graphs: CandidateGraphs) -> CandidateGraphs:
        generator, types = torch.Generator().manual_seed(self._seed), graphs.edge_type
        if types is None:
            edges, weight = shuffle_edges(graphs.edge_index, graphs.edge_attr, graphs.ptr, generator=generator)
        else:
            edges, weight, types = shuffle_each_type(
                graphs.edge_index, graphs.edge_attr, types, graphs.ptr, generator=generator
            )
        return replace(graphs, edge_index=edges, edge_attr=weight, edge_type=types)

    def _among(self, graphs: CandidateGraphs, corpus: CorpusGraph) -> CandidateGraphs:
        """Return the same candidates with the edges of another corpus graph."""
        assert graphs.query_index is not None
        nodes = self._prepared.ranking.select(graphs.query_index.cpu()).nodes
        keep_types, device = graphs.edge_type is not None, graphs.x.device
        edges, weight, _, types = candidate_edges(corpus, nodes, keep_types=keep_types)
        types = None if types is None else types.to(device)
        return replace(graphs, edge_index=edges.to(device), edge_attr=weight.to(device), edge_type=types)


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

    def run(query: int) -> dict[str, float]:
        begin = time.perf_counter()
        graphs = prepared.graphs(torch.tensor([query]), inputs=system.inputs, edges=system.reads_graph)
        built = time.perf_counter()
        _rerank_batch(graphs, system, prepared.top_k)
        return {"graph": built - begin, "rerank": time.perf_counter() - built}

    times = time_stages(latency_sample(queries), run, warm_up=WARM_UP)
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
        for batch in torch.split(queries, BATCH_QUERIES)
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


def reranking_systems(
    models: Mapping[str, nn.Module],
    restart_probs: Mapping[str, float],
    *,
    device: torch.device,
    scorers: Iterable[System] = (),
) -> list[System]:
    """List the rows of a table of rerankers."""
    return [
        System(RETRIEVER, base_ranking, reads_graph=False),
        System("ppr", PPR(restart_prob=restart_probs["ppr"]).score),
        System("gcs", GCS(restart_prob=restart_probs["gcs"]).score),
        *scorers,
        *(trained_system(name, model, device) for name, model in models.items()),
    ]


def trained_system(name: str, model: nn.Module, device: torch.device) -> System:
    """Return a system that reranks with a trained model on a device."""
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


def own_encoder(prepared: PreparedDataset) -> CrossEncoder:
    """Return the cross-encoder that reads a data set's pairs, which must be one of transformers."""
    encoder = prepared.pair_encoder.encoder if isinstance(prepared.pair_encoder, PairCache) else prepared.pair_encoder
    if not isinstance(encoder, CrossEncoder):
        raise UserError(f"`pair_encoder` must be a CrossEncoder, whose head is trained, got {type(encoder).__name__}")
    return encoder


def check_encoder(checkpoint: Checkpoint, prepared: PreparedDataset) -> None:
    """Refuse a data set with vectors of another encoder, of texts or of pairs, than a model was trained on."""
    inputs = checkpoint.reranker.inputs
    if inputs.reads_vectors:
        checkpoint.check_encoder(prepared.encoder_name, prepared.encoder_fingerprint)
    if inputs.reads_pairs and prepared.pair_encoder is not None:
        checkpoint.check_encoder("another", prepared.pair_encoder.fingerprint, of_pairs=True)


@dataclass(frozen=True, eq=False)
class Rerankers:
    """The models of one source, such as a run folder with a model and its ablations."""

    source: str  # where they come from, for the report
    models: Mapping[str, Checkpoint]  # by name of the row; the last is the primary one
    reads: int | None = None  # pairs of a query that a cross-encoder read for their features; None for none

    @property
    def manifest(self) -> RerankerManifest:
        """The manifest of the primary model."""
        return list(self.models.values())[-1].reranker


def rank_candidates(
    prepared: PreparedDataset,
    queries: Tensor,
    rerankers: Mapping[str, Rerankers],
    *,
    prepare: Callable[[RerankerManifest, PreparedDataset, Tensor], PreparedDataset],
    device: torch.device,
    scorers: Sequence[System] = (),
    counterfactuals: Sequence[str] = EDGES,
    seed: int = 0,
) -> dict[str, list[RankedSystem]]:
    """Rerank the candidates of queries ``[Q]`` int64: the rows of each label, under ``""`` the frozen ones.

    A frozen row stands once per setting that the manifests give it. ``prepare`` returns a data set with the features
    and the cross-encoder that models were trained with.
    """
    search = retrieval_times(prepared, queries)
    same = dict.fromkeys(scorer.name for scorer in scorers)
    settings = {label: {**same, **_frozen_settings(group.manifest)} for label, group in rerankers.items()}
    frozen: dict[str, list[RankedSystem]] = {name: [] for name in (*FROZEN, *same)}
    rows: dict[str, list[RankedSystem]] = {}
    for label, group in rerankers.items():
        part = prepare(group.manifest, prepared, queries)
        for checkpoint in group.models.values():
            check_encoder(checkpoint, part)
        edges = OtherEdges(part, counterfactuals, seed=seed)
        trained = {name: checkpoint.model for name, checkpoint in group.models.items()}
        if group.manifest.inputs.reads_pairs:
            trained = {**frozen_grankers(own_encoder(part)), **trained}
        rows[label] = []
        for system in reranking_systems(trained, group.manifest.operators, device=device, scorers=scorers):
            if system.name in group.models:
                row = run_reranker(part, queries, system, search=search, other_edges=edges)
                checkpoint, cost = group.models[system.name], row.cost
                if cost is not None and group.reads is not None:  # in no stage's time
                    cost = replace(cost, encodings=float(min(group.reads, row.ranking.nodes.shape[1])))
                trained_as: dict[str, Any] = {
                    "fingerprint": hash_files([checkpoint.path]),
                    "calibration": checkpoint.reranker.calibration,
                    "confidence": checkpoint.reranker.list_confidence,
                }
                rows[label].append(replace(row, kind="checkpoint", source=group.source, cost=cost, **trained_as))
                continue
            owners = {own[system.name]: name for name, own in reversed(settings.items()) if system.name in own}
            if owners[settings[label][system.name]] == label:
                name = system.name if len(owners) == 1 else f"{system.name}-{label}"
                row = run_reranker(part, queries, replace(system, name=name), search=search, other_edges=edges)
                frozen[system.name].append(row)
    return {"": [row for listed in frozen.values() for row in listed], **rows}


def _frozen_settings(manifest: RerankerManifest) -> dict[str, Any]:
    """Return the settings that decide each frozen row next to a checkpoint."""
    settings: dict[str, Any] = {RETRIEVER: None, **manifest.operators}
    if manifest.pair_encoder is not None:
        settings |= dict.fromkeys(("cross_encoder", "granker"), manifest.pair_encoder.fingerprint)
    return settings


def run_pipelines(
    prepared: PreparedDataset, queries: Tensor, pipelines: Mapping[str, Pipeline], *, alone: int = 0
) -> list[RankedSystem]:
    """Retrieve with every pipeline for queries ``[Q]`` int64 at once; ``alone`` of them once more, for ``Cost.ms``."""
    dataset = prepared.dataset
    batch = Queries(dataset.query_ids, dataset.query_texts, prepared.query_vectors).select(queries)
    retrieved: dict[str, tuple[Retrieved, float, float | None]] = {}
    for name, pipeline in pipelines.items():
        begin = time.perf_counter()
        with progress_bar(name, len(queries)):
            result, peak = with_peak_memory(partial(pipeline.retrieve, batch, advance=advance))
        retrieved[name] = result, time.perf_counter() - begin, peak
    pair_ms = _pair_ms(prepared.pair_encoder, [entry[0] for entry in retrieved.values()], batch, dataset.graph)
    ranked = []
    for name, (result, elapsed, peak) in retrieved.items():
        encodings = float(result.num_encodings.double().mean())
        batch_ms = {stage: 1000 * took / len(batch) for stage, took in _seconds(result, elapsed, pair_ms).items()}
        ms = _latency(pipelines[name], batch, alone, pair_ms) if alone else {}
        cost = Cost(ms, encodings or None, peak, ms.get(TOTAL, {}), batch_ms, pair_ms if encodings else None)
        routes = {} if result.routes is None else route_shares(result.routes)
        ranked.append(RankedSystem(name, "pipeline", f"pipeline={name}", result.ranking, cost, routes=routes))
    return ranked


def _seconds(result: Retrieved, elapsed: float, pair_ms: float | None) -> dict[str, float]:
    """Return the seconds of each stage; cached pairs cost the time of reading them."""
    seconds = {**result.seconds, "other": elapsed - sum(result.seconds.values())}
    if pair_ms is not None and READING in seconds:
        seconds[READING] = float(result.num_encodings.sum()) * pair_ms / 1000
    return seconds


def _latency(pipeline: Pipeline, queries: Queries, wanted: int, pair_ms: float | None) -> dict[str, dict[str, float]]:
    """Time a pipeline's stages, one query at a time."""

    def run(row: int) -> dict[str, float]:
        begin = time.perf_counter()
        result = pipeline.retrieve(queries.block(row, row + 1))
        return _seconds(result, time.perf_counter() - begin, pair_ms)

    return stage_quantiles(time_stages(spread_over(len(queries), wanted).tolist(), run))


def _pair_ms(
    encoder: PairEncoder | None, retrieved: Sequence[Retrieved], queries: Queries, graph: CorpusGraph
) -> float | None:
    """Measure how long reading a pair takes where a cache hides it, on pairs of the last pipeline that reads some."""
    reading = [result for result in retrieved if int(result.num_encodings.sum())]
    if not isinstance(encoder, PairCache) or not reading:
        return None
    nodes = reading[-1].ranking.nodes.cpu()
    rows = spread_over(len(nodes), TIMED_QUERIES)
    row, column = torch.nonzero(nodes[rows] >= 0, as_tuple=True)
    some = spread_over(len(row), TIMED_PAIRS)
    texts = [queries.texts[query] for query in rows[row[some]].tolist()]
    passages = [graph.texts[node] for node in nodes[rows[row[some]], column[some]].tolist()]
    encoder.encoder.encode(texts[:1], passages[:1])  # loads the model
    begin = time.perf_counter()
    encoder.encoder.encode(texts, passages)
    return 1000 * (time.perf_counter() - begin) / len(texts)
