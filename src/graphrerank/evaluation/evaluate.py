"""Rank the queries of data sets with built systems, and measure, compare and report what they ranked."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.cost import retrieval_times
from graphrerank.evaluation.counterfactual import EDGES, OtherEdges, other_graphs
from graphrerank.evaluation.dataset_result import measure_systems
from graphrerank.evaluation.measuring import EvaluationPlan
from graphrerank.evaluation.records import RETRIEVER, DatasetResult
from graphrerank.evaluation.replicability import across_datasets
from graphrerank.evaluation.report import print_result
from graphrerank.evaluation.rerankers import check_encoder, reranking_systems, with_frozen
from graphrerank.evaluation.reranking import run_reranker
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.run_pipelines import run_pipelines
from graphrerank.evaluation.significance import LEVEL
from graphrerank.evaluation.systems import RankedDataset, RankedSystem, Stage, System
from graphrerank.files import hash_files, hash_json
from graphrerank.graphs import CorpusGraph, Queries
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.models.manifest import RerankerManifest
from graphrerank.pipelines.pipeline import Pipeline

FROZEN = (RETRIEVER, "ppr", "gcs", "cross_encoder", "granker")  # rows without training, next to those of checkpoints
TIMED_ALONE = 50  # queries that pipelines retrieve once more, one at a time
# settings of a training without which a model learns the same
MACHINE_SETTINGS = ("seed", "paths", "device", "num_threads", "debug", "scorers", "models")


@dataclass(frozen=True, eq=False)
class Rerankers:
    """The models of one source, such as a run folder with a model and its ablations.

    Attributes:
        source: Where they come from, for the report.
        models: By name of the row; the last is the primary one.
        prepare: Returns a data set with the features and the cross-encoder that they were trained with, for some
            queries ``[Q]``.
        reads: Pairs of a query that a cross-encoder read for their features; None for none.
    """

    source: str
    models: Mapping[str, Checkpoint]
    prepare: Callable[[PreparedDataset, Tensor], PreparedDataset]
    reads: int | None = None

    @property
    def manifest(self) -> RerankerManifest:
        """The manifest of the primary model."""
        return list(self.models.values())[-1].reranker


def evaluate_rankings(
    rankings: Iterable[RankedDataset],
    plan: EvaluationPlan,
    *,
    stages: Sequence[Stage] = (),
    run_dir: Path | None = None,
    command: str = "",
    settings: Mapping[str, Any] | None = None,
    encoder_counts: Callable[[], Mapping[str, int]] = dict,
    show: bool = True,
    **facts: Any,
) -> EvaluationResult:
    """Measure and compare the systems of each data set, and keep the files of the evaluation up to date meanwhile.

    Args:
        rankings: What the systems ranked, a data set at a time.
        plan: Measures and tests.
        stages: Called with the rankings of each data set.
        run_dir: Folder of the files (:meth:`EvaluationResult.save`); None: write none.
        command: The command, for the report.
        settings: What the numbers depend on besides the plan.
        encoder_counts: Returns the counts of an encoder behind an endpoint so far.
        show: Whether to print the table of each data set.
        **facts: Further fields of :class:`EvaluationResult`.

    Raises:
        ValueError: If there is no data set.
    """
    kept = {"ties": plan.ties, "resamples": plan.resamples, "level": LEVEL, "seed": plan.seed, **(settings or {})}
    datasets: list[DatasetResult] = []
    result = None
    for ranked in rankings:
        added = [stage(ranked, run_dir=run_dir, seed=plan.seed) for stage in stages]
        datasets.append(measure_systems(ranked, plan, added))
        across = across_datasets(datasets, permutations=plan.resamples, seed=plan.seed)
        by_name = {dataset.name: dataset for dataset in datasets}
        result = EvaluationResult(command, by_name, across, kept, encoder_counts=encoder_counts(), **facts)
        if show:
            print_result(datasets[-1], ties=plan.ties)
        if run_dir is not None:
            result.save(run_dir)
    if result is None:
        raise ValueError("`data` must name at least one data set, got none")
    return result


def rank_candidates(
    prepared: PreparedDataset,
    queries: Tensor,
    rerankers: Mapping[str, Rerankers],
    *,
    device: torch.device,
    scorers: Sequence[System] = (),
    counterfactuals: Sequence[str] = EDGES,
    seed: int = 0,
) -> dict[str, list[RankedSystem]]:
    """Rerank the candidates with every model, and with each frozen row once per setting that the manifests give it.

    Args:
        prepared: The data set.
        queries: ``[Q]`` int64, the order of the rankings' rows.
        rerankers: Models, by label.
        device: Where models run.
        scorers: Further frozen rows.
        counterfactuals: Kinds of other edges to rerank with.
        seed: Seed of shuffled edges.

    Returns:
        The rows of each label; under ``""`` the frozen ones.
    """
    search = retrieval_times(prepared, queries)
    same = dict.fromkeys(scorer.name for scorer in scorers)
    settings = {label: {**same, **_frozen_settings(group.manifest)} for label, group in rerankers.items()}
    frozen: dict[str, list[RankedSystem]] = {name: [] for name in (*FROZEN, *same)}
    rows: dict[str, list[RankedSystem]] = {}
    for label, group in rerankers.items():
        part = group.prepare(prepared, queries)
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


def rank_with_pipelines(
    prepared: PreparedDataset,
    queries: Tensor,
    pipelines: Mapping[str, Pipeline],
    *,
    build: Callable[[str, CorpusGraph], Pipeline] | None = None,
    counterfactual_pipelines: Sequence[str] = (),
    counterfactuals: Sequence[str] = EDGES,
    device: torch.device | None = None,
    seed: int = 0,
) -> dict[str, list[RankedSystem]]:
    """Let pipelines retrieve, and some of them once more on the corpus with other edges.

    Args:
        prepared: The data set.
        queries: ``[Q]`` int64, the order of the rankings' rows.
        pipelines: By label.
        build: Builds the pipeline of a label over another graph; needed for ``counterfactual_pipelines``.
        counterfactual_pipelines: Labels of pipelines that are run on other edges.
        counterfactuals: Kinds of other edges.
        device: Where the other graphs are; None: where the graph is.
        seed: Seed of shuffled edges.

    Returns:
        The row of each label.
    """
    ranked = run_pipelines(prepared, queries, pipelines, progress=True, alone=TIMED_ALONE)
    rows = {row.name: [row] for row in ranked}
    data, graph = prepared.dataset, prepared.dataset.graph
    graph = graph if device is None else graph.to(device)
    batch = Queries(data.query_ids, data.query_texts, prepared.query_vectors).select(queries)
    for label in counterfactual_pipelines:
        assert build is not None
        others = {
            edges: build(label, other).retrieve(batch).ranking
            for edges, other in other_graphs(graph, counterfactuals, seed=seed)
        }
        rows[label] = [replace(row, on_other_edges=others) for row in rows[label]]
    return rows


def training_config(manifest: RerankerManifest) -> str | None:
    """Hash the settings that a model was trained with, except its seed; None where the manifest lacks them."""
    if not manifest.config:
        return None
    kept = {key: entry for key, entry in manifest.config.items() if key not in MACHINE_SETTINGS}
    return hash_json([manifest.name, kept, manifest.content["data"]])


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
