"""All systems of a run of ``evaluate.py`` rank the queries of a data set."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import Tensor

from graphrerank.cli.job_session import PipelineFactory
from graphrerank.cli.lineup import DATASET, FROZEN, Lineup
from graphrerank.cli.session import Session
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.cost import retrieval_times
from graphrerank.evaluation.counterfactual import OtherEdges, other_graphs
from graphrerank.evaluation.measuring import judged_queries
from graphrerank.evaluation.ranked_system import RankedDataset, RankedSystem
from graphrerank.evaluation.rerankers import check_encoder, with_frozen
from graphrerank.evaluation.reranking import run_reranker
from graphrerank.evaluation.run_files import read_run_file
from graphrerank.evaluation.run_json import RETRIEVER
from graphrerank.evaluation.run_pipelines import run_pipelines
from graphrerank.files import hash_files, hash_json
from graphrerank.graphs import Queries
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.models.manifest import RerankerManifest
from graphrerank.pipelines.pipeline import Pipeline

TIMED_ALONE = 50  # queries that pipelines retrieve once more, one at a time
MACHINE_SETTINGS = (
    "seed",
    "paths",
    "device",
    "num_threads",
    "debug",
    "scorers",
    "models",
)  # it learns the same without them

Rows = dict[str, list[RankedSystem]]  # by label of the system; under "" those without training


class Rankings:
    """Lets all systems of a lineup rank the queries of its data sets, one data set after the other."""

    def __init__(self, session: Session, lineup: Lineup) -> None:
        self._session, self._lineup = session, lineup

    def __iter__(self) -> Iterator[RankedDataset]:
        for data in self._lineup.data:
            yield self._rank(data)

    def _rank(self, data: DictConfig) -> RankedDataset:
        session, lineup = self._session, self._lineup
        rows: Rows = {}
        candidates = None
        if lineup.checkpoints or lineup.pipelines:
            models = [checkpoint for loaded in lineup.checkpoints.values() for checkpoint in loaded.values()]
            vectors = any(checkpoint.reranker.inputs.reads_vectors for checkpoint in models)
            vectors |= bool(lineup.pipelines) and lineup.encoder is not None
            prepared = session.prepare(
                data, lineup.encoder, lineup.retriever, reads_vectors=vectors, splits=[session.split]
            )
            dataset, queries = prepared.dataset, judged_queries(prepared.dataset, session.split, session.num_queries)
            torch.set_num_threads(session.num_threads)
            if lineup.checkpoints:
                candidates = prepared.ranking.select(queries)
                rows |= self._rerank(prepared, queries)
            if lineup.pipelines:
                rows |= self._retrieve(prepared, queries)
        else:
            dataset = instantiate(data)
            queries = judged_queries(dataset, session.split, session.num_queries)
        for system in lineup.named:
            if system.kind == "run":
                path = Path(system.source.replace(DATASET, dataset.name))
                ranking = read_run_file(path, dataset, session.split, queries)
                rows[system.label] = [
                    RankedSystem(system.label, "run", system.source, ranking, fingerprint=hash_files([path]))
                ]
        systems = [row for label in ("", *(system.label for system in lineup.named)) for row in rows.get(label, [])]
        notes = [*lineup.notes, *_counts_note(session.encoder_counts)]
        return RankedDataset(dataset, session.split, queries, systems, candidates, notes)

    def _rerank(self, prepared: PreparedDataset, queries: Tensor) -> Rows:
        """Rerank with every checkpoint, and with each frozen row once per setting that the checkpoints give it."""
        session, lineup = self._session, self._lineup
        search = retrieval_times(prepared, queries, instantiate(lineup.retriever)(prepared.dataset.graph))
        manifests = {label: list(models.values())[-1].reranker for label, models in lineup.checkpoints.items()}
        same = dict.fromkeys(session.cfg.scorers)
        settings = {label: {**same, **_frozen_settings(manifest)} for label, manifest in manifests.items()}
        sources = {entry.label: entry.source for entry in lineup.named}
        frozen: dict[str, list[RankedSystem]] = {name: [] for name in (*FROZEN, *session.cfg.scorers)}
        rows: Rows = {}
        for label, models in lineup.checkpoints.items():
            part = self._as_trained(prepared, queries, manifests[label], models)
            edges = OtherEdges(part, session.cfg.counterfactuals, seed=session.seed)
            trained = {name: checkpoint.model for name, checkpoint in models.items()}
            rows[label] = []
            for system in session.systems(with_frozen(trained, part), manifests[label].operators):
                if system.name in models:
                    row = run_reranker(part, queries, system, search=search, other_edges=edges)
                    row = _with_training(row, models[system.name], sources[label])
                    rows[label].append(self._with_reads(row, manifests[label]))
                    continue
                owners = _owners(settings, system.name)
                if owners[settings[label][system.name]] == label:
                    name = system.name if len(owners) == 1 else f"{system.name}-{label}"
                    row = run_reranker(part, queries, replace(system, name=name), search=search, other_edges=edges)
                    frozen[system.name].append(row)
        return {"": [row for listed in frozen.values() for row in listed], **rows}

    def _as_trained(
        self, prepared: PreparedDataset, queries: Tensor, manifest: RerankerManifest, models: Mapping[str, Checkpoint]
    ) -> PreparedDataset:
        """Return a data set with the features and the cross-encoder that a checkpoint was trained with."""
        session, cfg = self._session, self._session.cfg
        if self._reads_first(manifest):
            prepared = session.with_cross_encoder(prepared, cfg.pair_encoder, queries, top_k=cfg.cross_encoder_top_k)
        part = prepared.with_features(manifest.retriever.feature_names)
        if manifest.pair_encoder is not None:
            chosen = cfg.pair_encoder
            if chosen is None:
                chosen = session.group_from_manifest("pair_encoder", manifest.pair_encoder)
            part = session.with_pair_encoder(part, chosen)
        for checkpoint in models.values():
            check_encoder(checkpoint, part)
        return part

    def _reads_first(self, manifest: RerankerManifest) -> bool:
        """Whether a cross-encoder was chosen, and a checkpoint reads its scores of the first candidates."""
        return manifest.reads_cross_encoder and self._session.cfg.pair_encoder is not None

    def _with_reads(self, row: RankedSystem, manifest: RerankerManifest) -> RankedSystem:
        """Add to a checkpoint's cost the pairs that a cross-encoder read for it; its time is in no stage."""
        if row.cost is None or not self._reads_first(manifest):
            return row
        reads = min(self._session.cfg.cross_encoder_top_k, row.ranking.nodes.shape[1])
        return replace(row, cost=replace(row.cost, encodings=float(reads)))

    def _retrieve(self, prepared: PreparedDataset, queries: Tensor) -> Rows:
        """Let pipelines retrieve; some of them on the corpus with other edges, too."""
        session, lineup = self._session, self._lineup
        cfg = session.cfg
        if cfg.pair_encoder is not None:
            prepared = session.with_pair_encoder(prepared, cfg.pair_encoder)
        build = session.pipeline_factory(prepared, lineup.encoder, lineup.retriever)
        pipelines = {label: _built(build, group, label) for label, group in lineup.pipelines.items()}
        ranked = run_pipelines(prepared, queries, pipelines, progress=True, alone=TIMED_ALONE)
        rows: Rows = {row.name: [row] for row in ranked}
        data, graph = prepared.dataset, prepared.dataset.graph.to(session.device)
        batch = Queries(data.query_ids, data.query_texts, prepared.query_vectors).select(queries)
        for label in cfg.counterfactual_pipelines:
            others = {
                edges: build(lineup.pipelines[label], other).retrieve(batch).ranking
                for edges, other in other_graphs(graph, cfg.counterfactuals, seed=session.seed)
            }
            rows[label] = [replace(row, on_other_edges=others) for row in rows[label]]
        return rows


def _counts_note(counts: Mapping[str, int]) -> list[str]:
    """Say what an encoder's endpoint was asked, if there is one."""
    listed = ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in counts.items())
    return [f"the encoder's endpoint, so far in this run: {listed}"] if listed else []


def _built(build: PipelineFactory, group: DictConfig, label: str) -> Pipeline:
    """Build a pipeline; an error names it."""
    try:
        return build(group)
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from error


def _frozen_settings(manifest: RerankerManifest) -> dict[str, Any]:
    """Return the settings that decide each frozen row beside a checkpoint."""
    settings: dict[str, Any] = {RETRIEVER: None, **manifest.operators}
    if manifest.pair_encoder is not None:
        reads = manifest.pair_encoder.fingerprint, manifest.inputs.last_layers
        settings |= {"cross_encoder": reads, "granker": reads}
    return settings


def _owners(settings: Mapping[str, Mapping[str, Any]], name: str) -> dict[Any, str]:
    """Return the first checkpoint with each setting of a frozen row."""
    return {setting[name]: label for label, setting in reversed(list(settings.items())) if name in setting}


def _with_training(row: RankedSystem, checkpoint: Checkpoint, source: str) -> RankedSystem:
    """Add the record of a checkpoint's training."""
    manifest = checkpoint.reranker
    return replace(
        row,
        kind="checkpoint",
        source=source,
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
