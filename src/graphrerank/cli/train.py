"""``python train.py``: train a reranker and its ablations, and evaluate them with the baselines."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from graphrerank.cli.command import NONE, Command, portable_config
from graphrerank.cli.jobs import run_job
from graphrerank.cli.joint_training import joint_training
from graphrerank.cli.training_run import model_config, resolved, training_folder
from graphrerank.config.components import ConfiguredComponent
from graphrerank.core.model_inputs import QUERIES
from graphrerank.evaluation.baselines import BASELINES
from graphrerank.evaluation.evaluate import evaluate
from graphrerank.evaluation.measuring import RERANKER_MEASURES
from graphrerank.evaluation.memory import peak_memory_mib
from graphrerank.models.manifest import write_manifest
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.training.fit import fit
from graphrerank.training.training_data import FitSettings, TrainingData, declared_inputs, prepare_training
from graphrerank.utils.checks import UserError
from graphrerank.utils.processes import is_first_process


def run(cfg: DictConfig) -> Path | None:
    """Run the job of ``conf/train.yaml``."""
    return run_job(cfg, "train")


def train(command: Command) -> Path:
    """Train the model and its ablations, evaluate them, and return the run folder."""
    with training_folder(command) as run_dir:
        rerankers, data = fit_rows(command, run_dir)
        if is_first_process():
            evaluate_rows(command, rerankers, data, run_dir)
    return run_dir


def fit_rows(command: Command, run_dir: Path) -> tuple[dict[str, GraphReranker], TrainingData]:
    """Train every row's model on the same data; return them by name, and the data."""
    cfg, parts, settings = command.cfg, command.parts, fit_settings(command.cfg)
    rows = {}
    for name, changes in row_changes(cfg).items():
        row = rows[name] = model_config(cfg, run_dir, name)
        OmegaConf.set_struct(row.model, True)
        row.model = OmegaConf.merge(row.model, changes)
    data = training_data(command, settings, [ConfiguredComponent(row.model) for row in rows.values()])
    given = {name: cfg.operator[name].restart_prob for name in ("gcs", "ppr")}
    rerankers: dict[str, GraphReranker] = {}
    with joint_training():
        for count, (name, row) in enumerate(rows.items(), 1):
            print(f"training {name} ({count} of {len(rows)})", flush=True)
            rerankers[name] = fit(
                data,
                model=ConfiguredComponent(row.model),
                loss=ConfiguredComponent(row.loss),
                module=resolved(row.module),
                trainer=resolved(row.trainer),
                callbacks=resolved(row.callbacks),
                logger=command.tracking.open(row),
                restart_probs=given,
                run_dir=run_dir,
                name=name,
                resume=cfg.ckpt_path,
                parts=parts,
                config=portable_config(row),
                settings=settings,
            )
            if is_first_process():
                given = dict(rerankers[name].checkpoint.reranker.operators)  # chosen once
    return rerankers, data


def evaluate_rows(command: Command, rerankers: Mapping[str, GraphReranker], data: TrainingData, run_dir: Path) -> None:
    """Evaluate trained models as ``evaluate.py`` does, and write the measures into their manifests."""
    cfg = command.cfg
    reads_pairs = any(reranker.inputs.reads_pairs for reranker in rerankers.values())
    result = evaluate(
        rerankers,
        data.first,
        split=cfg.test_split,
        retriever=data.retriever,
        encoder=NONE if data.encoder is None else data.encoder,
        pair_encoder=data.pair_encoder if reads_pairs else None,
        scorers=list(cfg.scorers),
        measures=RERANKER_MEASURES,
        edge_ablations=(),
        run_dir=run_dir,
        parts=command.parts,
        command=command.line,
        config=command.config,
    )
    (dataset,) = result.datasets.values()
    for name, reranker in rerankers.items():
        metrics = {f"{dataset.name}/{dataset.split}": dataset.systems[name].means}
        command.tracking.log_test(run_dir / name, dataset.name, dataset.systems[name].means)
        content = reranker.checkpoint.manifest.content
        write_manifest(run_dir / name, {**content, "metrics": metrics, "primary": name == cfg.system})
    print(f"peak memory {peak_memory_mib() / 1024:.2f} GiB")


def row_changes(cfg: DictConfig) -> dict[str, Mapping[str, Any]]:
    """Return the models to train by name, with their changes of the model's settings; the primary one last."""
    rows: dict[str, Mapping[str, Any]] = {}
    for name, changes in cfg.ablations.items():
        if unknown := [key for key in changes or () if key not in cfg.model]:
            print(f"no row {name}: the model has no setting {unknown[0]}")
        elif changes is not None:
            rows[str(name)] = changes
    if cfg.system in (*BASELINES, *rows):
        raise UserError(
            f"`system` names the trained model, so it must not be one of {[*BASELINES, *rows]}, got {cfg.system!r}"
        )
    return {**rows, str(cfg.system): {}}


def fit_settings(cfg: DictConfig) -> FitSettings:
    """Return the settings of a training beyond its parts."""
    batches = {name: setting for name, setting in cfg.batches.items() if name != "seed"}
    further = ("shares", "augmentation", "cross_encoder_queries", "num_queries", "start", "train_only", "calibration")
    return FitSettings(seed=cfg.seed, **batches, **{name: resolved(cfg[name]) for name in further})


def training_data(command: Command, settings: FitSettings, models: Sequence[ConfiguredComponent]) -> TrainingData:
    """Prepare ``data`` and the data sets of ``mix``, for all models of a run."""
    cfg, parts = command.cfg, command.parts
    if any(declared_inputs(model) == QUERIES for model in models):
        choice = command.choice("model")
        raise UserError(f"`model` must score candidates, {choice} scores queries; experiment={choice} trains it")
    first = command.choice("data")
    data: dict[str, ConfiguredComponent] = {first: ConfiguredComponent(cfg.data, first)}
    for name, entry in (cfg.mix or {}).items():
        if name == first:
            raise UserError(f"`mix` must name other data sets than `data`, got {first!r}, which `data` is")
        changes = dict(entry or {})
        data[str(name)] = parts.component("data", str(changes.pop("data", name)), **changes)
    return prepare_training(
        parts,
        data,
        models,
        retriever=ConfiguredComponent(cfg.retriever, command.choice("retriever")),
        encoder=command.chosen("encoder"),
        pair_encoder=command.chosen("pair_encoder"),
        features=cfg.features,
        settings=settings,
        table_split=cfg.test_split,
    )
