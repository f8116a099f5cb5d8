"""Manifest of a training run before its first step: one function per entry."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import lightning as L
from torch import nn

from graphrerank.config.manifest_guard import portable_arguments
from graphrerank.models.checkpoint import Checkpoint, library_versions, start_entry
from graphrerank.models.registry import read_features, register_model
from graphrerank.training.optimizers import component_entry, count_parameters
from graphrerank.training.settings import DEFAULTS, FROM_START, FitSettings
from graphrerank.training.training_data import TrainingData
from graphrerank.training.training_module import TrainingModule

# entries that must be unchanged when a training run is resumed
RESUMED_ENTRIES = (
    "data",
    "mix",
    "retriever",
    "model",
    "features",
    "encoder",
    "pair_encoder",
    "start",
    "teacher",
    "training",
    "optimizer",
    "scheduler",
)
# settings of a training run that do not change its result, or may change when it is resumed, or have another entry
FREE_SETTINGS = (
    "num_workers",
    "prefetch",
    "max_epochs",
    "calibration",
    "restart_probs",
    "start",
    "parameter_groups",
    "test_split",
)
CALIBRATED = ("calibration", "list_confidence")  # entries that calibration adds


def training_manifest(
    name: str,
    network: nn.Module,
    arguments: Mapping[str, Any],
    data: TrainingData,
    settings: FitSettings,
    *,
    operators: Mapping[str, float],
    config: Mapping[str, Any] | None = None,
    start: Checkpoint | None = None,
    loss: str | None = None,
) -> dict[str, Any]:
    """Return the manifest of a training run before its first step.

    Args:
        name: Name of the model.
        network: The model to train.
        arguments: Arguments that the model was built with.
        data: The prepared data sets.
        settings: Settings of the training.
        operators: Restart probabilities of ``gcs`` and ``ppr``.
        config: Configuration to record. If None or empty, the settings and the loss are recorded.
        start: Checkpoint to initialise the weights from. If None, the weights are random.
        loss: Name of the loss. If None, it is not recorded.

    Returns:
        Content of ``manifest.json``.
    """
    prepared = data.first
    return {
        "name": name,
        "finished": False,
        "model": {"name": register_model(type(network)), "arguments": dict(arguments)},
        "features": read_features(network, prepared.feature_names),
        "encoder": encoder_entry(data),
        "pair_encoder": pair_encoder_entry(data),
        "data": data_entry(data),
        "mix": mix_entry(data),
        "retriever": retriever_entry(data),
        "candidate_depth": prepared.top_k,
        "operators": dict(operators),
        "config": dict(config or {}) or settings_entry(settings, loss),
        "versions": library_versions(),
        "metrics": {},
        **start_entries(start, settings),
        **teacher_entries(data),
    }


def settings_entry(settings: FitSettings, loss: str | None = None) -> dict[str, Any]:
    """Return the configuration that is recorded for a training run in Python.

    Args:
        settings: Settings of the training.
        loss: Name of the loss. If None, it is not recorded.

    Returns:
        Seed, validation split, loss, and the settings that differ from the defaults.
    """
    changed = {
        field.name: getattr(settings, field.name)
        for field in fields(settings)
        if getattr(settings, field.name) != getattr(DEFAULTS, field.name) and field.name not in ("seed", "start")
    }
    return {
        "seed": settings.seed,
        "batches": {"val_split": settings.val_split},
        **({} if loss is None else {"loss": loss}),
        **({"settings": changed} if changed else {}),
    }


def training_entry(settings: FitSettings, module: L.LightningModule) -> dict[str, Any]:
    """Return the manifest entry of the settings that must be unchanged when a training run is resumed.

    Args:
        settings: Settings of the training.
        module: Module to train. Its hyperparameters replace the settings of the same name.

    Returns:
        Seed, batch size, splits, loss, learning rate and similar settings by name. ``loss`` has a name and arguments.
    """
    entry = {key: setting for key, setting in asdict(settings).items() if key not in FREE_SETTINGS}
    entry |= {key: setting for key, setting in module.hparams.items() if key not in ("model", "measures", "val_names")}
    plain: dict[str, Any] = json.loads(json.dumps(entry, default=str))
    return plain


def optimization_entries(module: L.LightningModule) -> dict[str, Any]:
    """Return the manifest entries of the optimiser, the schedule and the number of parameters.

    Args:
        module: Module to train.

    Returns:
        Entries ``parameters`` (number of all parameters, and of those that are ``trained``), ``optimizer`` (name,
        arguments and parameter groups) and ``scheduler``. Only ``parameters`` for a module of another base class.
    """
    entries: dict[str, Any] = {"parameters": count_parameters(module)._asdict()}
    if isinstance(module, TrainingModule):
        groups = {"parameter_groups": dict(module.parameter_groups)} if module.parameter_groups else {}
        entries["optimizer"] = component_entry(module.optimizer) | groups
        entries["scheduler"] = component_entry(module.scheduler)
    return entries


def encoder_entry(data: TrainingData) -> dict[str, Any] | None:
    """Return the manifest entry of the text encoder.

    Args:
        data: The prepared data sets.

    Returns:
        Choice, arguments, fingerprint and vector width of the encoder. None if the passages have no vectors.
    """
    prepared = data.first
    embedding = prepared.dataset.graph.embedding
    if embedding is None or data.encoder is None:
        return None
    return {
        "choice": data.encoder.name,
        "arguments": data.encoder.arguments,
        "name": prepared.encoder_name,
        "fingerprint": prepared.encoder_fingerprint,
        "dim": embedding.shape[1],
    }


def pair_encoder_entry(data: TrainingData) -> dict[str, Any] | None:
    """Return the manifest entry of the cross-encoder that encodes (query, passage) pairs for the model.

    Args:
        data: The prepared data sets.

    Returns:
        Choice, arguments, fingerprint and vector width of the cross-encoder. None if the model encodes no pairs.
    """
    encoder = data.first.pair_encoder
    if encoder is None or data.pair_encoder is None:
        return None
    return {
        "choice": data.pair_encoder.name,
        "arguments": portable_arguments(data.pair_encoder.arguments),
        "fingerprint": encoder.fingerprint,
        "dim": encoder.hidden_size,
    }


def data_entry(data: TrainingData) -> dict[str, Any]:
    """Return the manifest entry of the first data set, without paths of this machine.

    Args:
        data: The prepared data sets.

    Returns:
        Choice, arguments and fingerprint of the data set.
    """
    name, dataset = next(iter(data.data.items()))
    return {
        "choice": dataset.choice or name,
        "arguments": portable_arguments(dataset.arguments),
        "fingerprint": data.first.dataset.fingerprint,
    }


def mix_entry(data: TrainingData) -> dict[str, dict[str, Any]]:
    """Return the manifest entries of all data sets except the first.

    Args:
        data: The prepared data sets.

    Returns:
        Arguments and fingerprint by name of the data set.
    """
    _first, *others = data.data.items()
    return {
        name: {
            "arguments": {"data": dataset.choice or name, **portable_arguments(dataset.arguments)},
            "fingerprint": data.prepared[name].dataset.fingerprint,
        }
        for name, dataset in others
    }


def retriever_entry(data: TrainingData) -> dict[str, Any]:
    """Return the manifest entry of the retriever.

    Args:
        data: The prepared data sets.

    Returns:
        Choice and arguments of the retriever, and the names of the candidates' features.
    """
    return {
        "choice": data.retriever.name,
        "arguments": data.retriever.arguments,
        "feature_names": list(data.first.feature_names),
    }


def teacher_entries(data: TrainingData) -> dict[str, Any]:
    """Return the manifest entry of the teacher of a distillation.

    Args:
        data: The prepared data sets.

    Returns:
        Entry ``teacher`` with the class and the fingerprint of the teacher. Empty without a teacher.
    """
    if data.teacher is None:
        return {}
    return {"teacher": {"name": type(data.teacher).__name__, "fingerprint": data.teacher.fingerprint}}


def start_entries(start: Checkpoint | None, settings: FitSettings) -> dict[str, Any]:
    """Return the manifest entries of the checkpoint that the weights are initialised from.

    Args:
        start: Checkpoint, or None if the weights are random.
        settings: Settings of the training.

    Returns:
        Entry ``start``, and the calibration of the checkpoint if the setting ``calibration`` is ``"start"``. Empty
        without a checkpoint.
    """
    if start is None:
        return {}
    entries: dict[str, Any] = {"start": start_entry(start, Path(str(settings.start)).name)}
    if settings.calibration == FROM_START:
        content = start.manifest.content
        entries |= {key: content[key] for key in CALIBRATED if key in content}
    return entries
