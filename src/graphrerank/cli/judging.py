"""``python evaluate.py 'systems=[...]' 'checkpoint=[...]'``: any systems on the same queries, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import Tensor

from graphrerank.cli.named_systems import DATASET, Named, check_run_files, name_systems
from graphrerank.cli.session import Session
from graphrerank.cli.study import TIMED_ALONE, conclude, ranked_pipelines, ranked_rows, study_plan
from graphrerank.cli.systems import check_encoder, frozen_grankers, trained_layers
from graphrerank.data import PreparedDataset, RetrievalDataset
from graphrerank.data.readers.run_candidates import read_run
from graphrerank.evaluation import judge, judge_pipelines, peak_memory_mib, trec_run
from graphrerank.evaluation.build_study import RankedSystem, build_study
from graphrerank.evaluation.judge_pipelines import first_queries
from graphrerank.evaluation.study import DatasetStudy
from graphrerank.evaluation.study_report import print_study, write_study_metrics
from graphrerank.files import hash_files, write_text
from graphrerank.graphs import Queries, Ranking
from graphrerank.graphs.rewire import shuffled_graph
from graphrerank.models import Checkpoint, load_checkpoints
from graphrerank.models.checkpoint import reads_pairs, reads_vectors

MEASURES = ("nDCG@10", "PR@5", "PR@10", "R@5", "R@10")  # where `measures` names none
UNUSED = ("R@1",)  # what the judges measure for themselves; a study measures again, all systems alike
RUN_DEPTH = 1_000  # nodes that are read of a run file, per query


def judge_systems(cfg: DictConfig) -> Path:
    """Judge pipelines, checkpoints and run files on every data set named; the last one is compared with the others.

    Returns:
        The run folder.

    Raises:
        ValueError: If a system is none of these or named twice, a run file does not fit the data set, checkpoints need
            different encoders, or a pipeline is chosen by ``pipeline`` too.
    """
    if cfg.pipeline is not None or cfg.pipelines:
        raise ValueError("`systems` names pipelines too; leave `pipeline` and `pipelines` out")
    names, datasets = Session(cfg).dataset_names(), []
    named = name_systems(cfg)
    check_run_files(named, names)
    strangers = set(cfg.counterfactual_pipelines) - {one.label for one in named if one.kind == "pipeline"}
    if strangers:
        raise ValueError(f"`counterfactual_pipelines` must be of `systems`, got {sorted(strangers)}")
    plan, run_dir = study_plan(cfg, MEASURES), Path(cfg.paths.run_dir)
    loaded = {one.label: load_checkpoints(one.source) for one in named if one.kind == "checkpoint"}
    for label, checkpoints in loaded.items():
        _check_reranker(label, checkpoints)
    for name in names:
        dataset, queries, candidates, ranked = _rank(cfg, name, named, loaded)
        study = build_study(
            dataset, cfg.split, queries, ranked, plan, candidates=None if candidates is None else candidates.nodes
        )
        if candidates is not None:
            study = _with_ceiling(study, candidates, dataset, queries)
        datasets.append(study)
        for system in study.systems.values():
            assert system.ranking is not None
            text = trec_run(study.query_ids, dataset.graph.node_ids, system.ranking, tag=system.name)
            write_text(run_dir / "runs" / f"{study.name}.{system.name}.trec", text)
        print_study(study, ties=cfg.ties)
        whole = conclude(cfg, datasets)
        write_study_metrics(run_dir / "metrics.json", whole, peak_memory_mib=peak_memory_mib())
    return run_dir


def read_run_file(path: str, dataset: RetrievalDataset, split: str, queries: Tensor) -> Ranking:
    """Read what a run file ranks for some queries: ``[Q, depth]``.

    Raises:
        ValueError: As :func:`read_run`, or if it ranks nothing for any of them.
    """
    run = read_run(path, query_ids=dataset.query_ids, node_ids=dataset.graph.node_ids, top_k=RUN_DEPTH)
    ranking = Ranking(run.ranking.nodes[queries], run.ranking.scores[queries])
    if not bool((ranking.nodes >= 0).any()):
        raise ValueError(
            f"{path}: needed a candidate for at least one of the {len(queries)} queries judged of split {split!r} of "
            f"{dataset.name!r}, found none"
        )
    return ranking


def _rank(
    cfg: DictConfig, name: str, named: Sequence[Named], loaded: Mapping[str, Mapping[str, Checkpoint]]
) -> tuple[RetrievalDataset, Tensor, Ranking | None, list[RankedSystem]]:
    """Let all systems rank a data set's queries; with checkpoints, also the candidates that they reranked."""
    manifest = list(list(loaded.values())[-1].values())[-1].manifest if loaded else None
    data = Session(cfg).data(name, manifest)
    pipelines = [one.label for one in named if one.kind == "pipeline"]
    prepared, candidates = None, None
    if loaded or pipelines:
        prepared = _prepare(cfg, data, manifest, loaded, bool(pipelines))
    dataset = instantiate(data) if prepared is None else prepared.dataset
    queries = first_queries(dataset, cfg.split, cfg.num_queries)
    torch.set_num_threads(cfg.num_threads)
    rows: dict[str, list[RankedSystem]] = {}
    if prepared is not None and loaded:
        candidates = prepared.ranking.select(queries)
        rows = _rank_checkpoints(cfg, prepared, loaded, {one.label: one.source for one in named}, queries)
    if prepared is not None and pipelines:
        rows |= {one.name: [one] for one in _rank_pipelines(cfg, prepared, manifest, pipelines, queries)}
    for one in named:
        if one.kind == "run":
            path = one.source.replace(DATASET, dataset.name)
            ranking = read_run_file(path, dataset, cfg.split, queries)
            rows[one.label] = [
                RankedSystem(one.label, "run", one.source, ranking, fingerprint=hash_files([Path(path)]))
            ]
    listed = [*rows.get("", []), *(row for one in named for row in rows[one.label])]
    return dataset, queries, candidates, listed


def _prepare(
    cfg: DictConfig,
    data: DictConfig,
    manifest: Mapping[str, Any] | None,
    loaded: Mapping[str, Mapping[str, Checkpoint]],
    has_pipelines: bool,
) -> PreparedDataset:
    """Make a data set ready with the encoder and retriever chosen, else those of the last checkpoint."""
    vectors = has_pipelines or any(reads_vectors(one.manifest) for part in loaded.values() for one in part.values())
    encoder = _encoder(cfg, manifest, has_pipelines)
    return Session(cfg).prepare(data, encoder, _retriever(cfg, manifest), reads_vectors=vectors)


def _encoder(cfg: DictConfig, manifest: Mapping[str, Any] | None, has_pipelines: bool) -> DictConfig | None:
    if cfg.encoder is not None:
        return cfg.encoder
    if manifest and manifest["encoder"]:
        return Session(cfg).group_from_manifest("encoder", manifest["encoder"])
    return Session(cfg).group("encoder", "minilm") if has_pipelines else None


def _retriever(cfg: DictConfig, manifest: Mapping[str, Any] | None) -> DictConfig:
    if cfg.retriever is not None:
        return cfg.retriever
    return (
        Session(cfg).group_from_manifest("retriever", manifest["retriever"])
        if manifest
        else Session(cfg).group("retriever", "dense")
    )


def _rank_checkpoints(
    cfg: DictConfig,
    prepared: PreparedDataset,
    loaded: Mapping[str, Mapping[str, Checkpoint]],
    sources: Mapping[str, str],
    queries: Tensor,
) -> dict[str, list[RankedSystem]]:
    """Rerank with every checkpoint; under the name ``""`` the base ranking and the frozen operators of the last one."""
    rows: dict[str, list[RankedSystem]] = {}
    retriever = instantiate(_retriever(cfg, list(list(loaded.values())[-1].values())[-1].manifest))
    build = retriever(prepared.dataset.graph)
    for place, (label, checkpoints) in enumerate(loaded.items()):
        manifest = list(checkpoints.values())[-1].manifest
        part = prepared.with_features(manifest["retriever"]["feature_names"])
        if reads_pairs(manifest):
            trained_with = manifest["pair_encoder"]
            pair_encoder = cfg.pair_encoder or Session(cfg).group_from_manifest("pair_encoder", trained_with)
            layers = trained_layers({key: one.manifest["model"]["arguments"] for key, one in checkpoints.items()})
            part = Session(cfg).with_pair_encoder(part, pair_encoder, last_layers=layers)
        for one in checkpoints.values():
            check_encoder(str(one.path), one.manifest, part)
        names = {system: label if len(checkpoints) == 1 else f"{label}-{system}" for system in checkpoints}
        models = {names[system]: one.model for system, one in checkpoints.items()}
        if place == len(loaded) - 1:
            models = {**frozen_grankers(part), **models}
        every = Session(cfg).systems(models, manifest["operators"])
        chosen = every if place == len(loaded) - 1 else every[-len(models) :]
        result = judge(part, cfg.split, chosen, measures=UNUSED, queries=queries, retriever=build)
        trained = {names[system]: one for system, one in checkpoints.items()}
        found = ranked_rows(cfg, part, result, chosen, trained, queries=queries, source=sources[label])
        rows[label] = [row for row in found if row.kind == "checkpoint"]
        rows.setdefault("", []).extend(row for row in found if row.kind != "checkpoint")
    return rows


def _rank_pipelines(
    cfg: DictConfig,
    prepared: PreparedDataset,
    manifest: Mapping[str, Any] | None,
    names: Sequence[str],
    queries: Tensor,
) -> list[RankedSystem]:
    """Let pipelines retrieve; vector searches that name no retriever ask the one that gave the candidates."""
    session = Session(cfg)
    if cfg.pair_encoder is not None:
        prepared = session.with_pair_encoder(prepared, cfg.pair_encoder)
    encoder = _encoder(cfg, manifest, True)
    assert encoder is not None
    build = session.pipeline_factory(prepared, encoder, _retriever(cfg, manifest))
    data, graph = prepared.dataset, prepared.dataset.graph.to(session.device)
    groups = {name: session.group("pipeline", name) for name in names}
    pipelines = {name: build(group) for name, group in groups.items()}
    result = judge_pipelines(
        prepared, cfg.split, pipelines, measures=UNUSED, limit=cfg.num_queries, progress=True, alone=TIMED_ALONE
    )
    rows = {row.name: row for row in ranked_pipelines(result)}
    asked = Queries(data.query_ids, data.query_texts, prepared.query_vectors).select(queries)
    for name in cfg.counterfactual_pipelines:
        found = {}
        for edges in cfg.counterfactuals:
            other = shuffled_graph(graph, seed=cfg.seed) if edges == "shuffled" else graph.without_edges()
            found[edges] = build(groups[name], other).retrieve(asked).ranking
        rows[name] = replace(rows[name], on_other_edges=found)
    return list(rows.values())


def _with_ceiling(study: DatasetStudy, candidates: Ranking, dataset: RetrievalDataset, queries: Tensor) -> DatasetStudy:
    """Add how many candidates there are, and the share of queries whose relevant nodes are all among them."""
    qrels = dataset.split(study.split)

    def share(nodes: Tensor) -> float:
        found = qrels.relevance(queries, nodes, num_nodes=dataset.graph.num_nodes) > 0
        return float((found.sum(1) == (qrels.gains(queries) > 0).sum(1)).double().mean())

    base = candidates.nodes if candidates.base_nodes is None else candidates.base_nodes
    return replace(
        study,
        candidates=candidates.nodes.shape[1],
        ceiling=share(candidates.nodes),
        base_ceiling=share(base),
    )


def _check_reranker(label: str, checkpoints: Mapping[str, Checkpoint]) -> None:
    for one in checkpoints.values():
        if "retriever" not in one.manifest:
            raise ValueError(f"`systems`: {label} is a {one.manifest['model']['name']}, no reranker")
