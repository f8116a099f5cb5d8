"""What systems rank: models with the frozen rows next to them, and pipelines, each of which retrieves for itself."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.vector_cache import PairCache
from graphrerank.evaluation.cost import (
    TOTAL,
    retrieval_times,
    spread_over,
    stage_quantiles,
    time_stages,
    with_peak_memory,
)
from graphrerank.evaluation.records import READING, RETRIEVER, Cost
from graphrerank.evaluation.reranking import (
    EDGES,
    OtherEdges,
    check_encoder,
    reranking_systems,
    run_reranker,
    with_frozen,
)
from graphrerank.evaluation.systems import RankedSystem, System
from graphrerank.files import hash_files, hash_json
from graphrerank.graphs import CorpusGraph, PairEncoder, Queries
from graphrerank.graphs.routes import route_shares
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.models.manifest import RerankerManifest
from graphrerank.pipelines.pipeline import Pipeline, Retrieved
from graphrerank.progress import advance, progress_bar

FROZEN = (RETRIEVER, "ppr", "gcs", "cross_encoder", "granker")  # rows without training, next to those of checkpoints
TIMED_QUERIES, TIMED_PAIRS = 8, 128  # read once more, past the cache, to know what reading takes
# settings of a training without which a model learns the same
MACHINE_SETTINGS = ("seed", "paths", "device", "num_threads", "debug", "scorers", "models")


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
    """Rerank the candidates with every model, and with each frozen row once per setting that the manifests give it.

    ``prepare`` returns a data set with the features and the cross-encoder that models were trained with; ``queries``
    are ``[Q]`` int64. Returns the rows of each label; under ``""`` the frozen ones.
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
        trained = with_frozen({name: checkpoint.model for name, checkpoint in group.models.items()}, part)
        rows[label] = []
        for system in reranking_systems(trained, group.manifest.operators, device=device, scorers=scorers):
            if system.name in group.models:
                row = run_reranker(part, queries, system, search=search, other_edges=edges)
                rows[label].append(_with_training(row, group, group.models[system.name]))
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
        reads = manifest.pair_encoder.fingerprint, manifest.inputs.last_layers
        settings |= {"cross_encoder": reads, "granker": reads}
    return settings


def _with_training(row: RankedSystem, group: Rerankers, checkpoint: Checkpoint) -> RankedSystem:
    """Add the record of a checkpoint's training, and the pairs that a cross-encoder read for it, in no stage's time."""
    manifest, cost = checkpoint.reranker, row.cost
    if cost is not None and group.reads is not None:
        cost = replace(cost, encodings=float(min(group.reads, row.ranking.nodes.shape[1])))
    return replace(
        row,
        kind="checkpoint",
        source=group.source,
        cost=cost,
        config=training_config(manifest),
        seed=manifest.seed,
        fingerprint=hash_files([checkpoint.path]),
        calibration=manifest.calibration,
        confidence=manifest.list_confidence,
    )


def training_config(manifest: RerankerManifest) -> str | None:
    """Hash the settings that a model was trained with, except its seed; None where the manifest lacks them."""
    if not manifest.config:
        return None
    kept = {key: entry for key, entry in manifest.config.items() if key not in MACHINE_SETTINGS}
    return hash_json([manifest.name, kept, manifest.content["data"]])


def run_pipelines(
    prepared: PreparedDataset, queries: Tensor, pipelines: Mapping[str, Pipeline], *, alone: int = 0
) -> list[RankedSystem]:
    """Let every pipeline retrieve for queries ``[Q]`` int64, many at once, and time it.

    ``alone`` of them are retrieved once more, one at a time, for ``Cost.ms``.
    """
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
        batch_ms = {stage: 1000 * seconds / len(batch) for stage, seconds in result.seconds.items()}
        batch_ms["other"] = 1000 * elapsed / len(batch) - sum(batch_ms.values())
        if pair_ms is not None and READING in batch_ms:
            batch_ms[READING] = encodings * pair_ms
        ms = _latency(pipelines[name], batch, alone, pair_ms) if alone else {}
        cost = Cost(ms, encodings or None, None, peak, ms.get(TOTAL, {}), batch_ms, pair_ms if encodings else None)
        routes = {} if result.routes is None else route_shares(result.routes)
        ranked.append(RankedSystem(name, "pipeline", f"pipeline={name}", result.ranking, cost, routes=routes))
    return ranked


def _latency(pipeline: Pipeline, queries: Queries, wanted: int, pair_ms: float | None) -> dict[str, dict[str, float]]:
    """Time a pipeline's stages, one query at a time; cached pairs cost the time of reading them."""

    def run(row: int) -> dict[str, float]:
        begin = time.perf_counter()
        result = pipeline.retrieve(queries.block(row, row + 1))
        elapsed, seconds = time.perf_counter() - begin, dict(result.seconds)
        seconds["other"] = elapsed - sum(seconds.values())
        if pair_ms is not None and READING in seconds:
            seconds[READING] = float(result.num_encodings.sum()) * pair_ms / 1000
        return seconds

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
