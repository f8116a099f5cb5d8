"""Settings of a training beyond its parts: seed, splits, epochs, learning rate and the like."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from graphrerank.utils.checks import UserError, check_choice, check_counts

FROM_START = "start"  # the calibration of the checkpoint that a training starts from


@dataclass(frozen=True)
class FitSettings:
    """Settings of a training, all with the defaults of ``python train.py``.

    Attributes:
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

    Raises:
        ValueError: If ``num_queries`` is not positive, or ``calibration`` is unknown or needs a ``start``.

    Example:
        >>> settings = FitSettings(seed=2, max_epochs=1)
        >>> settings.batch_size, settings.learning_rate
        (32, 0.003)
    """

    seed: int = 1
    batch_size: int = 32
    train_split: str = "train"
    val_split: str = "val"
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
    restart_probs: Mapping[str, float | None] | None = None

    def __post_init__(self) -> None:
        if self.num_queries is not None:
            check_counts(num_queries=self.num_queries)
        if self.calibration == FROM_START and self.start is None:
            raise UserError("`calibration=start` needs a checkpoint whose calibration is kept, got start=null")
        if self.calibration is not None:
            check_choice(("logistic", FROM_START), calibration=self.calibration)

    def with_changes(self, **changes: Any) -> "FitSettings":
        """Return the settings with some of them changed.

        Args:
            **changes: New values by name of the field.

        Raises:
            ValueError: If there is no field of a name, or a value does not fit. The message names the argument.

        Example:
            >>> FitSettings().with_changes(seed=3).seed
            3
        """
        names = [each.name for each in fields(self)]
        if unknown := [name for name in changes if name not in names]:
            similar = difflib.get_close_matches(unknown[0], names, n=1)
            advice = f"; did you mean {similar[0]!r}?" if similar else f"; the arguments are {names}"
            raise UserError(f"unknown argument {unknown[0]!r} of a training{advice}")
        return replace(self, **changes)


DEFAULTS = FitSettings()


class FieldDefault:
    """Default of an argument that is a field of :class:`FitSettings`, for functions that also take whole settings.

    An argument with this default was not passed, so that the field of the settings applies. ``help`` shows the value.

    Args:
        name: Name of the field.

    Example:
        >>> FieldDefault("batch_size")
        32
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        """Return the default in ``FitSettings``, as ``help`` shows it in a signature."""
        return repr(getattr(DEFAULTS, self.name))


def field_default(name: str) -> Any:
    """Return the :class:`FieldDefault` of a field, for a signature that has the type of the field.

    Args:
        name: Name of the field.

    Returns:
        The default.
    """
    return FieldDefault(name)


def passed_fields(**arguments: Any) -> dict[str, Any]:
    """Return the arguments that a caller has passed.

    Args:
        **arguments: Arguments by name of the field of :class:`FitSettings`.

    Returns:
        Those without a :class:`FieldDefault`.

    Example:
        >>> passed_fields(seed=3, batch_size=field_default("batch_size"))
        {'seed': 3}
    """
    return {name: argument for name, argument in arguments.items() if not isinstance(argument, FieldDefault)}
