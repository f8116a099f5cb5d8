"""Fit one reranker: from named or built parts to a folder with the best checkpoint and its manifest."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback
from omegaconf import OmegaConf

from graphrerank.data.dataset import Dataset
from graphrerank.evaluation.rerankers import trained_system, tune_restart_probs
from graphrerank.files import claim_folder
from graphrerank.fitting.calibrate import calibrate_system
from graphrerank.fitting.training import FROM_START, FitSettings, Training, check_resumed, declared_inputs
from graphrerank.fitting.training_data import FeaturePlan, TrainingData, prepare_training
from graphrerank.inference.graph_reranker import GraphReranker
from graphrerank.models.manifest import MANIFEST, write_manifest
from graphrerank.models.start import ADDED_PART
from graphrerank.parts import Part, Parts, build
from graphrerank.processes import is_first_process


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
    cross_encoder_queries: Any = None,
    train_split: str = "train",
    val_split: str = "val",
    run_dir: str | Path | None = None,
    name: str | None = None,
    resume: str | Path | None = None,
    parts: Parts | None = None,
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
        callbacks: Lightning callbacks beside those that keep the best and the last checkpoint and stop early; or a name
            of ``conf/callbacks`` in the place of these.
        logger: A Lightning logger or several; None for none.
        restart_probs: Of GCS and PPR, which stand in the manifest; None: chosen on the validation split.
        cross_encoder_queries: As of :class:`~graphrerank.fitting.training_data.FeaturePlan`.
        train_split: Split to train on.
        val_split: Split to validate and calibrate on.
        run_dir: Folder of the run, in which the model has a folder by its name; None: a new one below ``runs/fit``.
        name: Name of the model in tables and of its folder; None: as the model's.
        resume: A run folder of an interrupted call with the same arguments, or one of its ``.ckpt`` files.
        parts: Builds parts by their names; None: with the folders of ``conf/paths``.
        config: What the manifest records as the configuration.
        settings: Further settings; None: as ``others`` give them.
        **others: Fields of :class:`FitSettings`: ``seed``, ``batch_size``, ``start`` and the like.

    Returns:
        The reranker with the weights of the best epoch; ``source`` is its checkpoint, which every command loads.

    Raises:
        ValueError: If an argument is unknown or does not fit, or no training query has a relevant candidate.

    Example:
        >>> from graphrerank import Dataset, fit
        >>> reranker = fit(Dataset.from_folder("my_data"), max_epochs=2)  # doctest: +SKIP
    """
    parts, settings = parts or Parts(), settings or FitSettings(**others)
    names = [
        f"+{group}={given}" for group, given in (("features", features), ("model", model)) if isinstance(given, str)
    ]
    named = parts.compose(*names)
    model = Part(named.model, model) if isinstance(model, str) else parts.part("model", model)
    inputs = declared_inputs(model)
    name = name or str(model.name)
    if resume is not None:
        folder = run_folder(resume)
    else:
        folder = Path(run_dir) if run_dir else claim_folder(Path("runs", "fit", time.strftime("%Y-%m-%d_%H-%M-%S")))
    if not isinstance(data, TrainingData):
        datasets, searches = data_parts(parts, data), parts.part("retriever", retriever)
        if resume is not None:
            check_resumed(folder, datasets, searches)
        data = prepare_training(
            parts,
            datasets,
            retriever=searches,
            encoder=None if encoder is None else parts.part("encoder", encoder),
            pair_encoder=None if pair_encoder is None else parts.part("pair_encoder", pair_encoder),
            plan=feature_plan(
                named.features if isinstance(features, str) else features, settings, cross_encoder_queries
            ),
            reads_vectors=inputs.reads_vectors,
            reads_pairs=inputs.reads_pairs,
            train_split=train_split,
            val_split=val_split,
            buffer=settings.buffer,
        )
    torch.set_num_threads(parts.num_threads)
    operators = tune_restart_probs(data.first, data.val_split, restart_probs)
    rates = {"learning_rate": learning_rate, "weight_decay": weight_decay, "warmup_steps": warmup_steps}
    training = Training(data, model, folder / name, settings, operators, dict(config or {}))
    manifest = training.run(
        loss=parts.build("loss", loss),
        module={**rates, **(module or {})},
        trainer=trainer_settings(parts, trainer, folder, name, max_epochs=max_epochs),
        callbacks=build_callbacks(parts, callbacks, folder, name),
        loggers=logger if isinstance(logger, Sequence) else [] if not logger else [logger],
        resume=resume,
    )
    if not is_first_process():
        return None  # type: ignore[return-value] # the first process of a joint training alone goes on
    checkpoint = training.best()
    if settings.calibration not in (None, FROM_START):
        system = trained_system(name, checkpoint.model, parts.device)
        manifest |= calibrate_system(settings.calibration, data.judged, data.val_split, system)
        write_manifest(folder / name, manifest)
        checkpoint = training.best()
    return GraphReranker(checkpoint, device=parts.device)


def run_folder(resume: str | Path) -> Path:
    """Return the run folder that a resumed training goes on in: the path itself, or that of a ``.ckpt`` file.

    Raises:
        ValueError: If it holds no training.
    """
    path = Path(resume)
    if not path.exists():
        raise ValueError(f"`ckpt_path` must be a run folder or a .ckpt file in one, got {str(resume)!r}: no such path")
    folder = path if path.is_dir() else path.parent.parent.parent
    if not any(folder.glob(f"*/{MANIFEST}")):
        raise ValueError(f"`ckpt_path` must lie in a run folder of train.py, but {folder} holds no <system>/{MANIFEST}")
    return folder


def data_parts(parts: Parts, data: Any) -> dict[str, Part]:
    """Return the parts of one data set, or of several by name."""
    if isinstance(data, Mapping) and "_target_" not in data:
        return {str(name): parts.part("data", given) for name, given in data.items()}
    part = parts.part("data", data)
    return {data.name if isinstance(data, Dataset) else Path(str(part.name)).name: part}


def feature_plan(features: Mapping[str, Any], settings: FitSettings, cross_encoder_queries: Any = None) -> FeaturePlan:
    """Return the plan of features that ``conf/features`` describes."""
    return FeaturePlan(
        text_match=bool(features.get("text_match")),
        num_words=int(features.get("num_words") or 0),
        cross_encoder_top_k=int(features.get("cross_encoder_top_k") or 0),
        cross_encoder_queries=cross_encoder_queries,
        only_pairs_train=settings.train_only is not None and set(settings.train_only) == {ADDED_PART},
    )


def trainer_settings(
    parts: Parts, given: Mapping[str, Any] | None, folder: Path, name: str, *, max_epochs: int | None
) -> Mapping[str, Any]:
    """Return settings of a trainer: those of ``conf/trainer`` with changes, or given ones that name their class."""
    own = dict(given or {}) | ({} if max_epochs is None else {"max_epochs": max_epochs})
    if "_target_" in own:
        return own
    composed = parts.compose("+trainer=default", run_dir=folder, system=name).trainer
    OmegaConf.resolve(composed)
    return {**{str(key): setting for key, setting in composed.items()}, **own}


def build_callbacks(parts: Parts, given: Any, folder: Path, name: str) -> list[Callback]:
    """Build callbacks: those of a file of ``conf/callbacks`` or of settings by name; given ones join the default's."""
    if isinstance(given, Mapping):
        return [build(node) for node in given.values() if node and "_target_" in node]
    file = given if isinstance(given, str) else "default"
    composed = parts.compose(f"+callbacks={file}", run_dir=folder, system=name).callbacks
    OmegaConf.resolve(composed)
    return [*build_callbacks(parts, composed, folder, name), *(() if isinstance(given, str) else given)]
