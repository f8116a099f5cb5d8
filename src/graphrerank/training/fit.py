"""Train a reranker with one call."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from graphrerank.config.components import ComponentFactory, build_component
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.training.reranker_module import RerankerModule
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
    train_split: str = field_default("train_split"),
    val_split: str = field_default("val_split"),
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
    restart_probs: Mapping[str, float | None] | None = field_default("restart_probs"),
) -> GraphReranker:
    """Train a reranker, calibrate it on the validation split, and return it.

    Same as ``RerankerTrainer(...).train()``; :class:`~graphrerank.training.trainer.RerankerTrainer` has the single
    steps. Components are names of ``conf``, settings in the form of a file of ``conf``, or built objects.

    Args:
        data: A data set, its name or the path of its folder; or several by name, which are trained on together.
        retriever: Retriever that produces the candidates.
        encoder: Text encoder. If None, nothing is encoded, for models and retrievers that read no vectors.
        pair_encoder: Cross-encoder, for features that read its scores and for models that read pairs. If None, there
            is none.
        features: Features that the model reads: a name of ``conf/features`` or its settings.
        model: A name of ``conf/model``, an ``nn.Module`` whose ``inputs`` name the tensors of its ``forward``, or a
            class of such modules. If its constructor takes ``num_scores`` or ``embedding_dim``, a class gets these
            sizes of the data.
        loss: A name of ``conf/loss``, or a function of padded scores, relevance and mask, each ``[B, K]``, that
            returns a scalar.
        module: Further arguments of :class:`~graphrerank.training.reranker_module.RerankerModule`, such as
            ``{"divergence": 0.15}``. If None, its defaults are used.
        trainer: Arguments of ``lightning.Trainer`` that replace those of
            :func:`~graphrerank.training.defaults.default_trainer_arguments`. If None, none is replaced.
        callbacks: Lightning callbacks in addition to :func:`~graphrerank.training.defaults.default_callbacks`, which
            save the best and the last checkpoint and stop early; or callbacks by name, or the name of a file of
            ``conf/callbacks``, which replace these.
        logger: A Lightning logger or several. If None, nothing is logged.
        run_dir: Folder of the run, in which the model gets a folder with its name. If None, a new folder in
            ``runs/fit``.
        name: Name of the model in tables and of its folder. If None, the name of ``model``.
        resume: Run folder of an interrupted call with the same arguments, or one of its ``.ckpt`` files. If None, a new
            training starts.
        parts: Builds components by their names, and decides where they run. If None, the folders of ``conf/paths``
            are used.
        config: Configuration that the manifest records. If None, the seed and the validation split.
        settings: Settings of the training. The arguments below, which are its fields, replace those of ``settings``. If
            None, the defaults below are used.
        seed: Seed of the initial weights, of the order of the queries, of augmentation and of dropout.
        batch_size: Number of queries per optimiser step, over all devices together.
        train_split: Split to train on.
        val_split: Split on which the epoch is chosen, restart probabilities are tuned and probabilities calibrated.
        shares: Share of the batches by name of data set, relative to each other. If None, the number of training
            queries of each data set.
        augmentation: Arguments of :class:`~graphrerank.data.augmentation.CandidateAugmentation`, which changes the
            training batches: probabilities in [0, 1]. Empty disables it.
        cross_encoder_queries: Number of training queries, and half as many validation queries, whose candidates the
            cross-encoder of ``features.cross_encoder_top_k`` scores: one number for each data set, or numbers by name
            of data set (0 for the others). If None, all queries.
        num_queries: Number of queries of each split, evenly spaced over it, for a trial in minutes. If None, all.
        start: Finished checkpoint whose weights the training begins with: a run folder, a ``.ckpt`` file, an artifact
            or the name of a shipped checkpoint. If None, weights are random.
        train_only: Prefixes (up to the first dot) of the names of the parameters to train; all others are frozen. If
            None, all parameters are trained.
        calibration: ``"logistic"`` fits probabilities of relevance on the validation split, ``"start"`` takes the
            calibration of ``start``, and None leaves scores without probabilities.
        max_epochs: Maximum number of epochs. If None, the number of the trainer's arguments, which is 4 by default.
        learning_rate: Peak learning rate.
        weight_decay: AdamW's weight decay of matrices.
        warmup_steps: Number of optimiser steps of the linear warm-up.
        restart_probs: Restart probabilities in (0, 1) of the frozen operators ``gcs`` and ``ppr``, for the manifest.
            One that is missing or None is chosen on the validation split.

    Returns:
        The reranker with the weights of the best epoch; ``source`` is its checkpoint, which every command loads. In a
        training by several processes each of them returns it.

    Raises:
        ValueError: If an argument does not fit, or no training query has a relevant candidate.

    Example:
        >>> from graphrerank import Dataset, fit
        >>> reranker = fit(Dataset.from_folder("my_data"), max_epochs=2)  # doctest: +SKIP
    """
    changes = passed_fields(
        seed=seed,
        batch_size=batch_size,
        train_split=train_split,
        val_split=val_split,
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
    """Return what builds the Lightning module with further arguments.

    Args:
        module: Arguments, with the class as ``_target_`` if it is not ``RerankerModule``. None for no arguments.

    Example:
        >>> module_factory({"divergence": 0.15}).keywords
        {'divergence': 0.15}
    """
    if module is not None and "_target_" in module:
        factory: ModuleFactory = build_component({**module, "_partial_": True})
        return factory
    return partial(RerankerModule, **module or {})


def built_trainer(trainer: TrainerArguments | None) -> TrainerArguments | None:
    """Return arguments of ``lightning.Trainer`` with those built that are settings of a class.

    Args:
        trainer: Arguments. With a ``_target_`` they are all of them, in the form of ``conf/trainer/default.yaml``.

    Returns:
        The arguments, or a ``functools.partial`` where they are all of them.
    """
    if isinstance(trainer, Mapping) and "_target_" in trainer:
        complete: partial[L.Trainer] = build_component({**trainer, "_partial_": True})
        return complete
    if isinstance(trainer, Mapping):
        return {name: built(setting) for name, setting in trainer.items()}
    return trainer


def built(setting: Any) -> Any:
    """Return the object that a setting describes by its class, as ``_target_``, or a list of these; else the setting.

    Example:
        >>> built({"_target_": "fractions.Fraction", "numerator": 1}), built([2, None])
        (Fraction(1, 1), [2, None])
    """
    if isinstance(setting, Mapping) and "_target_" in setting:
        return build_component(setting)
    return [built(each) for each in setting] if isinstance(setting, list) else setting
