"""``python evaluate.py 'systems=[...]' 'checkpoint=[...]'``: any systems on the same queries, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from graphrerank.data import PreparedDataset, RetrievalDataset, VectorCache
from graphrerank.data.run_candidates import read_run
from graphrerank.doors.parts import (
    compose_group,
    frozen_grankers,
    group_from_manifest,
    pick_device,
    prepare_dataset,
    systems,
    trained_layers,
    with_pair_encoder,
)
from graphrerank.doors.preparing import check_encoder, choose_data, dataset_names
from graphrerank.doors.study import TIMED_ALONE, conclude, ranked_pipelines, ranked_rows, study_plan
from graphrerank.evaluation import judge, judge_pipelines, peak_memory_mib, trec_run
from graphrerank.evaluation.build_study import RankedSystem, build_study
from graphrerank.evaluation.judge_pipelines import first_queries
from graphrerank.evaluation.study import DatasetStudy
from graphrerank.evaluation.study_report import print_study, write_study_metrics
from graphrerank.files import write_text
from graphrerank.graphs import Ranking
from graphrerank.models import Checkpoint, load_checkpoints
from graphrerank.models.checkpoint import reads_pairs, reads_vectors

MEASURES = ("nDCG@10", "PR@5", "PR@10", "R@5", "R@10")  # where `measures` names none
UNUSED = ("R@1",)  # what the judges measure for themselves; a study measures again, all systems alike
RUN_ENDINGS = (".trec", ".run", ".txt", ".tsv", ".jsonl", ".gz")
RUN_DEPTH = 1_000  # nodes that are read of a run file, per query
DATASET = "{dataset}"  # in a run file's path: the name of the data set


@dataclass(frozen=True)
class Named:
    """A system as the command named it.

    Attributes:
        label: Its name in reports.
        kind: ``pipeline``, ``run`` or ``checkpoint``.
        source: What the command says.
    """

    label: str
    kind: str
    source: str


def judge_systems(cfg: DictConfig) -> Path:
    """Judge pipelines, checkpoints and run files on every data set named; the last one is compared with the others.

    Returns:
        The run folder, which is also the last line printed.

    Raises:
        ValueError: If a system is none of these or named twice, a run file does not fit the data set, checkpoints need
            different encoders, or a pipeline is chosen by ``pipeline`` too.
    """
    if cfg.pipeline is not None or cfg.pipelines:
        raise ValueError("`systems` names pipelines too; leave `pipeline` and `pipelines` out")
    names, datasets = dataset_names(cfg), []
    named = name_systems(cfg)
    _check_run_files(named, names)
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
    print(run_dir, flush=True)
    return run_dir


def name_systems(cfg: DictConfig) -> list[Named]:
    """Tell what ``systems`` and ``checkpoint`` name: a file of ``conf/pipeline``, else a run file, else a checkpoint.

    Raises:
        ValueError: If there is none, or one is named twice.
    """
    sources = [str(source) for source in cfg.systems]
    if not OmegaConf.is_missing(cfg, "checkpoint"):
        listed = cfg.checkpoint if OmegaConf.is_list(cfg.checkpoint) else [cfg.checkpoint]
        sources += [str(source) for source in listed]
    if not sources or len(set(sources)) != len(sources):
        raise ValueError(f"`systems` and `checkpoint` must name one system or more, and none twice, got {sources}")
    pipelines = GlobalHydra.instance().config_loader().get_group_options("pipeline")
    kinds = [_kind(source, pipelines) for source in sources]
    return [Named(*entry) for entry in zip(short_names(sources), kinds, sources, strict=True)]


def short_names(sources: Sequence[str]) -> list[str]:
    """Name paths by as many of their last parts as tell them apart, without the endings of run files and checkpoints.

    Example:
        >>> short_names(["base", "runs/1", "more/1", "out/{dataset}.bm25.trec"])
        ['base', 'runs-1', 'more-1', 'bm25']
    """
    parts = [Path(source.replace(DATASET, "").rstrip("/")).parts for source in sources]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["-".join(_bare(part) for part in path[-count:]) for path in parts]
        if len(set(names)) == len(names):
            return names
    raise ValueError(f"`systems` must have different names, got {list(sources)}")


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
    data = choose_data(cfg, name, manifest)
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
        rows |= {one.name: [one] for one in _rank_pipelines(cfg, prepared, manifest, pipelines)}
    for one in named:
        if one.kind == "run":
            path = one.source.replace(DATASET, dataset.name)
            ranking = read_run_file(path, dataset, cfg.split, queries)
            rows[one.label] = [RankedSystem(one.label, "run", one.source, ranking)]
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
    trained_with = manifest["encoder"] if manifest else None
    encoder = cfg.encoder or (group_from_manifest(cfg, "encoder", trained_with) if trained_with else None)
    vectors = any(reads_vectors(one.manifest) for part in loaded.values() for one in part.values())
    if has_pipelines and encoder is None:
        encoder = compose_group(cfg, "encoder", "minilm")
    return prepare_dataset(
        data, encoder, _retriever(cfg, manifest), cfg.paths.cache, reads_vectors=vectors or has_pipelines
    )


def _retriever(cfg: DictConfig, manifest: Mapping[str, Any] | None) -> DictConfig:
    if cfg.retriever is not None:
        return cfg.retriever
    return (
        group_from_manifest(cfg, "retriever", manifest["retriever"])
        if manifest
        else compose_group(cfg, "retriever", "dense")
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
            pair_encoder = cfg.pair_encoder or group_from_manifest(cfg, "pair_encoder", manifest["pair_encoder"])
            layers = trained_layers({key: one.manifest["model"]["arguments"] for key, one in checkpoints.items()})
            part = with_pair_encoder(part, pair_encoder, cfg.paths.cache, last_layers=layers)
        for one in checkpoints.values():
            check_encoder(str(one.path), one.manifest, part)
        names = {system: label if len(checkpoints) == 1 else f"{label}-{system}" for system in checkpoints}
        models = {names[system]: one.model for system, one in checkpoints.items()}
        if place == len(loaded) - 1:
            models = {**frozen_grankers(part), **models}
        every = systems(models, **manifest["operators"], device=pick_device(cfg.device))
        chosen = every if place == len(loaded) - 1 else every[-len(models) :]
        result = judge(part, cfg.split, chosen, measures=UNUSED, queries=queries, retriever=build)
        trained = {names[system]: one for system, one in checkpoints.items()}
        found = ranked_rows(cfg, part, result, chosen, trained, queries=queries, source=sources[label])
        rows[label] = [row for row in found if row.kind == "checkpoint"]
        rows.setdefault("", []).extend(row for row in found if row.kind != "checkpoint")
    return rows


def _rank_pipelines(
    cfg: DictConfig, prepared: PreparedDataset, manifest: Mapping[str, Any] | None, names: Sequence[str]
) -> list[RankedSystem]:
    """Let pipelines retrieve; vector searches that name no retriever ask the one that gave the candidates."""
    if cfg.pair_encoder is not None:
        prepared = with_pair_encoder(prepared, cfg.pair_encoder, cfg.paths.cache)
    encoder = cfg.encoder or (
        group_from_manifest(cfg, "encoder", manifest["encoder"])
        if manifest and manifest["encoder"]
        else compose_group(cfg, "encoder", "minilm")
    )
    parts = {
        "retriever": instantiate(_retriever(cfg, manifest)),
        "pair_encoder": prepared.pair_encoder,
        "text_encoder": VectorCache(instantiate(encoder), Path(cfg.paths.cache) / "vectors"),
    }
    graph = prepared.dataset.graph.to(pick_device(cfg.device))
    pipelines = {name: instantiate(compose_group(cfg, "pipeline", name))(graph, **parts) for name in names}
    result = judge_pipelines(
        prepared, cfg.split, pipelines, measures=UNUSED, limit=cfg.num_queries, progress=True, alone=TIMED_ALONE
    )
    return ranked_pipelines(result)


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


def _kind(source: str, pipelines: Sequence[str]) -> str:
    if source in pipelines:
        return "pipeline"
    path = Path(source)
    if source.endswith(RUN_ENDINGS) or DATASET in source or (path.is_file() and path.suffix != ".ckpt"):
        return "run"
    return "checkpoint"


def _bare(part: str) -> str:
    for ending in (*RUN_ENDINGS[::-1], ".ckpt"):
        part = part.removesuffix(ending)
    return part.strip(".-_") or part


def _check_run_files(named: Sequence[Named], datasets: Sequence[str]) -> None:
    for one in named:
        if one.kind == "run" and DATASET not in one.source and len(datasets) > 1:
            raise ValueError(
                f"`systems`: the run file {one.source} is of one data set, `datasets` names {len(datasets)}; write its "
                f"path with {DATASET} in the place of the name"
            )


def _check_reranker(label: str, checkpoints: Mapping[str, Checkpoint]) -> None:
    for one in checkpoints.values():
        if "retriever" not in one.manifest:
            raise ValueError(f"`systems`: {label} is a {one.manifest['model']['name']}, no reranker")
