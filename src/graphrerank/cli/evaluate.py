"""``python evaluate.py``: carry a checkpoint, pipelines, or any systems to data sets and print a table of each."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from graphrerank.cli.judging import judge_systems
from graphrerank.cli.session import Session
from graphrerank.cli.study import TIMED_ALONE, conclude, ranked_pipelines, ranked_rows, study_plan
from graphrerank.cli.systems import check_encoder, frozen_grankers, trained_layers
from graphrerank.evaluation import (
    judge,
    judge_pipelines,
    peak_memory_mib,
    pipelines_table,
    render_pipelines,
    results_table,
    write_metrics,
    write_pipeline_runs,
    write_trec_runs,
)
from graphrerank.evaluation.build_study import build_study
from graphrerank.evaluation.judge import MEASURES
from graphrerank.evaluation.judge_pipelines import PIPELINE_MEASURES, first_queries
from graphrerank.evaluation.measuring import MISSED, TOPOLOGICAL_RECALL
from graphrerank.models import load_checkpoints
from graphrerank.models.checkpoint import reads_vectors


def evaluate(session: Session) -> Path:
    """Judge a checkpoint on every data set named; or pipelines, or any systems, where they are chosen.

    Returns:
        The run folder.

    Raises:
        ValueError: If no data set is named, both a checkpoint and a pipeline, or a checkpoint of no reranker.
    """
    cfg = session.cfg
    if cfg.systems or (not OmegaConf.is_missing(cfg, "checkpoint") and OmegaConf.is_list(cfg.checkpoint)):
        return judge_systems(cfg)
    datasets = session.dataset_names()
    if cfg.pipeline is not None or cfg.pipelines:
        return _evaluate_pipelines(cfg, datasets)
    plan = study_plan(cfg, MEASURES)
    run_dir = Path(cfg.paths.run_dir)
    checkpoints = load_checkpoints(cfg.checkpoint)
    manifest = next(reversed(checkpoints.values())).manifest
    if "retriever" not in manifest:
        raise ValueError(
            f"{cfg.checkpoint}: {manifest['model']['name']} is no reranker; pipeline=ea_graphrag "
            "pipeline.steps.0.adapter.checkpoint=RUN routes by it, experiment=ea_benchmark judges it"
        )
    trained_with = manifest["encoder"]  # None where nothing was encoded
    encoder = cfg.encoder or (session.group_from_manifest("encoder", trained_with) if trained_with else None)
    vectors = any(reads_vectors(checkpoint.manifest) for checkpoint in checkpoints.values())
    retriever = cfg.retriever or session.group_from_manifest("retriever", manifest["retriever"])
    trained_on_pairs = manifest.get("pair_encoder")  # None where the model reads none
    pair_encoder = None
    if trained_on_pairs:
        pair_encoder = cfg.pair_encoder or session.group_from_manifest("pair_encoder", trained_on_pairs)
    results, studies = [], []
    for name in datasets:
        data = session.data(name, manifest)
        prepared = session.prepare(data, encoder, retriever, reads_vectors=vectors)
        prepared = prepared.with_features(manifest["retriever"]["feature_names"])
        if pair_encoder is not None:
            layers = trained_layers({key: loaded.manifest["model"]["arguments"] for key, loaded in checkpoints.items()})
            prepared = session.with_pair_encoder(prepared, pair_encoder, last_layers=layers)
        for checkpoint in checkpoints.values():
            check_encoder(str(checkpoint.path), checkpoint.manifest, prepared)
        torch.set_num_threads(cfg.num_threads)
        models = {system: checkpoint.model for system, checkpoint in checkpoints.items()}
        models = {**frozen_grankers(prepared), **models}
        rows = session.systems(models, manifest["operators"])
        result = judge(prepared, cfg.split, rows, retriever=instantiate(retriever)(prepared.dataset.graph))
        write_trec_runs(run_dir / "runs", result, prepared.dataset.graph)
        Console().print(results_table(result))
        results.append(result)
        queries = prepared.dataset.split(cfg.split).queries
        ranked = ranked_rows(cfg, prepared, result, rows, checkpoints, queries=queries, source=str(cfg.checkpoint))
        candidates = prepared.ranking.nodes[queries]
        study = build_study(prepared.dataset, cfg.split, queries, ranked, plan, candidates=candidates)
        studies.append(
            replace(study, candidates=result.top_k, ceiling=result.ceiling, base_ceiling=result.base_ceiling)
        )
        write_metrics(run_dir / "metrics.json", results, peak_memory_mib=peak_memory_mib())
        conclude(cfg, studies)
    return run_dir


def _evaluate_pipelines(cfg: DictConfig, datasets: Sequence[str]) -> Path:
    """Judge pipelines side by side: those named in ``pipelines``, and last the chosen one."""
    if not OmegaConf.is_missing(cfg, "checkpoint"):
        raise ValueError(
            f"`checkpoint` must not be given with a pipeline, which retrieves alone, got {cfg.checkpoint!r}"
        )
    run_dir = Path(cfg.paths.run_dir)
    session = Session(cfg)
    groups = {name: session.group("pipeline", name) for name in cfg.pipelines}
    if cfg.pipeline is not None:
        chosen = session.choice("pipeline")
        groups = {name: group for name, group in groups.items() if name != chosen} | {chosen: cfg.pipeline}
    results, studies = [], []
    plan = study_plan(cfg, (*PIPELINE_MEASURES, TOPOLOGICAL_RECALL, MISSED))
    for name in datasets:
        prepared, build = session.prepare_for_pipelines(
            session.data(name), retriever=cfg.retriever, pair_encoder=cfg.pair_encoder
        )
        pipelines = {system: build(group) for system, group in groups.items()}
        result = judge_pipelines(
            prepared, cfg.split, pipelines, limit=cfg.num_queries, progress=True, alone=TIMED_ALONE
        )
        write_pipeline_runs(run_dir / "runs", result, prepared.dataset.graph)
        Console().print(pipelines_table(result))
        results.append(result)
        write_metrics(run_dir / "metrics.json", results, peak_memory_mib=peak_memory_mib())
        queries = first_queries(prepared.dataset, cfg.split, cfg.num_queries)
        studies.append(build_study(prepared.dataset, cfg.split, queries, ranked_pipelines(result), plan))
        conclude(cfg, studies, before=render_pipelines(results) + "\n")
    return run_dir
