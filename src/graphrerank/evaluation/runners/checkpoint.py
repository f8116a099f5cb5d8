"""Runner of checkpoints and baselines, which rerank the same candidates."""

import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphrerank.config.components import ComponentFactory
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.ablations import EDGE_ABLATIONS, EdgeAblation
from graphrerank.evaluation.baselines import (
    BASELINES,
    OPTIONAL_BASELINES,
    baseline_row_name,
    baseline_settings,
    baseline_systems,
    rank_fusion_system,
)
from graphrerank.evaluation.encoder_checks import check_encoder, own_encoder
from graphrerank.evaluation.latency import (
    TOTAL,
    WARM_UP,
    latency_sample,
    retrieval_times,
    stage_quantiles,
    time_stages,
)
from graphrerank.evaluation.memory import with_peak_memory
from graphrerank.evaluation.records import RETRIEVER, Cost
from graphrerank.evaluation.reranking import rerank, rerank_batch, trained_system
from graphrerank.evaluation.runners.base import BASELINE_ROWS, RankingTask, SystemRunner
from graphrerank.evaluation.systems import RankedSystem, System
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.models.granker import frozen_grankers
from graphrerank.models.manifest import RerankerManifest
from graphrerank.utils.files import hash_files


@dataclass(frozen=True, eq=False)
class CheckpointGroup:
    """Models of one source, such as a run folder with a model and its ablations.

    Attributes:
        source: Name or path of the source, for the report.
        models: Checkpoints by row name. The last one is the primary model.
        cross_encoder_top_k: Number of top candidates per query that the caller's cross-encoder scores for the features
            of these models. None if the caller passed no cross-encoder, or if the models do not use its scores.
    """

    source: str
    models: Mapping[str, Checkpoint]
    cross_encoder_top_k: int | None = None

    @property
    def manifest(self) -> RerankerManifest:
        """Manifest of the primary model."""
        return list(self.models.values())[-1].reranker

    @property
    def reads_vectors(self) -> bool:
        """Whether any model uses vectors of texts."""
        return any(checkpoint.reranker.inputs.reads_vectors for checkpoint in self.models.values())


class CheckpointRunner(SystemRunner):
    """Rerank candidates with checkpoints and baselines, measure their latency, and run edge ablations.

    Args:
        groups: Checkpoints by label.
        components: Factory of the encoders that the manifests name.
        pair_encoder: Cross-encoder that replaces those of the manifests. If None, the cross-encoder of each manifest is
            used.
        scorers: Additional baselines.
        edge_ablations: Ablations to run (:class:`~graphrerank.evaluation.ablations.EdgeAblation`).
        baselines: Baselines in addition to the retriever, a subset of ``OPTIONAL_BASELINES``. ``rank_fusion`` needs a
            retriever with the scores of BM25 and of dense search, and is skipped otherwise.
        seed: Random seed for shuffled edges.
    """

    reranks_candidates: ClassVar[bool] = True

    def __init__(
        self,
        groups: Mapping[str, CheckpointGroup],
        components: ComponentFactory,
        *,
        pair_encoder: Any = None,
        scorers: Sequence[System] = (),
        edge_ablations: Sequence[str] = EDGE_ABLATIONS,
        baselines: Sequence[str] = OPTIONAL_BASELINES,
        seed: int = 0,
    ) -> None:
        self.groups = dict(groups)
        self.components = components
        self.pair_encoder = pair_encoder
        self.scorers = list(scorers)
        self.edge_ablations = tuple(edge_ablations)
        self.baseline_names = (RETRIEVER, *baselines)
        self.seed = seed

    def run(self, task: RankingTask) -> dict[str, list[RankedSystem]]:
        """Rerank the candidates of a task.

        Args:
            task: Data set and queries, with candidates.

        Returns:
            Rows by label of the checkpoint. Baselines are under ``BASELINE_ROWS``, one row per distinct setting.

        Raises:
            UserError: If the data set was encoded with another encoder than a checkpoint requires.
        """
        prepared, queries = task.required_preparation, task.queries
        search = retrieval_times(prepared, queries)
        settings = self.baseline_settings()
        baselines: dict[str, list[RankedSystem]] = {name: [] for name in (*BASELINES, *self._scorer_names)}
        rows: dict[str, list[RankedSystem]] = {}
        for label, group in self.groups.items():
            data = self.prepare(group, prepared, queries)
            for checkpoint in group.models.values():
                check_encoder(checkpoint, data)
            ablation = EdgeAblation(data, self.edge_ablations, seed=self.seed)
            run = partial(run_reranker, data, queries, search=search, edge_ablation=ablation)
            for system in self.baselines(group, data, retriever_features=prepared.feature_names):
                name = baseline_row_name(system.name, label, settings)
                if name is not None:
                    baselines[system.name].append(run(replace(system, name=name)))
            rows[label] = [
                checkpoint_row(run(trained_system(name, checkpoint.model, self.components.device)), checkpoint, group)
                for name, checkpoint in group.models.items()
            ]
        return {BASELINE_ROWS: [row for variants in baselines.values() for row in variants], **rows}

    def prepare(self, group: CheckpointGroup, prepared: PreparedDataset, queries: Tensor) -> PreparedDataset:
        """Add the features and the cross-encoder of checkpoints to a data set.

        Args:
            group: Checkpoints of one source.
            prepared: Data set with candidates.
            queries: Indices of the queries that are reranked, ``[Q]`` int64.

        Returns:
            Data set with the feature columns of the checkpoints.
        """
        manifest = group.manifest
        if group.cross_encoder_top_k is not None:
            prepared = self.components.with_cross_encoder(
                prepared, self.pair_encoder, queries, top_k=group.cross_encoder_top_k
            )
        data = prepared.with_features(manifest.retriever.feature_names)
        if manifest.pair_encoder is None:
            return data
        pair_encoder = self.pair_encoder
        if pair_encoder is None:
            pair_encoder = self.components.from_manifest("pair_encoder", manifest.pair_encoder)
        return self.components.with_pair_encoder(data, pair_encoder)

    def baselines(
        self, group: CheckpointGroup, data: PreparedDataset, *, retriever_features: Sequence[str]
    ) -> list[System]:
        """Build the baselines and scorers that are compared with a group of checkpoints.

        Args:
            group: Checkpoints of one source.
            data: Data set as returned by :meth:`prepare`.
            retriever_features: Names of the features that the retriever returns.

        Returns:
            Systems in the order of the tables' rows.
        """
        grankers = frozen_grankers(own_encoder(data)) if group.manifest.inputs.reads_pairs else {}
        frozen = [trained_system(name, model, self.components.device) for name, model in grankers.items()]
        untrained = baseline_systems(group.manifest.operators)
        fusion = rank_fusion_system(group.manifest.operators, data.feature_names, retriever_features)
        untrained = [*untrained, *([] if fusion is None else [fusion])]
        chosen = [system for system in untrained if system.name in self.baseline_names]
        return [*chosen, *self.scorers, *frozen]

    def baseline_settings(self) -> dict[str, dict[str, Hashable]]:
        """Return the settings of each baseline by label of the checkpoint.

        The result is the argument ``settings`` of :func:`~graphrerank.evaluation.baselines.baseline_row_name`.
        """
        scorers: dict[str, Hashable] = dict.fromkeys(self._scorer_names)
        return {label: {**scorers, **baseline_settings(group.manifest)} for label, group in self.groups.items()}

    @property
    def _scorer_names(self) -> list[str]:
        return [scorer.name for scorer in self.scorers]


def checkpoint_row(row: RankedSystem, checkpoint: Checkpoint, group: CheckpointGroup) -> RankedSystem:
    """Add the source, fingerprint and calibration of a checkpoint to its rankings.

    Args:
        row: Rankings of the checkpoint (:func:`run_reranker`).
        checkpoint: Checkpoint that produced the rankings.
        group: Group of the checkpoint.

    Returns:
        Row of the checkpoint.
    """
    cost = row.cost
    if cost is not None and group.cross_encoder_top_k is not None:
        # No stage includes the cross-encoder's time, so the number of encodings is reported instead.
        cost = replace(cost, encodings=float(min(group.cross_encoder_top_k, row.ranking.nodes.shape[1])))
    return replace(
        row,
        kind="checkpoint",
        source=group.source,
        cost=cost,
        fingerprint=hash_files([checkpoint.path]),
        calibration=checkpoint.reranker.calibration,
        confidence=checkpoint.reranker.list_confidence,
    )


@torch.inference_mode()
def run_reranker(
    prepared: PreparedDataset,
    queries: Tensor,
    system: System,
    *,
    search: Mapping[str, Sequence[float]] | None = None,
    edge_ablation: EdgeAblation | None = None,
) -> RankedSystem:
    """Rerank candidates with a system, measure its latency, and run its edge ablations.

    Args:
        prepared: Data set with the candidates of its queries.
        queries: Indices of the queries, ``[Q]`` int64.
        system: System to run.
        search: Milliseconds of the search for candidates
            (:func:`~graphrerank.evaluation.latency.retrieval_times`). If None, the cost does not include the search.
        edge_ablation: Ablations to run. If None, no ablations are run.

    Returns:
        Rankings of the system with their cost.

    Raises:
        ValueError: If a score is NaN.
    """
    ranking, peak = with_peak_memory(partial(rerank, prepared, queries, system))
    times = reranking_times(prepared, queries, system)
    cost = Cost(
        ms=stage_quantiles({**(search or {}), **times}),
        encodings=float(prepared.top_k) if system.inputs.reads_pairs else None,
        peak_memory_mib=peak,
        latency_ms=stage_quantiles(times)[TOTAL],
    )
    variants = {} if edge_ablation is None else edge_ablation.systems(system)
    ablated = {kind: rerank(prepared, queries, variant) for kind, variant in variants.items()}
    return RankedSystem(system.name, "operator", system.name, ranking, cost, on_other_edges=ablated)


def reranking_times(prepared: PreparedDataset, queries: Tensor, system: System) -> dict[str, list[float]]:
    """Measure the latency of a reranker, one query at a time.

    Args:
        prepared: Data set with the candidates of its queries.
        queries: Indices of queries, ``[Q]`` int64, of which a sample is timed.
        system: System to time.

    Returns:
        Milliseconds of each timed query under the stages ``graph`` and ``rerank``.
    """

    def run(query: int) -> dict[str, float]:
        begin = time.perf_counter()
        graphs = prepared.graphs(torch.tensor([query]), inputs=system.inputs, edges=system.reads_graph)
        built = time.perf_counter()
        rerank_batch(graphs, system, prepared.top_k)
        return {"graph": built - begin, "rerank": time.perf_counter() - built}

    return time_stages(latency_sample(queries), run, warm_up=WARM_UP)
