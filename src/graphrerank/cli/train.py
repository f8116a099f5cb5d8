"""``python train.py``: train a reranker and its ablations, judge them beside the frozen systems, leave a run folder."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from lightning.pytorch.loggers import Logger, WandbLogger
from rich.console import Console

from graphrerank.cli.calibration import calibrate_system
from graphrerank.cli.systems import frozen_grankers, trained_layers
from graphrerank.cli.train_model import CHECKPOINT, train_model
from graphrerank.cli.training_session import TrainingSession
from graphrerank.evaluation import (
    DatasetResult,
    judge,
    peak_memory_mib,
    results_table,
    table_rows,
    write_metrics,
    write_trec_runs,
)
from graphrerank.evaluation.report import HEADER
from graphrerank.models.checkpoint import MANIFEST, load_checkpoint, write_manifest
from graphrerank.training import calibration_method


def train(session: TrainingSession) -> Path:
    """Train the model and its ablations, judge them, and return the run folder."""
    cfg = session.cfg
    if cfg.calibration is not None:
        calibration_method(cfg.calibration)  # refused before training, not after
    run_dir = session.training_folder()
    names = [*cfg.ablations, cfg.system]
    rows_of = {name: session.ablation(name, run_dir) for name in names}
    models = {name: row.cfg.model for name, row in rows_of.items()}
    pairs = "train_last_layers" in cfg.model
    reads_vectors = not pairs and any(instantiate(model).uses_vectors for model in models.values())
    parts = {name: session.dataset(name, reads_vectors=reads_vectors) for name in session.training_names}
    if pairs:
        layers = trained_layers(models)
        parts = {
            name: session.with_pair_encoder(part, cfg.pair_encoder, last_layers=layers) for name, part in parts.items()
        }
    prepared = next(iter(parts.values()))
    torch.set_num_threads(session.num_threads)
    operators = session.tune_operators(prepared, cfg.batches.val_split)

    manifests: dict[str, dict[str, Any]] = {}
    with ExitStack() as opened:
        loggers: Sequence[Logger] = []
        for number, (name, row) in enumerate(rows_of.items(), 1):
            print(f"training {name} ({number} of {len(names)})", flush=True)
            opened.close()
            loggers = opened.enter_context(row.loggers())
            manifests[name] = train_model(row.cfg, parts, operators, loggers)

        trained = {name: load_checkpoint(run_dir / name / CHECKPOINT).model for name in names}
        rows = session.systems({**frozen_grankers(prepared), **trained}, operators)
        result = judge(prepared, cfg.test_split, rows)
        for system in rows:
            if system.name not in manifests:
                continue
            manifest = manifests[system.name]
            if cfg.calibration is not None:
                manifest["calibration"] = calibrate_system(cfg.calibration, parts, cfg.batches.val_split, system)
            measures = dict(result.systems[system.name].measures)
            metrics = {f"{result.dataset}/{result.split}": measures}
            write_manifest(run_dir / system.name, manifest | {"metrics": metrics})
        write_metrics(run_dir / "metrics.json", [result], peak_memory_mib=peak_memory_mib())
        write_trec_runs(run_dir / "runs", result, prepared.dataset.graph)
        _log_results(loggers, result, run_dir / cfg.system)
    Console().print(results_table(result))
    print(f"peak memory {peak_memory_mib() / 1024:.2f} GiB")
    return run_dir


def _log_results(loggers: Sequence[Logger], result: DatasetResult, folder: Path) -> None:
    """Send the final table, and where the logger keeps files the checkpoint, to every logger."""
    for logger in loggers:
        measures = {
            f"test/{name}/{measure.lower()}": number
            for name, system in result.systems.items()
            for measure, number in system.measures.items()
        }
        logger.log_metrics(measures)
        if isinstance(logger, WandbLogger):
            logger.log_table("test/results", columns=list(HEADER), data=table_rows(result))
            _log_artifact(logger, folder)


def _log_artifact(logger: WandbLogger, folder: Path) -> None:
    import wandb

    artifact = wandb.Artifact(folder.name, type="model")
    artifact.add_file(str(folder / CHECKPOINT), name=CHECKPOINT.as_posix())
    artifact.add_file(str(folder / MANIFEST))
    logger.experiment.log_artifact(artifact)
