"""Training one model of a run: its folder, its manifest, and resuming it where it stopped."""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_object, instantiate
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig

from graphrerank.cli.compose import plain_arguments, portable_arguments, portable_config
from graphrerank.cli.joint_training import is_first_process
from graphrerank.cli.places import Places
from graphrerank.cli.systems import declared_inputs, own_encoder
from graphrerank.data.augmentation import CandidateAugmentation
from graphrerank.data.candidate_shards import CandidateShards
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.datamodule import CandidateDataModule, MixtureDataModule
from graphrerank.data.streamed_batches import StreamedDataModule
from graphrerank.graphs import ModelInputs
from graphrerank.graphs.retriever import CROSS_ENCODER_FEATURES
from graphrerank.models.checkpoint import (
    Checkpoint,
    build_model,
    find_checkpoint,
    library_versions,
    load_checkpoint,
    load_primary,
)
from graphrerank.models.granker_layers import measured_arguments
from graphrerank.models.manifest import parse_manifest, read_manifest, write_manifest
from graphrerank.models.registry import read_features, register_model
from graphrerank.models.start import start_entry, start_from, train_only
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.training.epoch_table import EpochTable

CHECKPOINT = Path("checkpoints", "best.ckpt")  # in a model's folder
FROM_START = "start"  # the calibration of the checkpoint that a training starts from
FINE_TUNED = "cross_encoder"  # folder of a system whose cross-encoder's last layers were trained


def train_model(
    cfg: DictConfig,
    parts: Mapping[str, PreparedDataset],
    operators: Mapping[str, float],
    loggers: Sequence[Logger] = (),
    shards: Mapping[str, CandidateShards] | None = None,
) -> dict[str, Any]:
    """Train one model, or resume where its training stopped, and return its manifest.

    Checkpoints lie in ``<run>/<system>/checkpoints``; one that was trained with other settings is not resumed.
    """
    folder, prepared = Path(cfg.paths.run_dir) / cfg.system, next(iter(parts.values()))
    L.seed_everything(cfg.seed, verbose=False)  # here: what was trained or resumed before must not decide the weights
    arguments = _model_arguments(cfg, prepared)
    model = instantiate(cfg.model, **arguments)
    start = None if cfg.start is None else load_primary(find_checkpoint(cfg.start))
    manifest = _manifest(cfg, parts, operators, model, arguments, start)
    with torch.device("meta"):
        build_model(parse_manifest(manifest, folder))  # so that what cannot be loaded is refused before training
    last = _resume_from(cfg, folder, manifest)
    if last is not None and (before := read_manifest(folder).content).get("finished"):
        return manifest | {key: before[key] for key in ("finished", "fine_tuned", "validation") if key in before}
    if is_first_process():
        write_manifest(folder, manifest)
    if model.inputs.reads_pairs:
        model.start_from(own_encoder(prepared))
    if start is not None:
        start_from(model, arguments, prepared.feature_names, start)
    if cfg.train_only is not None:
        train_only(model, cfg.train_only)
    val_names = list(judged_parts(parts)) if len(parts) > 1 else []
    module = instantiate(cfg.module, model, instantiate(cfg.loss), val_names=val_names)
    batches = _batches(cfg, parts, shards, inputs=model.inputs)
    trainer = build_trainer(cfg, loggers)
    for logger in loggers:
        logger.log_hyperparams(manifest)
    trainer.fit(module, datamodule=batches, ckpt_path=last, weights_only=True)
    best = folder / CHECKPOINT
    if not trainer.strategy.broadcast(best.is_file()):  # fast_dev_run or no validation: the last state is the best
        trainer.save_checkpoint(best)
    if not is_first_process():
        return manifest
    if model.inputs.last_layers:
        manifest["fine_tuned"] = _save_fine_tuned(best, prepared)
        Places(cfg.paths.cache).add(str((folder / FINE_TUNED).resolve()))
    kept = trainer.checkpoint_callback
    if kept is not None and kept.best_model_score is not None:
        score = float(kept.best_model_score)
        manifest["validation"] = {"measure": kept.monitor, "mode": kept.mode, "score": score}
    manifest["finished"] = True
    write_manifest(folder, manifest)
    return manifest


def judged_parts(parts: Mapping[str, PreparedDataset]) -> dict[str, PreparedDataset]:
    """Return the data sets to validate and calibrate on: those whose questions were judged, or all if none was."""
    return {name: part for name, part in parts.items() if not part.dataset.drafted} or dict(parts)


def build_trainer(cfg: DictConfig, loggers: Sequence[Logger]) -> L.Trainer:
    """Build the chosen trainer with the chosen callbacks.

    A callback that is null is left out, and so are settings that a recipe makes for one that was not chosen. The epochs
    are shown by :class:`EpochTable`, unless ``trainer.enable_progress_bar=false`` or a callback shows them.
    """
    callbacks = [instantiate(callback) for callback in cfg.callbacks.values() if callback and "_target_" in callback]
    if any(isinstance(callback, ProgressBar) for callback in callbacks):
        return instantiate(cfg.trainer, callbacks=callbacks, logger=list(loggers))
    if cfg.trainer.get("enable_progress_bar", True):
        callbacks.append(EpochTable())
    return instantiate(cfg.trainer, callbacks=callbacks, logger=list(loggers), enable_progress_bar=False)


def _batches(
    cfg: DictConfig,
    parts: Mapping[str, PreparedDataset],
    shards: Mapping[str, CandidateShards] | None,
    *,
    inputs: ModelInputs,
) -> L.LightningDataModule:
    """Build the batches, from memory or from shards, of one data set as it is, of several, or of augmented ones."""
    drawn, settings = plain_arguments(cfg.augmentation), dict(cfg.batches)
    first = next(iter(parts.values()))
    augmentation = CandidateAugmentation(first.feature_names, **drawn) if any(drawn.values()) else None
    mixed: dict[str, Any] = {
        "shares": None if cfg.shares is None else dict(cfg.shares),
        "augmentation": augmentation,
        "validated": list(judged_parts(parts)),
    }
    if shards:
        return StreamedDataModule(parts, shards, inputs=inputs, **mixed, **settings)
    del settings["buffer"]
    if len(parts) == 1 and augmentation is None:
        return CandidateDataModule(first, inputs=inputs, **settings)
    return MixtureDataModule(parts, inputs=inputs, **mixed, **settings)


def _save_fine_tuned(best: Path, prepared: PreparedDataset) -> dict[str, str]:
    """Write the cross-encoder with the layers and head of a checkpoint beside the folder of checkpoints."""
    model: Any = load_checkpoint(best).model
    start, folder = own_encoder(prepared), best.parent.parent / FINE_TUNED
    start.save_trained(folder, model.layers, model.granker.head)
    fingerprint = CrossEncoder(folder, max_length=start.max_length, dtype=start.dtype).fingerprint
    return {"folder": FINE_TUNED, "fingerprint": fingerprint}


def _resume_from(cfg: DictConfig, folder: Path, manifest: Mapping[str, Any]) -> Path | None:
    """Find the checkpoint to resume, and refuse one of another training."""
    if cfg.ckpt_path is None:
        return None
    named = Path(cfg.ckpt_path)
    last = named if named.is_file() and named.parent.parent == folder else folder / "checkpoints" / "last.ckpt"
    if not last.is_file():
        return None
    before = read_manifest(folder).content
    for key in ("model", "features", "encoder", "pair_encoder", "retriever", "data", "mix", "start"):
        if before.get(key) != manifest.get(key):
            raise ValueError(f"{last}: was trained with {key}={before.get(key)}, this job has {manifest.get(key)}")
    return last


def _model_arguments(cfg: DictConfig, prepared: PreparedDataset) -> dict[str, Any]:
    """Return the model's settings, and the sizes that its data set or its cross-encoder gives."""
    arguments = plain_arguments(cfg.model)
    if declared_inputs(cfg.model).reads_pairs:
        return measured_arguments(arguments, own_encoder(prepared))
    sizes = {"num_scores": len(prepared.feature_names)}
    if of_pairs := len(set(CROSS_ENCODER_FEATURES) & set(prepared.feature_names)):
        sizes["num_pair_scores"] = of_pairs
    if (embedding := prepared.dataset.graph.embedding) is not None:
        sizes["embedding_dim"] = embedding.shape[1]
    takes = inspect.signature(get_object(cfg.model._target_)).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
    return arguments | {name: size for name, size in sizes.items() if takes_all or name in takes}


def _manifest(
    cfg: DictConfig,
    parts: Mapping[str, PreparedDataset],
    operators: Mapping[str, float],
    model: Any,
    arguments: Mapping[str, Any],
    start: Checkpoint | None,
) -> dict[str, Any]:
    prepared = next(iter(parts.values()))
    choices = HydraConfig.get().runtime.choices
    embedding = prepared.dataset.graph.embedding
    encoder = pair_encoder = None
    if prepared.pair_encoder is not None:
        pair_encoder = {
            "choice": choices["pair_encoder"],
            "arguments": portable_arguments(cfg.pair_encoder),
            "fingerprint": prepared.pair_encoder.fingerprint,
            "dim": prepared.pair_encoder.hidden_size,
        }
    if embedding is not None:
        encoder = {
            "choice": choices["encoder"],
            "arguments": plain_arguments(cfg.encoder),
            "name": prepared.encoder_name,
            "fingerprint": prepared.encoder_fingerprint,
            "dim": embedding.shape[1],
        }
    of_start = {}
    if start is not None:
        of_start["start"] = start_entry(start, Path(cfg.start).name)
        if cfg.calibration == FROM_START:
            kept = ("calibration", "list_confidence")
            of_start |= {key: start.manifest.content[key] for key in kept if key in start.manifest.content}
    return {
        "name": cfg.system,
        "finished": False,
        "model": {"name": register_model(type(model)), "arguments": arguments},
        "features": read_features(model, prepared.feature_names),
        "encoder": encoder,
        "pair_encoder": pair_encoder,
        "retriever": {
            "choice": choices["retriever"],
            "arguments": plain_arguments(cfg.retriever),
            "feature_names": list(prepared.feature_names),
        },
        "candidate_depth": prepared.top_k,
        "data": {
            "choice": choices["data"],
            "arguments": portable_arguments(cfg.data),
            "fingerprint": prepared.dataset.fingerprint,
        },
        "mix": {
            name: {"arguments": entry or {}, "fingerprint": parts[str(name)].dataset.fingerprint}
            for name, entry in (plain_arguments(cfg.mix) if cfg.mix else {}).items()
        },
        "operators": dict(operators),
        "config": portable_config(cfg),
        "versions": library_versions(),
        "metrics": {},
        **of_start,
    }
