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
from graphrerank.utils.docstrings import arguments_from


@arguments_from(RerankerTrainer, FitSettings)
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
        optimizer: A name of ``conf/optimizer``, or a callable that receives parameter groups and returns an optimiser:
            a class of ``torch.optim``, or a ``functools.partial`` of it. Keywords ``lr`` and ``weight_decay`` of a
            partial replace ``learning_rate`` and ``weight_decay``.
        module: Additional arguments of :class:`~graphrerank.training.reranker_module.RerankerModule`, such as
            ``{"divergence": 0.15}``. If None, its defaults are used.
        trainer: Arguments of ``lightning.Trainer`` that override
            :func:`~graphrerank.training.defaults.default_trainer_arguments`, or a ``functools.partial`` of
            ``lightning.Trainer`` that replaces them all. If None, the defaults are used.
        settings: Settings of the training. The arguments from ``seed`` to ``restart_probs`` override the fields of the
            same name. If None, the defaults of these arguments are used.

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
