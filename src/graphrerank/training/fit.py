"""Fit one reranker: from named or built parts to a folder with the best checkpoint and its manifest."""

import inspect
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from hydra.utils import get_object
from lightning.pytorch.callbacks import Callback
from torch import nn

from graphrerank.config.components import ComponentFactory, ConfiguredComponent, build_component
from graphrerank.config.manifest_guard import portable_arguments
from graphrerank.core.retriever import CROSS_ENCODER_FEATURES
from graphrerank.data.augmentation import CandidateAugmentation
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.datamodule import CandidateDataModule
from graphrerank.data.dataset import Dataset
from graphrerank.evaluation.encoder_checks import own_encoder
from graphrerank.evaluation.reranking import trained_system
from graphrerank.models.checkpoint import (
    Checkpoint,
    build_model,
    library_versions,
    load_checkpoint,
    load_primary,
    start_entry,
    start_from,
    train_only,
)
from graphrerank.models.granker import head_arguments
from graphrerank.models.manifest import parse_manifest, write_manifest
from graphrerank.models.registry import read_features, register_model
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.training.calibrate import calibrate_system
from graphrerank.training.reranker_module import RerankerModule
from graphrerank.training.session import TrainingSession, run_folder
from graphrerank.training.training_data import (
    FROM_START,
    FitSettings,
    TrainingData,
    declared_inputs,
    prepare_training,
)
from graphrerank.training.tuning import tune_restart_probs
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import claim_folder
from graphrerank.utils.processes import is_first_process

# entries of the manifest that a resumed training must have in common with its run
RESUMED_ENTRIES = ("data", "mix", "retriever", "model", "features", "encoder", "pair_encoder", "start")


def fit(
    data: Any,
    *,
    retriever: Any = "hybrid_expand",
    encoder: Any = "minilm",
    pair_encoder: Any = None,
    features: str | Mapping[str, Any] = "scores_match",
    model: Any = "gatv2",
    loss: Any = "listwise",
    max_epochs: int | None = None,
    learning_rate: float = 3e-3,
    weight_decay: float = 0.01,
    warmup_steps: int = 100,
    module: Mapping[str, Any] | None = None,
    trainer: Mapping[str, Any] | None = None,
    callbacks: str | Sequence[Callback] = (),
    logger: Any = None,
    restart_probs: Mapping[str, float | None] | None = None,
    run_dir: str | Path | None = None,
    name: str | None = None,
    resume: str | Path | None = None,
    parts: ComponentFactory | None = None,
    config: Mapping[str, Any] | None = None,
    settings: FitSettings | None = None,
    **others: Any,
) -> GraphReranker:
    """Train a reranker, calibrate it on the validation split, and return it.

    Every part is a name of ``conf``, settings as a file of ``conf`` has them, or the built object.

    Args:
        data: A data set, its name or the path of its folder; several, by name, are trained on together.
        retriever: Source of the candidates.
        encoder: Of texts; None for models and retrievers without vectors.
        pair_encoder: A cross-encoder, for features that read its scores.
        features: What the model reads: a name of ``conf/features`` or its settings.
        model: A name of ``conf/model``, or an ``nn.Module`` with ``inputs`` that name the tensors of ``forward``.
        loss: A name of ``conf/loss``, or a function of padded scores, relevance and mask, each ``[B, K]``.
        max_epochs: Epochs; None: as ``conf/trainer`` says.
        learning_rate: Peak learning rate.
        weight_decay: AdamW's decay of matrices.
        warmup_steps: Optimizer steps of linear warm-up.
        module: Further arguments of :class:`~graphrerank.training.reranker_module.RerankerModule`.
        trainer: Arguments of ``lightning.Trainer`` in the place of those of ``conf/trainer``.
        callbacks: Lightning callbacks in addition to those that keep the best and the last checkpoint and stop early;
            or a name of ``conf/callbacks`` in the place of these.
        logger: A Lightning logger or several; None for none.
        restart_probs: Of GCS and PPR, which stand in the manifest; None: chosen on the validation split.
        run_dir: Folder of the run, in which the model has a folder by its name; None: a new one below ``runs/fit``.
        name: Name of the model in tables and of its folder; None: as the model's.
        resume: A run folder of an interrupted call with the same arguments, or one of its ``.ckpt`` files.
        parts: Builds parts by their names; None: with the folders of ``conf/paths``.
        config: What the manifest records as the configuration.
        settings: Further settings; None: as ``others`` give them.
        **others: Fields of :class:`~graphrerank.training.training_data.FitSettings`: ``seed``, ``batch_size``,
            ``train_split``, ``start`` and the like.

    Returns:
        The reranker with the weights of the best epoch; ``source`` is its checkpoint, which every command loads.

    Raises:
        ValueError: If an argument is unknown or does not fit, or no training query has a relevant candidate.

    Example:
        >>> from graphrerank import Dataset, fit
        >>> reranker = fit(Dataset.from_folder("my_data"), max_epochs=2)  # doctest: +SKIP
    """
    parts, settings = parts or ComponentFactory(), settings or FitSettings(**others)
    chosen = {"features": features, "model": model}
    named = parts.compose(*(f"+{group}={given}" for group, given in chosen.items() if isinstance(given, str)))
    model = ConfiguredComponent(named.model, model) if isinstance(model, str) else parts.component("model", model)
    name = name or str(model.name)
    if resume is not None:
        run = run_folder(resume)
    else:
        run = Path(run_dir) if run_dir else claim_folder(Path("runs", "fit", time.strftime("%Y-%m-%d_%H-%M-%S")))
    if not isinstance(data, TrainingData):
        data = prepare_training(
            parts,
            data_parts(parts, data),
            [model],
            retriever=parts.component("retriever", retriever),
            encoder=None if encoder is None else parts.component("encoder", encoder),
            pair_encoder=None if pair_encoder is None else parts.component("pair_encoder", pair_encoder),
            features=named.features if isinstance(features, str) else features,
            settings=settings,
        )
    torch.set_num_threads(parts.num_threads)
    operators = tune_restart_probs(data.first, settings.val_split, restart_probs)

    session = TrainingSession(
        parts,
        run,
        name,
        trainer=trainer,
        max_epochs=max_epochs,
        callbacks=callbacks,
        logger=logger,
        resume=resume,
    )
    L.seed_everything(settings.seed, verbose=False)  # no earlier training must decide the weights
    arguments = model_arguments(model, data.first)
    network = model.build(**arguments)
    start = None if settings.start is None else load_primary(settings.start)
    manifest = training_manifest(
        name, network, arguments, data, settings, operators=operators, config=config or {}, start=start
    )
    if model.settings is not None:
        with torch.device("meta"):
            build_model(parse_manifest(manifest, session.folder))  # what cannot be loaded is refused before training
    if earlier := session.earlier_results(manifest, RESUMED_ENTRIES):
        manifest |= earlier
    else:
        if not any(len(part.answerable(settings.train_split)) for part in data.prepared.values()):
            raise UserError(
                f"no query of split {settings.train_split!r} has a relevant candidate, so there is nothing to learn: "
                "check the judgements, or take a retriever that finds more (retriever=hybrid_expand, data.edges=auto)"
            )
        if network.inputs.reads_pairs:
            network.start_from(own_encoder(data.first))
        if start is not None:
            start_from(network, arguments, data.first.feature_names, start)
        if settings.train_only is not None:
            train_only(network, settings.train_only)
        rates = {"learning_rate": learning_rate, "weight_decay": weight_decay, "warmup_steps": warmup_steps}
        val_names = list(data.judged) if len(data.prepared) > 1 else []
        learns = build_component(
            {"_target_": RerankerModule, "seed": settings.seed, **rates, **(module or {}), "val_names": val_names},
            network,
            parts.build("loss", loss),
        )
        augmentation = None
        if any(settings.augmentation.values()):
            augmentation = CandidateAugmentation(data.first.feature_names, **settings.augmentation)
        batches = CandidateDataModule(
            data.prepared,
            batch_size=settings.batch_size,
            seed=settings.seed,
            inputs=network.inputs,
            train_split=settings.train_split,
            val_split=settings.val_split,
            shares=settings.shares,
            augmentation=augmentation,
            validated=list(data.judged),
        )
        manifest = session.train(learns, batches, manifest)
    if not is_first_process():
        return None  # type: ignore[return-value] # the first process of a joint training alone goes on

    given = None if model.settings is not None else network
    checkpoint = load_checkpoint(session.best, model=given)
    if settings.calibration == "logistic":
        system = trained_system(name, checkpoint.model, parts.device)
        manifest |= calibrate_system(data.judged, settings.val_split, system)
        write_manifest(session.folder, manifest)
        checkpoint = load_checkpoint(session.best, model=given)
    return GraphReranker(checkpoint, device=parts.device)


def data_parts(parts: ComponentFactory, data: Any) -> dict[str, ConfiguredComponent]:
    """Return the parts of one data set, or of several by name."""
    if isinstance(data, Mapping) and "_target_" not in data:
        return {str(name): parts.component("data", given) for name, given in data.items()}
    part = parts.component("data", data)
    return {data.name if isinstance(data, Dataset) else Path(str(part.name)).name: part}


def model_arguments(model: ConfiguredComponent, prepared: PreparedDataset) -> dict[str, Any]:
    """Return a model's settings, and the sizes that its data set or its cross-encoder gives."""
    if model.settings is None:
        return model.arguments
    if declared_inputs(model).reads_pairs:
        return model.arguments | head_arguments(own_encoder(prepared))
    sizes = {"num_scores": len(prepared.feature_names)}
    if of_pairs := len(set(CROSS_ENCODER_FEATURES) & set(prepared.feature_names)):
        sizes["num_pair_scores"] = of_pairs
    if (embedding := prepared.dataset.graph.embedding) is not None:
        sizes["embedding_dim"] = embedding.shape[1]
    takes = inspect.signature(get_object(model.settings._target_)).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
    return model.arguments | {name: size for name, size in sizes.items() if takes_all or name in takes}


def training_manifest(
    name: str,
    network: nn.Module,
    arguments: Mapping[str, Any],
    data: TrainingData,
    settings: FitSettings,
    *,
    operators: Mapping[str, float],
    config: Mapping[str, Any],
    start: Checkpoint | None,
) -> dict[str, Any]:
    """Return the manifest of a training that begins."""
    prepared, embedding = data.first, data.first.dataset.graph.embedding
    encoder = pair_encoder = None
    if prepared.pair_encoder is not None and data.pair_encoder is not None:
        pair_encoder = {
            "choice": data.pair_encoder.name,
            "arguments": portable_arguments(data.pair_encoder.settings or {}),
            "fingerprint": prepared.pair_encoder.fingerprint,
            "dim": prepared.pair_encoder.hidden_size,
        }
    if embedding is not None and data.encoder is not None:
        encoder = {
            "choice": data.encoder.name,
            "arguments": data.encoder.arguments,
            "name": prepared.encoder_name,
            "fingerprint": prepared.encoder_fingerprint,
            "dim": embedding.shape[1],
        }
    of_start = {}
    if start is not None:
        of_start["start"] = start_entry(start, Path(str(settings.start)).name)
        if settings.calibration == FROM_START:
            kept, content = ("calibration", "list_confidence"), start.manifest.content
            of_start |= {key: content[key] for key in kept if key in content}
    (first, part), *mix = data.data.items()
    return {
        "name": name,
        "finished": False,
        "model": {"name": register_model(type(network)), "arguments": arguments},
        "features": read_features(network, prepared.feature_names),
        "encoder": encoder,
        "pair_encoder": pair_encoder,
        "data": {
            "choice": part.choice or first,
            "arguments": portable_arguments(part.settings or {}),
            "fingerprint": prepared.dataset.fingerprint,
        },
        "mix": {
            mixed: {
                "arguments": {"data": given.choice or mixed, **portable_arguments(given.settings or {})},
                "fingerprint": data.prepared[mixed].dataset.fingerprint,
            }
            for mixed, given in mix
        },
        "retriever": {
            "choice": data.retriever.name,
            "arguments": data.retriever.arguments,
            "feature_names": list(prepared.feature_names),
        },
        "candidate_depth": prepared.top_k,
        "operators": dict(operators),
        "config": dict(config) or {"seed": settings.seed, "batches": {"val_split": settings.val_split}},
        "versions": library_versions(),
        "metrics": {},
        **of_start,
    }
