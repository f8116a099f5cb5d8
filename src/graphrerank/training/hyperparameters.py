"""Hyperparameters of Lightning modules as plain data, so that a checkpoint can rebuild its module without unpickling.

A checkpoint contains names and plain settings. A name is only looked up among the registered models
(:mod:`graphrerank.models.registry`) and in :mod:`graphrerank.losses`. A checkpoint cannot cause any other import.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from graphrerank import losses
from graphrerank.core.reranker import CheckpointModel
from graphrerank.models.checkpoint import load_checkpoint
from graphrerank.models.manifest import MANIFEST, manifest_folder
from graphrerank.models.registry import find_model, register_model
from graphrerank.training.weighted_loss import WeightedLoss
from graphrerank.utils.checks import UserError

WEIGHTED = "weighted"  # name of a WeightedLoss in descriptions


def is_plain(setting: Any) -> bool:
    """Return whether a setting consists of None, strings, numbers, lists, tuples and dictionaries only.

    Args:
        setting: Any object.

    Example:
        >>> is_plain({"heads": 4, "measures": ["PR@5"]}), is_plain(print)
        (True, False)
    """
    if isinstance(setting, Mapping):
        return type(setting) is dict and all(isinstance(key, str) and is_plain(each) for key, each in setting.items())
    if isinstance(setting, list | tuple):
        return type(setting) in (list, tuple) and all(map(is_plain, setting))
    return setting is None or type(setting) in (str, int, float, bool)


def model_entry(model: nn.Module) -> dict[str, Any] | None:
    """Describe a model by its registered name and the arguments of its constructor. The class is registered.

    Args:
        model: Model of a module.

    Returns:
        Entries ``name`` and ``arguments``. None if the class is not a subclass of
        :class:`~graphrerank.core.CheckpointModel`, or an argument is not plain data.
    """
    if not isinstance(model, CheckpointModel) or not is_plain(model.constructor_settings()):
        return None
    return {"name": register_model(type(model)), "arguments": model.constructor_settings()}


def loss_entry(loss: Any) -> dict[str, Any]:
    """Describe a loss by its name and its arguments.

    Args:
        loss: Function, ``functools.partial`` of a function, or callable object.

    Returns:
        Entries ``name`` and ``arguments``. The name of a loss of :mod:`graphrerank.losses` is its name there. Other
        names contain the name of the module.

    Example:
        >>> loss_entry(partial(losses.smooth_perfect_recall, top_k=5))
        {'name': 'smooth_perfect_recall', 'arguments': {'top_k': 5}}
    """
    if isinstance(loss, WeightedLoss):
        return {"name": WEIGHTED, "arguments": {"terms": [[term.weight, loss_entry(term.loss)] for term in loss.terms]}}
    arguments: dict[str, Any] = {}
    while isinstance(loss, partial):
        arguments = {**loss.keywords, **arguments}
        loss = loss.func
    if is_dataclass(loss) and not isinstance(loss, type):
        arguments = {field.name: getattr(loss, field.name) for field in fields(loss) if field.init}
    function = loss if hasattr(loss, "__qualname__") else type(loss)
    name = function.__name__
    if getattr(losses, name, None) is not function:
        name = f"{function.__module__}.{function.__qualname__}"
    return {"name": name, "arguments": {key: plain_or_name(setting) for key, setting in arguments.items()}}


def plain_or_name(setting: Any) -> Any:
    """Return a plain setting unchanged, and describe any other object.

    Args:
        setting: Setting of a loss or of a module.

    Returns:
        Lists and dictionaries with their elements described, the description of a callable
        (:func:`loss_entry`), or the name of the class of another object.
    """
    if is_plain(setting):
        return setting
    if isinstance(setting, Mapping):
        return {str(key): plain_or_name(each) for key, each in setting.items()}
    if isinstance(setting, Sequence):
        return [plain_or_name(each) for each in setting]
    return loss_entry(setting) if callable(setting) else type(setting).__qualname__


def build_loss(entry: Mapping[str, Any] | None) -> Any:
    """Build a loss of :mod:`graphrerank.losses` from its description.

    Args:
        entry: Result of :func:`loss_entry`. None if the checkpoint has none.

    Returns:
        Function of scores, relevance and mask.

    Raises:
        UserError: If the loss is not in :mod:`graphrerank.losses`, so that the caller must pass it.
    """
    name = "" if entry is None else str(entry["name"])
    if entry is not None and name == WEIGHTED:
        return WeightedLoss({build_loss(term): weight for weight, term in entry["arguments"]["terms"]})
    if entry is None or name not in losses.__all__ or not is_plain(entry["arguments"]):
        trained_with = f"was trained with {name}" if name else "does not name its loss"
        raise UserError(
            f"`loss` must be passed to load_from_checkpoint, because the checkpoint {trained_with} and only losses of "
            "graphrerank.losses are found by their name"
        )
    function = getattr(losses, name)
    if isinstance(function, type):
        return function(**entry["arguments"])
    return partial(function, **entry["arguments"]) if entry["arguments"] else function


def build_checkpoint_model(path: Path, entry: Mapping[str, Any] | None) -> nn.Module:
    """Build the model of a checkpoint from its hyperparameters, or from the manifest of its run.

    Args:
        path: Path of the ``.ckpt`` file.
        entry: Result of :func:`model_entry`. None if the checkpoint has none.

    Returns:
        Model with new weights, or with those of the checkpoint.

    Raises:
        UserError: If neither describes the model, or if the model is not registered.
    """
    if entry is not None:
        try:
            return find_model(entry["name"])(**entry["arguments"])
        except UserError as error:
            raise UserError(f"{path}: `model` {error}, or pass model= to load_from_checkpoint") from error
    try:
        manifest_folder(path)
    except UserError as error:
        raise UserError(
            f"`model` must be passed to load_from_checkpoint, because neither {path} nor a {MANIFEST} next to it "
            "describes how to build the model"
        ) from error
    return load_checkpoint(path).model
