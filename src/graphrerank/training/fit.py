"""Training of a reranker with one function call."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from graphrerank.config.components import ComponentFactory, build_component
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.training.reranker_module import RerankerModule
from graphrerank.training.schedules import cosine
from graphrerank.training.session import TrainerArguments
from graphrerank.training.settings import FitSettings, field_default, passed_fields
from graphrerank.training.trainer import ModuleFactory, RerankerTrainer


def fit(
    data: Any,
    *,
    retriever: Any = "hybrid_expand",
    encoder: Any = "minilm",
    pair_encoder: Any = None,
    features: str | Mapping[str, Any] = "scores_match",
    model: Any = "gatv2",
    loss: Any = "listwise",
    teacher: Any = None,
    optimizer: Any = torch.optim.AdamW,
    scheduler: Any = cosine,
    module: Mapping[str, Any] | None = None,
    trainer: TrainerArguments | None = None,
    callbacks: str | Sequence[Callback] | Mapping[str, Callback] = (),
    logger: Any = None,
    run_dir: str | Path | None = None,
    name: str | None = None,
    resume: str | Path | None = None,
    parts: ComponentFactory | None = None,
    config: Mapping[str, Any] | None = None,
    settings: FitSettings | None = None,
    seed: int = field_default("seed"),
    batch_size: int = field_default("batch_size"),
    num_workers: int | None = field_default("num_workers"),
    prefetch: int | None = field_default("prefetch"),
    max_nodes: int | None = field_default("max_nodes"),
    max_edges: int | None = field_default("max_edges"),
    buffer: int | None = field_default("buffer"),
    train_split: str = field_default("train_split"),
    val_split: str = field_default("val_split"),
    test_split: str = field_default("test_split"),
    shares: Mapping[str, float] | None = field_default("shares"),
    augmentation: Mapping[str, float] = field_default("augmentation"),
    cross_encoder_queries: int | Mapping[str, int] | None = field_default("cross_encoder_queries"),
    num_queries: int | None = field_default("num_queries"),
    start: str | None = field_default("start"),
    train_only: Sequence[str] | None = field_default("train_only"),
    calibration: str | None = field_default("calibration"),
    max_epochs: int | None = field_default("max_epochs"),
    learning_rate: float = field_default("learning_rate"),
    weight_decay: float = field_default("weight_decay"),
    warmup_steps: int = field_default("warmup_steps"),
    parameter_groups: Mapping[str, float | Mapping[str, float]] | None = field_default("parameter_groups"),
    restart_probs: Mapping[str, float | None] | None = field_default("restart_probs"),
) -> GraphReranker:
    """Train a reranker, calibrate it on the validation split, and return it.

    ``fit(...)`` is the same as ``RerankerTrainer(...).train()``;
    :class:`~graphrerank.training.trainer.RerankerTrainer` exposes the steps one by one. Each component can be passed as
    a name of ``conf``, as settings in the form of a file of ``conf``, or as an object.

    Args:
        data: A :class:`~graphrerank.Dataset`, the name of a data set or the path of a data set folder. A mapping from
            name to data set trains on several data sets jointly.
        retriever: Retriever that produces the candidates.
        encoder: Text encoder for queries and passages. If None, nothing is encoded; the model and the retriever must
            then work without vectors.
        pair_encoder: Cross-encoder. Required by features that contain its scores and by models that encode
            (query, passage) pairs. If None, no cross-encoder is used.
        features: Node features of the model: a name of ``conf/features`` or its settings.
        model: A name of ``conf/model``, an ``nn.Module`` whose ``inputs`` name the tensors of its ``forward``, or a
            class of such modules. If the constructor of a class has an argument ``num_scores`` or ``embedding_dim``, it
            receives the number of score features or the width of the vectors.
        loss: A name of ``conf/loss``, a function or ``nn.Module`` of padded scores, relevance and mask, each
            ``[B, K]``, that returns a scalar, or a mapping from losses to weights
            (:class:`~graphrerank.training.weighted_loss.WeightedLoss`).
        teacher: Teacher for distillation losses (``kl``, ``margin_mse``): a name of ``conf/teacher``, its settings, a
            :class:`~graphrerank.data.teachers.Teacher`, or a cross-encoder. The model is then also trained on queries
            without judgements. If None, the training uses judgements alone.
        optimizer: A name of ``conf/optimizer``, or a callable that receives parameter groups and returns an optimiser:
            a class of ``torch.optim``, or a ``functools.partial`` of it. Keywords ``lr`` and ``weight_decay`` of a
            partial replace ``learning_rate`` and ``weight_decay``.
        scheduler: A name of ``conf/scheduler``, or a callable that receives the optimiser and returns a learning-rate
            schedule: a function of :mod:`graphrerank.training.schedules`, or a class of ``torch.optim.lr_scheduler``.
        module: Additional arguments of :class:`~graphrerank.training.reranker_module.RerankerModule`, such as
            ``{"divergence": 0.15}``. If None, its defaults are used.
        trainer: Arguments of ``lightning.Trainer`` that override
            :func:`~graphrerank.training.defaults.default_trainer_arguments`, or a ``functools.partial`` of
            ``lightning.Trainer`` that replaces them all. If None, the defaults are used.
        callbacks: A sequence of Lightning callbacks to add to :func:`~graphrerank.training.defaults.default_callbacks`,
            which save the best and the last checkpoint and stop early. A mapping from name to callback, or the name of
            a file of ``conf/callbacks``, replaces the default callbacks instead.
        logger: A Lightning logger or a sequence of loggers. If None, nothing is logged.
        run_dir: Folder of the run. The model is written to the subfolder ``name``. If None, a new folder in
            ``runs/fit`` is used.
        name: Name of the model in result tables and of its folder. If None, the name of ``model`` is used.
        resume: Folder of a training run with the same arguments, or one of its ``.ckpt`` files. An interrupted run
            continues where it stopped, and a finished one is trained further if the maximum number of epochs is larger
            than before. If None, a new training run starts.
        parts: Factory that builds components by name; it also sets the device, the number of threads and the cache. If
            None, a factory with the folders of ``conf/paths`` is used.
        config: Configuration to record in the manifest. If None, the seed and the validation split are recorded.
        settings: Settings of the training. The arguments from ``seed`` to ``restart_probs`` override the fields of the
            same name. If None, the defaults of these arguments are used.
        seed: Seed of the initial weights, the order of the queries, the augmentation and dropout.
        batch_size: Number of queries per optimiser step, summed over all devices.
        num_workers: Number of processes that build batches. The result does not depend on it. If None, several
            processes build the batches of a GPU, and none those of a CPU.
        prefetch: Number of batches that each process builds in advance. If None, two. Only used with processes.
        max_nodes: Maximum number of candidates per batch, summed over all devices. If ``max_nodes`` or ``max_edges`` is
            set, a batch has as many queries of similar size as fit, and ``batch_size`` is ignored. If None, it is not
            limited.
        max_edges: Maximum number of edges per batch, before augmentation. If None, it is not limited.
        buffer: Number of training queries that are shuffled together. If set, the candidates of all queries are written
            to files instead of being loaded into memory, and batches are read from there. If None, all candidates are
            in memory and all training queries are shuffled together.
        train_split: Split to train on.
        val_split: Split that selects the epoch, tunes the restart probabilities and calibrates the scores.
        test_split: Split of ``Trainer.test`` and ``Trainer.predict``, such as for the callback
            :class:`~graphrerank.training.predictions.TrecRunWriter`. Not used by the training itself.
        shares: Relative share of the batches per data set, by name. If None, each data set's share is proportional to
            its number of training queries.
        augmentation: Arguments of :class:`~graphrerank.data.augmentation.CandidateAugmentation`, which perturbs the
            training batches; probabilities in [0, 1]. Empty disables augmentation.
        cross_encoder_queries: Number of training queries whose candidates the cross-encoder scores; half as many
            validation queries are scored. Either one number for every data set, or numbers by name of data set (0 for
            data sets that are not named). Only used if the features contain cross-encoder scores. If None, all queries
            are scored.
        num_queries: Number of queries per split, evenly spaced over the split, for a quick trial. If None, all queries
            are used.
        start: Finished checkpoint to initialise the weights from: a run folder, a ``.ckpt`` file, an artifact or the
            name of a shipped checkpoint. If None, the weights are random.
        train_only: Prefixes (up to the first dot) of the names of the parameters to train; all others are frozen. If
            None, all parameters are trained.
        calibration: ``"logistic"`` calibrates scores to probabilities of relevance on the validation split, ``"start"``
            reuses the calibration of ``start``, and None disables calibration.
        max_epochs: Maximum number of epochs. If None, the trainer's own value is used, which is 4 by default.
        learning_rate: Peak learning rate, reached at the end of the warm-up.
        weight_decay: Weight decay. Applied to weight matrices only, not to biases or norms.
        warmup_steps: Number of optimiser steps of the linear warm-up, shortened to at most a tenth of the training.
        parameter_groups: Learning rate, or mapping with ``learning_rate`` and ``weight_decay``, by prefix of the names
            of the model's parameters, such as ``{"lin_in": 1e-4}``. If None, all parameters share ``learning_rate`` and
            ``weight_decay``.
        restart_probs: Restart probabilities in (0, 1) of the baselines ``gcs`` and ``ppr``, stored in the manifest. A
            probability that is missing or None is tuned on the validation split.

    Returns:
        Reranker with the weights of the best epoch. Its ``source`` is the path of the checkpoint, which every command
        can load. In distributed training, every process returns the reranker.

    Raises:
        ValueError: If an argument is invalid, or no training query has a relevant candidate.

    Example:
        >>> from graphrerank import Dataset, fit
        >>> reranker = fit(Dataset.from_folder("my_data"), max_epochs=2)  # doctest: +SKIP
    """
    changes = passed_fields(
        seed=seed,
        batch_size=batch_size,
        num_workers=num_workers,
        prefetch=prefetch,
        max_nodes=max_nodes,
        max_edges=max_edges,
        buffer=buffer,
        train_split=train_split,
        val_split=val_split,
        test_split=test_split,
        shares=shares,
        augmentation=augmentation,
        cross_encoder_queries=cross_encoder_queries,
        num_queries=num_queries,
        start=start,
        train_only=train_only,
        calibration=calibration,
        max_epochs=max_epochs,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        warmup_steps=warmup_steps,
        parameter_groups=parameter_groups,
        restart_probs=restart_probs,
    )
    return RerankerTrainer(
        model,
        (settings or FitSettings()).with_changes(**changes),
        data,
        retriever=retriever,
        encoder=encoder,
        pair_encoder=pair_encoder,
        features=features,
        loss=loss,
        teacher=teacher,
        optimizer=optimizer,
        scheduler=scheduler,
        module=module_factory(module),
        trainer=built_trainer(trainer),
        callbacks=callbacks,
        logger=logger,
        run_dir=run_dir,
        name=name,
        resume=resume,
        parts=parts,
        config=config,
    ).train()


def module_factory(module: Mapping[str, Any] | None) -> ModuleFactory:
    """Return a callable that builds the Lightning module with additional arguments.

    Args:
        module: Additional arguments of the module. Key ``_target_`` names the class; it defaults to
            :class:`~graphrerank.training.reranker_module.RerankerModule`. If None, there are no additional arguments.

    Returns:
        A ``functools.partial`` of the class.

    Example:
        >>> module_factory({"divergence": 0.15}).keywords
        {'divergence': 0.15}
    """
    if module is not None and "_target_" in module:
        factory: ModuleFactory = build_component({**module, "_partial_": True})
        return factory
    return partial(RerankerModule, **module or {})


def built_trainer(trainer: TrainerArguments | None) -> TrainerArguments | None:
    """Return arguments of ``lightning.Trainer`` in which every setting with a ``_target_`` is built.

    Args:
        trainer: Arguments of ``lightning.Trainer``. A mapping with a ``_target_`` is a complete configuration in the
            form of ``conf/trainer/default.yaml``.

    Returns:
        The arguments. A complete configuration is returned as a ``functools.partial``; None and a
        ``functools.partial`` are returned unchanged.
    """
    if isinstance(trainer, Mapping) and "_target_" in trainer:
        complete: partial[L.Trainer] = build_component({**trainer, "_partial_": True})
        return complete
    if isinstance(trainer, Mapping):
        return {name: built(setting) for name, setting in trainer.items()}
    return trainer


def built(setting: Any) -> Any:
    """Build a setting that has a ``_target_``, or each such setting of a list.

    Args:
        setting: Any setting.

    Returns:
        The object that the setting describes. A setting without a ``_target_`` is returned unchanged.

    Example:
        >>> built({"_target_": "fractions.Fraction", "numerator": 1}), built([2, None])
        (Fraction(1, 1), [2, None])
    """
    if isinstance(setting, Mapping) and "_target_" in setting:
        return build_component(setting)
    return [built(each) for each in setting] if isinstance(setting, list) else setting
