"""``python train.py``: train a reranker and its ablations, and evaluate them with the frozen systems."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from graphrerank.cli.compose import portable_config
from graphrerank.cli.jobs import run_job
from graphrerank.cli.joint_training import joint_training
from graphrerank.cli.ray_training import is_for_ray, train_on_ray
from graphrerank.cli.schema import TrainConfig
from graphrerank.cli.session import Session
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.cost import peak_memory_mib
from graphrerank.evaluation.dataset_result import measure_systems
from graphrerank.evaluation.measuring import RERANKER_MEASURES, EvaluationPlan, judged_queries
from graphrerank.evaluation.records import RETRIEVER, DatasetResult
from graphrerank.evaluation.rerankers import reranking_systems, tune_restart_probs, with_frozen
from graphrerank.evaluation.reranking import run_reranker
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.run_files import write_runs
from graphrerank.evaluation.systems import RankedDataset, System
from graphrerank.files import sole_use, write_json, write_text
from graphrerank.fitting.fit import feature_plan, fit, run_folder
from graphrerank.fitting.training import FitSettings, check_resumed, declared_inputs
from graphrerank.fitting.training_data import TrainingData, prepare_training
from graphrerank.graphs.model_inputs import QUERIES
from graphrerank.inference.graph_reranker import GraphReranker
from graphrerank.models.manifest import write_manifest
from graphrerank.parts import Part, Parts
from graphrerank.processes import is_first_process

FROZEN = (RETRIEVER, "ppr", "gcs", "cross_encoder", "granker")  # rows without training


def run(cfg: DictConfig) -> Path | None:
    """Run the job of ``conf/train.yaml``, on the workers of Ray where its trainer is Ray's."""
    if is_for_ray(cfg):
        return train_on_ray(cfg)
    return run_job(cfg, TrainConfig)


def train(session: Session) -> Path:
    """Train the model and its ablations, evaluate them, and return the run folder."""
    cfg = session.cfg
    resumed = cfg.ckpt_path is not None
    run_dir = run_folder(cfg.ckpt_path) if resumed else Path(cfg.paths.run_dir)
    with sole_use(run_dir) if resumed and is_first_process() else nullcontext():
        return _train(cfg, run_dir, session)


def _train(cfg: DictConfig, run_dir: Path, session: Session) -> Path:
    tracking, settings = session.tracking, fit_settings(cfg)
    rows = {name: row_config(cfg, name, changes, run_dir) for name, changes in row_changes(cfg).items()}
    parts = Parts(
        paths=dict(cfg.paths),
        device=cfg.device,
        num_threads=cfg.num_threads,
        seed=cfg.seed,
        on_dataset=tracking.reads_data,
    )
    data = training_data(cfg, parts, settings, [Part(row.model) for row in rows.values()], run_dir)
    torch.set_num_threads(parts.num_threads)
    given = {name: cfg.operator[name].restart_prob for name in ("gcs", "ppr")}
    restart_probs = tune_restart_probs(data.first, data.val_split, given)
    rerankers: dict[str, GraphReranker] = {}
    with joint_training():
        for count, (name, row) in enumerate(rows.items(), 1):
            print(f"training {name} ({count} of {len(rows)})", flush=True)
            rerankers[name] = fit(
                data,
                model=Part(row.model),
                loss=Part(row.loss),
                module=_resolved(row.module),
                trainer=_resolved(row.trainer),
                callbacks=_resolved(row.callbacks),
                logger=tracking.open(row),
                restart_probs=restart_probs,
                run_dir=run_dir,
                name=name,
                resume=cfg.ckpt_path,
                parts=parts,
                config=portable_config(row),
                settings=settings,
            )
    if not is_first_process():
        return run_dir
    models = {name: reranker.checkpoint.model for name, reranker in rerankers.items()}
    scorers = [System(name, parts.build("scorer", name).score) for name in cfg.scorers]
    systems = reranking_systems(with_frozen(models, data.first), restart_probs, device=parts.device, scorers=scorers)
    judged = judge(data.first, cfg.test_split, systems)
    for name, reranker in rerankers.items():
        metrics = {f"{judged.name}/{judged.split}": judged.systems[name].means}
        content = reranker.checkpoint.manifest.content
        write_manifest(run_dir / name, {**content, "metrics": metrics, "primary": name == cfg.system})
    counts = parts.encoder_counts
    result = EvaluationResult(session.command, {judged.name: judged}, (), {"ties": "own"}, encoder_counts=counts)
    write_json(run_dir / "metrics.json", result.metrics())
    write_runs(run_dir / "runs", judged)
    write_text(run_dir / "report.md", result.markdown())
    result.show()
    print(f"peak memory {peak_memory_mib() / 1024:.2f} GiB")
    return run_dir


def row_changes(cfg: DictConfig) -> dict[str, Mapping[str, Any]]:
    """Return the models to train by name, with their changes of the model's settings; the primary one last.

    Raises:
        ValueError: If ``system`` is the name of another row.
    """
    rows: dict[str, Mapping[str, Any]] = {}
    for name, changes in cfg.ablations.items():
        unknown = [key for key in changes or () if key not in cfg.model]
        if unknown:
            print(f"no row {name}: the model has no setting {unknown[0]}")
        elif changes is not None:
            rows[str(name)] = changes
    if cfg.system in (*FROZEN, *rows):
        raise ValueError(
            f"`system` names the trained model, so it must not be one of {[*FROZEN, *rows]}, got {cfg.system!r}"
        )
    return {**rows, str(cfg.system): {}}


def row_config(cfg: DictConfig, name: str, changes: Mapping[str, Any], run_dir: Path) -> DictConfig:
    """Return the configuration of one model of a run: under its name, with its changes of the model's settings."""
    row = deepcopy(cfg)
    row.system, row.paths.run_dir = name, str(run_dir)
    OmegaConf.set_struct(row.model, True)
    row.model = OmegaConf.merge(row.model, changes)
    return row


def fit_settings(cfg: DictConfig) -> FitSettings:
    """Return the settings of a training beyond its parts."""
    return FitSettings(
        seed=cfg.seed,
        batch_size=cfg.batches.batch_size,
        buffer=cfg.batches.buffer,
        shares=None if cfg.shares is None else _resolved(cfg.shares),
        augmentation=_resolved(cfg.augmentation),
        start=cfg.start,
        train_only=cfg.train_only,
        calibration=cfg.calibration,
    )


def training_data(
    cfg: DictConfig, parts: Parts, settings: FitSettings, models: Sequence[Part], run_dir: Path
) -> TrainingData:
    """Prepare ``data`` and the data sets of ``mix``, for all models of a run."""
    choices = HydraConfig.get().runtime.choices
    inputs = [declared_inputs(model) for model in models]
    if any(declared == QUERIES for declared in inputs):
        model = choices["model"]
        raise ValueError(f"`model` must score candidates, {model} scores queries; experiment={model} trains it")
    first = str(choices["data"])
    data = {first: Part(cfg.data, first)}
    for name, entry in (cfg.mix or {}).items():
        if name == first:
            raise ValueError(f"`mix` must name data sets beside `data`, got {first!r}, which `data` is")
        changes = dict(entry or {})
        data[str(name)] = parts.part("data", str(changes.pop("data", name)), **changes)
    retriever = Part(cfg.retriever, str(choices["retriever"]))
    if cfg.ckpt_path is not None:
        check_resumed(run_dir, data, retriever)
    return prepare_training(
        parts,
        data,
        retriever=retriever,
        encoder=None if cfg.encoder is None else Part(cfg.encoder, str(choices["encoder"])),
        pair_encoder=None if cfg.pair_encoder is None else Part(cfg.pair_encoder, str(choices["pair_encoder"])),
        plan=feature_plan(cfg.features, settings, _resolved(cfg.cross_encoder_queries)),
        reads_vectors=any(declared.reads_vectors for declared in inputs),
        reads_pairs=any(declared.reads_pairs for declared in inputs),
        train_split=cfg.batches.train_split,
        val_split=cfg.batches.val_split,
        table_split=cfg.test_split,
        buffer=cfg.batches.buffer,
    )


def judge(prepared: PreparedDataset, split: str, systems: Sequence[System]) -> DatasetResult:
    """Evaluate rerankers on a split as ``evaluate.py`` does; the last is compared with the others."""
    queries = judged_queries(prepared.dataset, split)
    ranked = [run_reranker(prepared, queries, system) for system in systems]
    candidates = prepared.ranking.select(queries)
    return measure_systems(
        RankedDataset(prepared.dataset, split, queries, ranked, candidates), EvaluationPlan(RERANKER_MEASURES)
    )


def _resolved(node: Any) -> Any:
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
