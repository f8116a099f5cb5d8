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
from graphrerank.training.settings import FitSettings
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
    **changes: Any,
) -> GraphReranker:
    """Train a reranker, calibrate it on the validation split, and return it.

    It is ``RerankerTrainer(...).train()``; :class:`~graphrerank.training.trainer.RerankerTrainer` has the single steps.
    ComponentFactory are names of ``conf``, settings in the form of a file of ``conf``, or built objects.

    Args:
        data: A data set, its name or the path of its folder; or several by name, which are trained on together.
        retriever: Retriever that produces the candidates.
        encoder: Encoder of texts. None for models and retrievers that read no vectors.
        pair_encoder: Cross-encoder, for features that read its scores. None for none.
        features: Features that the model reads: a name of ``conf/features`` or its settings.
        model: A name of ``conf/model``, an ``nn.Module`` whose ``inputs`` name the tensors of its ``forward``, or a
            class of such modules. If its constructor takes ``num_scores`` or ``embedding_dim``, a class gets these
            sizes of the data.
        loss: A name of ``conf/loss``, or a function of padded scores, relevance and mask, each ``[B, K]``, that
            returns a scalar.
        module: Further arguments of :class:`~graphrerank.training.reranker_module.RerankerModule`, such as
            ``{"divergence": 0.15}``. None for its defaults.
        trainer: Arguments of ``lightning.Trainer`` that replace those of
            :func:`~graphrerank.training.defaults.default_trainer_arguments`. None for these.
        callbacks: Lightning callbacks in addition to :func:`~graphrerank.training.defaults.default_callbacks`, which
            keep the best and the last checkpoint and stop early; or callbacks by name, or the name of a file of
            ``conf/callbacks``, which replace these.
        logger: A Lightning logger or several. None for none.
        run_dir: Folder of the run, in which the model gets a folder with its name. None for a new one below
            ``runs/fit``.
        name: Name of the model in tables and of its folder. None for that of ``model``.
        resume: Run folder of an interrupted call with the same arguments, or one of its ``.ckpt`` files. None starts a
            new training.
        parts: Builds parts by their names, and says where they run. None for the folders of ``conf/paths``.
        config: Configuration that the manifest records. None for the seed and the validation split.
        settings: Settings of the training. None for the defaults.
        **changes: Fields of :class:`~graphrerank.training.settings.FitSettings` that replace those of ``settings``:
            ``max_epochs``, ``learning_rate``, ``seed``, ``batch_size``, ``train_split``, ``start`` and the like.

    Returns:
        The reranker with the weights of the best epoch; ``source`` is its checkpoint, which every command loads. In a
        training by several processes each of them returns it.

    Raises:
        ValueError: If an argument is unknown or does not fit, or no training query has a relevant candidate.

    Example:
        >>> from graphrerank import Dataset, fit
        >>> reranker = fit(Dataset.from_folder("my_data"), max_epochs=2)  # doctest: +SKIP
    """
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
