"""``python train.py``: train the reranker and its ablations, judge them, leave a run folder behind."""

import logging
import warnings
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import lightning as L
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from lightning.pytorch.loggers import Logger, WandbLogger
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from graphrerank.cli.calibration import calibrate_system
from graphrerank.cli.compose import compose_group, plain_arguments, portable_arguments, portable_config
from graphrerank.cli.session import Session
from graphrerank.cli.systems import frozen_grankers, own_encoder, trained_layers
from graphrerank.data import PreparedDataset
from graphrerank.data.augmentation import CandidateAugmentation
from graphrerank.data.datamodule import CandidateDataModule, MixtureDataModule
from graphrerank.data.text_match import MATCH_FEATURES
from graphrerank.evaluation import (
    DatasetResult,
    judge,
    peak_memory_mib,
    results_table,
    table_rows,
    tune_restart_prob,
    write_metrics,
    write_trec_runs,
)
from graphrerank.evaluation.report import HEADER
from graphrerank.models import GRankerHead
from graphrerank.models.checkpoint import (
    MANIFEST,
    library_versions,
    load_checkpoint,
    model_name,
    read_manifest,
    write_manifest,
)
from graphrerank.models.granker_head import head_arguments
from graphrerank.models.granker_layers import GRankerLayers
from graphrerank.operators import GCS, PPR, CrossEncoder
from graphrerank.training import calibration_method

MEASURED = ("num_scores", "embedding_dim", "hidden_size", "activation", "norm_eps", "encoder")  # of a model: not set
FINE_TUNED = "cross_encoder"  # folder of a system whose cross-encoder's last layers were trained


def train(cfg: DictConfig) -> Path:
    """Run the whole job and return the run folder, which is also the last line printed."""
    be_quiet()
    if cfg.calibration is not None:
        calibration_method(cfg.calibration)  # refused before training, not after
    session, run_dir = Session(cfg), _run_folder(cfg)
    names = [*cfg.ablations, cfg.system]
    models = {name: _job_of(cfg, name, run_dir).model for name in names}
    pairs = "train_last_layers" in cfg.model
    parts = prepare_parts(
        cfg, reads_vectors=not pairs and any(instantiate(model).uses_vectors for model in models.values())
    )
    if pairs:
        layers = trained_layers(models)
        parts = {
            name: session.with_pair_encoder(part, cfg.pair_encoder, last_layers=layers) for name, part in parts.items()
        }
    prepared = next(iter(parts.values()))
    torch.set_num_threads(cfg.num_threads)
    operators = tune_operators(cfg, prepared)

    manifests: dict[str, dict[str, Any]] = {}
    loggers: list[Logger] = []
    for number, name in enumerate(names, 1):
        print(f"training {name} ({number} of {len(names)})", flush=True)
        finish_loggers(loggers)
        job = _job_of(cfg, name, run_dir)
        loggers = [instantiate(logger) for logger in (job.logger or {}).values()]
        manifests[name] = train_one(job, parts, operators, loggers)

    trained = {name: load_checkpoint(run_dir / name / "checkpoints" / "best.ckpt").model for name in names}
    rows = session.systems({**frozen_grankers(prepared), **trained}, operators)
    result = judge(prepared, cfg.test_split, rows)
    for row in rows:
        if row.name not in manifests:
            continue
        manifest = manifests[row.name]
        if cfg.calibration is not None:
            manifest["calibration"] = calibrate_system(cfg.calibration, parts, cfg.batches.val_split, row)
        measures = dict(result.systems[row.name].measures)
        write_manifest(run_dir / row.name, manifest | {"metrics": {f"{result.dataset}/{result.split}": measures}})
    write_metrics(run_dir / "metrics.json", [result], peak_memory_mib=peak_memory_mib())
    write_trec_runs(run_dir / "runs", result, prepared.dataset.graph)
    _log_results(loggers, result, run_dir / cfg.system)
    finish_loggers(loggers)
    Console().print(results_table(result))
    print(f"peak memory {peak_memory_mib() / 1024:.2f} GiB")
    print(run_dir, flush=True)
    return run_dir


def be_quiet() -> None:
    """Keep Lightning from telling what nobody asked."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)  # within Lightning


def prepare_parts(cfg: DictConfig, *, reads_vectors: bool) -> dict[str, PreparedDataset]:
    """Load, encode and rank ``data``, which comes first, and the data sets that are mixed in, by name."""
    session = Session(cfg)
    groups = {session.choice("data"): cfg.data}
    for name, entry in (cfg.mix or {}).items():
        if name in groups:
            raise ValueError(f"`mix` must name data sets beside `data`, got {name!r}, which `data` is")
        arguments = dict(entry or {})
        groups[name] = compose_group(cfg, "data", str(arguments.pop("data", name)), **arguments)
    parts = {}
    for name, group in groups.items():
        part = session.prepare(group, cfg.encoder, cfg.retriever, reads_vectors=reads_vectors)
        if cfg.features.text_match:
            part = part.with_features([*part.feature_names, *MATCH_FEATURES])
        parts[str(name)] = part
    return parts


def _batches(job: DictConfig, parts: Mapping[str, PreparedDataset], *, vectors: bool) -> L.LightningDataModule:
    """Serve one data set as it is, or several, or what augmentation makes of them."""
    augmentation = plain_arguments(job.augmentation)
    if len(parts) == 1 and not any(augmentation.values()):
        return CandidateDataModule(next(iter(parts.values())), vectors=vectors, **job.batches)
    names = next(iter(parts.values())).feature_names
    return MixtureDataModule(
        parts,
        shares=None if job.shares is None else dict(job.shares),
        vectors=vectors,
        augmentation=CandidateAugmentation(names, **augmentation) if any(augmentation.values()) else None,
        **job.batches,
    )


def _run_folder(cfg: DictConfig) -> Path:
    """Choose the run folder: a new one, or on a resume the one that is resumed."""
    if cfg.ckpt_path is None:
        return Path(cfg.paths.run_dir)
    path = Path(cfg.ckpt_path)
    if not path.exists():
        raise ValueError(
            f"`ckpt_path` must be a run folder or a .ckpt file in one, got {cfg.ckpt_path!r}: no such path"
        )
    run_dir = path if path.is_dir() else path.parent.parent.parent
    if not any(run_dir.glob(f"*/{MANIFEST}")):
        raise ValueError(
            f"`ckpt_path` must lie in a run folder of train.py, but {run_dir} holds no <system>/{MANIFEST}"
        )
    return run_dir


def _job_of(cfg: DictConfig, name: str, run_dir: Path) -> DictConfig:
    """Return the configuration of one row: the same job under another name, with the ablation's model settings."""
    job = deepcopy(cfg)
    job.system = name
    job.paths.run_dir = str(run_dir)
    overrides = cfg.ablations.get(name, {})
    OmegaConf.set_struct(job.model, True)
    job.model = OmegaConf.merge(job.model, overrides)
    return job


def tune_operators(cfg: DictConfig, prepared: PreparedDataset) -> dict[str, float]:
    """Take each frozen operator's restart probability from the configuration, or from the validation split."""
    build = {"gcs": lambda p: GCS(restart_prob=p).score, "ppr": lambda p: PPR(restart_prob=p).score}
    return {
        name: cfg.operator[name].restart_prob or tune_restart_prob(prepared, cfg.batches.val_split, build[name])
        for name in ("gcs", "ppr")
    }


def train_one(
    job: DictConfig, parts: Mapping[str, PreparedDataset], operators: Mapping[str, float], loggers: list[Logger]
) -> dict[str, Any]:
    """Train one model, or go on where it stopped; its best checkpoint lies in ``<run>/<system>/checkpoints``."""
    folder = Path(job.paths.run_dir) / job.system
    manifest = _manifest(job, parts, operators)
    last = _resume_from(job, folder, manifest)
    if last is not None and (before := read_manifest(folder)).get("finished"):
        return manifest | {key: before[key] for key in ("finished", "fine_tuned") if key in before}
    write_manifest(folder, manifest)
    arguments = manifest["model"]["arguments"]
    L.seed_everything(job.seed, verbose=False)  # here: what was trained or resumed before must not decide the weights
    model = instantiate(job.model, **{name: arguments[name] for name in MEASURED if name in arguments})
    if isinstance(model, GRankerHead):
        model.start_from(own_encoder(next(iter(parts.values()))).classification_head)
    elif isinstance(model, GRankerLayers):
        model.start_from(own_encoder(next(iter(parts.values()))))
    module = instantiate(job.module, model, instantiate(job.loss), val_names=list(parts) if len(parts) > 1 else [])
    batches = _batches(job, parts, vectors=model.uses_vectors)
    callbacks = {name: instantiate(callback) for name, callback in job.callbacks.items()}
    trainer = instantiate(job.trainer, callbacks=list(callbacks.values()), logger=loggers)
    for logger in loggers:
        logger.log_hyperparams(manifest)
    trainer.fit(module, datamodule=batches, ckpt_path=last, weights_only=True)
    best = folder / "checkpoints" / "best.ckpt"
    if not best.is_file():  # fast_dev_run, or validation switched off: what there is at the end is the best there is
        trainer.save_checkpoint(best)
    if isinstance(model, GRankerLayers):
        manifest["fine_tuned"] = _save_fine_tuned(best, next(iter(parts.values())))
    manifest["finished"] = True
    write_manifest(folder, manifest)
    return manifest


def _save_fine_tuned(best: Path, prepared: PreparedDataset) -> dict[str, str]:
    """Write the cross-encoder with the layers and head of a checkpoint beside the folder of checkpoints."""
    model = load_checkpoint(best).model
    assert isinstance(model, GRankerLayers)
    start, folder = own_encoder(prepared), best.parent.parent / FINE_TUNED
    start.save_trained(folder, model.layers, model.granker.head)
    fingerprint = CrossEncoder(folder, max_length=start.max_length, dtype=start.dtype).fingerprint
    return {"folder": FINE_TUNED, "fingerprint": fingerprint}


def _resume_from(job: DictConfig, folder: Path, manifest: Mapping[str, Any]) -> Path | None:
    """Find the checkpoint to go on from, and refuse one of another job."""
    if job.ckpt_path is None:
        return None
    named = Path(job.ckpt_path)
    last = named if named.is_file() and named.parent.parent == folder else folder / "checkpoints" / "last.ckpt"
    if not last.is_file():
        return None
    before = read_manifest(folder)
    for key in ("model", "features", "encoder", "pair_encoder", "retriever", "data", "mix"):
        if before.get(key) != manifest[key]:
            raise ValueError(f"{last}: was trained with {key}={before.get(key)}, this job asks for {manifest[key]}")
    return last


def _manifest(job: DictConfig, parts: Mapping[str, PreparedDataset], operators: Mapping[str, float]) -> dict[str, Any]:
    prepared = next(iter(parts.values()))
    choices = HydraConfig.get().runtime.choices
    embedding = prepared.dataset.graph.embedding
    encoder = pair_encoder = None
    arguments = plain_arguments(job.model)
    if prepared.pair_encoder is not None:
        encoder_of_pairs = own_encoder(prepared)
        arguments |= head_arguments(encoder_of_pairs.classification_head)
        if arguments["train_last_layers"]:
            arguments["encoder"] = encoder_of_pairs.layer_settings
        else:
            del arguments["train_last_layers"]
        pair_encoder = {
            "choice": choices["pair_encoder"],
            "arguments": portable_arguments(job.pair_encoder),
            "fingerprint": prepared.pair_encoder.fingerprint,
            "dim": prepared.pair_encoder.hidden_size,
        }
    else:
        arguments["num_scores"] = len(prepared.feature_names)
        if embedding is not None:
            arguments["embedding_dim"] = embedding.shape[1]
    if embedding is not None:
        encoder = {
            "choice": choices["encoder"],
            "arguments": plain_arguments(job.encoder),
            "name": prepared.encoder_name,
            "fingerprint": prepared.encoder_fingerprint,
            "dim": embedding.shape[1],
        }
    model = instantiate(job.model, **arguments)
    return {
        "name": job.system,
        "finished": False,
        "model": {"name": model_name(type(model)), "arguments": arguments},
        "features": model.feature_names(prepared.feature_names),
        "encoder": encoder,
        "pair_encoder": pair_encoder,
        "retriever": {
            "choice": choices["retriever"],
            "arguments": plain_arguments(job.retriever),
            "feature_names": list(prepared.feature_names),
        },
        "candidate_depth": prepared.top_k,
        "data": {
            "choice": choices["data"],
            "arguments": portable_arguments(job.data),
            "fingerprint": prepared.dataset.fingerprint,
        },
        "mix": {
            name: {"arguments": entry or {}, "fingerprint": parts[str(name)].dataset.fingerprint}
            for name, entry in (plain_arguments(job.mix) if job.mix else {}).items()
        },
        "operators": dict(operators),
        "config": portable_config(job),
        "versions": library_versions(),
        "metrics": {},
    }


def _log_results(loggers: list[Logger], result: DatasetResult, folder: Path) -> None:
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
    artifact.add_file(str(folder / "checkpoints" / "best.ckpt"), name="checkpoints/best.ckpt")
    artifact.add_file(str(folder / MANIFEST))
    logger.experiment.log_artifact(artifact)


def finish_loggers(loggers: list[Logger]) -> None:
    """Close loggers, so that the next model gets a W&B run of its own."""
    for logger in loggers:
        logger.finalize("success")
        if isinstance(logger, WandbLogger):
            logger.experiment.finish()
