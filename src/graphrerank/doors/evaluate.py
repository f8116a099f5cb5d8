"""``python evaluate.py``: carry a checkpoint, or pipelines, to data sets and print a table of each."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from graphrerank.data import PreparedDataset, VectorCache
from graphrerank.doors.parts import (
    compose_group,
    data_group,
    frozen_grankers,
    group_from_manifest,
    pick_device,
    prepare_dataset,
    systems,
    trained_layers,
    with_pair_encoder,
)
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
from graphrerank.files import write_text
from graphrerank.models import load_checkpoints
from graphrerank.models.checkpoint import reads_vectors
from graphrerank.pipelines import Pipeline


def evaluate(cfg: DictConfig) -> Path:
    """Judge a checkpoint, or pipelines where they are chosen, on every data set named.

    Returns:
        The run folder, which is also the last line printed.

    Raises:
        ValueError: If no data set is named, both a checkpoint and a pipeline, or a checkpoint of no reranker.
    """
    datasets = dataset_names(cfg)
    if cfg.pipeline is not None or cfg.pipelines:
        return _evaluate_pipelines(cfg, datasets)
    run_dir = Path(cfg.paths.run_dir)
    checkpoints = load_checkpoints(cfg.checkpoint)
    manifest = next(reversed(checkpoints.values())).manifest
    if "retriever" not in manifest:
        raise ValueError(
            f"{cfg.checkpoint}: {manifest['model']['name']} is no reranker; pipeline=ea_graphrag "
            "pipeline.steps.0.adapter.checkpoint=RUN routes by it, experiment=ea_benchmark judges it"
        )
    trained_with = manifest["encoder"]  # None where nothing was encoded
    encoder = cfg.encoder or (group_from_manifest(cfg, "encoder", trained_with) if trained_with else None)
    vectors = any(reads_vectors(checkpoint.manifest) for checkpoint in checkpoints.values())
    retriever = cfg.retriever or group_from_manifest(cfg, "retriever", manifest["retriever"])
    trained_on_pairs = manifest.get("pair_encoder")  # None where the model reads none
    pair_encoder = None
    if trained_on_pairs:
        pair_encoder = cfg.pair_encoder or group_from_manifest(cfg, "pair_encoder", trained_on_pairs)
    results = []
    for name in datasets:
        data = _data_group(cfg, name, manifest)
        prepared = prepare_dataset(data, encoder, retriever, cfg.paths.cache, reads_vectors=vectors)
        prepared = prepared.with_features(manifest["retriever"]["feature_names"])
        if pair_encoder is not None:
            layers = trained_layers({key: loaded.manifest["model"]["arguments"] for key, loaded in checkpoints.items()})
            prepared = with_pair_encoder(prepared, pair_encoder, cfg.paths.cache, last_layers=layers)
        for checkpoint in checkpoints.values():
            _check_encoder(str(checkpoint.path), checkpoint.manifest, prepared)
        torch.set_num_threads(cfg.num_threads)
        models = {system: checkpoint.model for system, checkpoint in checkpoints.items()}
        models = {**frozen_grankers(prepared), **models}
        rows = systems(models, **manifest["operators"], device=pick_device(cfg.device))
        result = judge(prepared, cfg.split, rows)
        write_trec_runs(run_dir / "runs", result, prepared.dataset.graph)
        Console().print(results_table(result))
        results.append(result)
        write_metrics(run_dir / "metrics.json", results, peak_memory_mib=peak_memory_mib())
    print(run_dir, flush=True)
    return run_dir


def _evaluate_pipelines(cfg: DictConfig, datasets: Sequence[str]) -> Path:
    """Judge pipelines side by side: those named in ``pipelines``, and last the chosen one."""
    if not OmegaConf.is_missing(cfg, "checkpoint"):
        raise ValueError(
            f"`checkpoint` must not be given with a pipeline, which retrieves alone, got {cfg.checkpoint!r}"
        )
    run_dir = Path(cfg.paths.run_dir)
    groups = {name: compose_group(cfg, "pipeline", name) for name in cfg.pipelines}
    if cfg.pipeline is not None:
        chosen = str(HydraConfig.get().runtime.choices["pipeline"])
        groups = {name: group for name, group in groups.items() if name != chosen} | {chosen: cfg.pipeline}
    results = []
    for name in datasets:
        prepared, build = prepare_for_pipelines(cfg, name)
        pipelines = {system: build(group) for system, group in groups.items()}
        result = judge_pipelines(prepared, cfg.split, pipelines, limit=cfg.num_queries, progress=True)
        write_pipeline_runs(run_dir / "runs", result, prepared.dataset.graph)
        Console().print(pipelines_table(result))
        results.append(result)
        write_metrics(run_dir / "metrics.json", results, peak_memory_mib=peak_memory_mib())
        write_text(run_dir / "report.md", render_pipelines(results))
    print(run_dir, flush=True)
    return run_dir


def dataset_names(cfg: DictConfig) -> list[str]:
    """Name the data sets to judge on: the one that ``data=`` chose, else those of ``datasets``.

    Raises:
        ValueError: If there is none.
    """
    names = list(cfg.datasets) if cfg.data is None else [str(HydraConfig.get().runtime.choices["data"])]
    if not names:
        raise ValueError("`datasets` must name at least one file of conf/data, got []")
    return names


def prepare_for_pipelines(cfg: DictConfig, name: str) -> tuple[PreparedDataset, Callable[[DictConfig], Pipeline]]:
    """Make a data set ready.

    Returns:
        The data set, and what builds a pipeline over its graph, on the device, from a group of ``conf/pipeline``.
    """
    encoder = cfg.encoder or compose_group(cfg, "encoder", "minilm")
    retriever = cfg.retriever or compose_group(cfg, "retriever", "dense")
    prepared = prepare_dataset(_data_group(cfg, name, None), encoder, retriever, cfg.paths.cache)
    if cfg.pair_encoder is not None:
        prepared = with_pair_encoder(prepared, cfg.pair_encoder, cfg.paths.cache)
    torch.set_num_threads(cfg.num_threads)
    graph = prepared.dataset.graph.to(pick_device(cfg.device))
    parts = {
        "retriever": instantiate(retriever),
        "pair_encoder": prepared.pair_encoder,
        "text_encoder": VectorCache(instantiate(encoder), Path(cfg.paths.cache) / "vectors"),
    }
    return prepared, lambda group: instantiate(group)(graph, **parts)


def _data_group(cfg: DictConfig, name: str, manifest: Mapping[str, Any] | None) -> DictConfig:
    """Take the data set that ``data=`` chose, with its settings; else compose the one of a name.

    The one that a manifest says was trained on comes with its own settings, any other as :func:`data_group` gives it.
    """
    if cfg.data is not None:
        return cfg.data
    if manifest is not None and manifest["data"]["choice"] == name:
        return group_from_manifest(cfg, "data", manifest["data"])
    return data_group(cfg, name)


def _check_encoder(path: str, manifest: Mapping[str, Any], prepared: PreparedDataset) -> None:
    """Refuse vectors of another encoder than the model was trained on."""
    trained = manifest["encoder"]
    if reads_vectors(manifest) and prepared.encoder_fingerprint != trained["fingerprint"]:
        now = f"{prepared.encoder_name} ({str(prepared.encoder_fingerprint)[:12]})"
        raise ValueError(
            f"{path}: was trained on vectors of {trained['name']} ({trained['fingerprint'][:12]}), the encoder now is "
            f"{now}; only features=scores changes encoders"
        )
    if prepared.pair_encoder is not None:
        trained_on_pairs = manifest["pair_encoder"]
        if prepared.pair_encoder.fingerprint != trained_on_pairs["fingerprint"]:
            raise ValueError(
                f"{path}: was trained on vectors of the cross-encoder {trained_on_pairs['fingerprint'][:12]}, "
                f"`pair_encoder` now is {prepared.pair_encoder.fingerprint[:12]}"
            )
