"""Settings of a training run, such as the seed, the splits, the number of epochs and the learning rate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from graphrerank.utils.checks import UserError, check_choice, check_counts, similar_name

FROM_START = "start"  # value of `calibration` that reuses the calibration of the checkpoint `start`


@dataclass(frozen=True)
class FitSettings:
    """Settings of a training run. The defaults are those of ``graphrerank train``.

    Attributes:
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
        calibration: ``"logistic"`` calibrates scores to probabilities of relevance on the validation split,
            ``"start"`` reuses the calibration of ``start``, and None disables calibration.
        max_epochs: Maximum number of epochs. If None, the trainer's own value is used, which is 4 by default.
        learning_rate: Peak learning rate, reached at the end of the warm-up.
        weight_decay: Weight decay. Applied to weight matrices only, not to biases or norms.
        warmup_steps: Number of optimiser steps of the linear warm-up, shortened to at most a tenth of the training.
        parameter_groups: Learning rate, or mapping with ``learning_rate`` and ``weight_decay``, by prefix of the names
            of the model's parameters, such as ``{"lin_in": 1e-4}``. If None, all parameters share ``learning_rate``
            and ``weight_decay``.
        restart_probs: Restart probabilities in (0, 1) of the baselines ``gcs`` and ``ppr``, stored in the manifest. A
            probability that is missing or None is tuned on the validation split.

    Raises:
        ValueError: If ``num_queries`` is not positive, ``calibration`` is unknown, or ``calibration`` is ``"start"``
            and ``start`` is None.

    Example:
        >>> settings = FitSettings(seed=2, max_epochs=1)
        >>> settings.batch_size, settings.learning_rate
        (32, 0.003)
    """

    seed: int = 1
    batch_size: int = 32
    num_workers: int | None = None
    prefetch: int | None = None
    max_nodes: int | None = None
    max_edges: int | None = None
    buffer: int | None = None
    train_split: str = "train"
    val_split: str = "val"
    test_split: str = "test"
    shares: Mapping[str, float] | None = None
    augmentation: Mapping[str, float] = field(default_factory=dict)
    cross_encoder_queries: int | Mapping[str, int] | None = None
    num_queries: int | None = None
    start: str | None = None
    train_only: Sequence[str] | None = None
    calibration: str | None = "logistic"
    max_epochs: int | None = None
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    warmup_steps: int = 100
    parameter_groups: Mapping[str, float | Mapping[str, float]] | None = None
    restart_probs: Mapping[str, float | None] | None = None

    def __post_init__(self) -> None:
        check_counts(prefetch=self.prefetch, max_nodes=self.max_nodes, max_edges=self.max_edges, buffer=self.buffer)
        if self.num_queries is not None:
            check_counts(num_queries=self.num_queries)
        if self.max_epochs is not None and self.max_epochs != -1:
            check_counts(max_epochs=self.max_epochs)
        if self.calibration == FROM_START and self.start is None:
            raise UserError("`start` must be a checkpoint if `calibration` is 'start', got null")
        if self.calibration is not None:
            check_choice(("logistic", FROM_START), calibration=self.calibration)

    def with_changes(self, **changes: Any) -> "FitSettings":
        """Return a copy of the settings with changed fields.

        Args:
            **changes: New values by field name.

        Returns:
            The changed settings.

        Raises:
            ValueError: If a field does not exist or a value is invalid. The message names the field.

        Example:
            >>> FitSettings().with_changes(seed=3).seed
            3
        """
        names = [each.name for each in fields(self)]
        if unknown := [name for name in changes if name not in names]:
            similar = similar_name(unknown[0], names)
            advice = f"The settings are {names}" if similar is None else f"Did you mean {similar!r}?"
            raise UserError(f"unknown training setting {unknown[0]!r}. {advice}")
        return replace(self, **changes)


DEFAULTS = FitSettings()


class FieldDefault:
    """Sentinel for an argument that the caller did not pass.

    Functions that accept both :class:`FitSettings` and its single fields use this sentinel as the default of each
    field, to tell whether the field was passed. ``help`` shows the default value of the field.

    Args:
        name: Name of the field of :class:`FitSettings`.

    Example:
        >>> FieldDefault("batch_size")
        32
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        """Return the default value in ``FitSettings``, so that ``help`` shows this value in signatures."""
        return repr(getattr(DEFAULTS, self.name))


def field_default(name: str) -> Any:
    """Return a :class:`FieldDefault` typed as ``Any``, so that it can be the default of an argument of any type.

    Args:
        name: Name of the field of :class:`FitSettings`.

    Returns:
        The sentinel.
    """
    return FieldDefault(name)


def passed_fields(**arguments: Any) -> dict[str, Any]:
    """Return the arguments that the caller passed.

    Args:
        **arguments: Arguments by field name of :class:`FitSettings`.

    Returns:
        All arguments that are not a :class:`FieldDefault`.

    Example:
        >>> passed_fields(seed=3, batch_size=field_default("batch_size"))
        {'seed': 3}
    """
    return {name: argument for name, argument in arguments.items() if not isinstance(argument, FieldDefault)}
