"""Checks of a training run's arguments before anything is computed, with one-line errors."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

import lightning as L
import torch
from lightning.pytorch.loggers import Logger
from torch import nn

from graphrerank.config.command_settings import check_type, suggestion
from graphrerank.core.candidate_graphs import CandidateGraphs
from graphrerank.core.model_inputs import ModelInputs
from graphrerank.training.defaults import with_precision
from graphrerank.training.reranker_module import RerankerModule
from graphrerank.utils.checks import UserError


def check_data(data: Any) -> None:
    """Check that ``data`` can describe data sets.

    Args:
        data: Argument ``data`` of :func:`~graphrerank.training.fit.fit`.

    Raises:
        ValueError: If ``data`` is None or a sequence.

    Example:
        >>> check_data("attack")
        >>> check_data(None)
        Traceback (most recent call last):
        ...
        graphrerank.utils.checks.UserError: `data` must be a Dataset, a name, a folder or a mapping of these, got None
    """
    if data is None or (isinstance(data, Sequence) and not isinstance(data, str)):
        needed = "a Dataset, a name, a folder or a mapping of these"
        raise UserError(f"`data` must be {needed}, got {'None' if data is None else type(data).__name__}")


def check_model(model: nn.Module) -> None:
    """Check that a model declares the inputs of its ``forward``.

    Args:
        model: Model that the caller built.

    Raises:
        ValueError: If ``inputs`` is missing, or is not a :class:`~graphrerank.core.ModelInputs`.
    """
    if not isinstance(getattr(model, "inputs", None), ModelInputs):
        raise UserError(
            "`model` must have an attribute `inputs` that names the arguments of its forward, such as "
            f"ModelInputs(('base_features', 'edge_index')), got {type(model).__name__} without it"
        )


def check_logger(logger: Any) -> None:
    """Check that every logger is a Lightning logger.

    Args:
        logger: Argument ``logger`` of :func:`~graphrerank.training.fit.fit`.

    Raises:
        ValueError: If an object is not a Lightning logger.
    """
    loggers = logger if isinstance(logger, Sequence) and not isinstance(logger, str) else [logger]
    for entry in loggers:
        if not isinstance(entry, Logger | bool | None):
            advice = "lightning.pytorch.loggers.WandbLogger(...)"
            raise UserError(f"`logger` must be a Lightning logger such as {advice}, got {entry!r}")


def check_trainer_arguments(arguments: Mapping[str, Any]) -> None:
    """Check the names of arguments of ``lightning.Trainer``, and the types of plain values.

    Args:
        arguments: Arguments of the trainer by name. Keys that begin with ``_`` belong to Hydra and are ignored.

    Raises:
        ValueError: If an argument does not exist or has a wrong type. The message names the argument.

    Example:
        >>> check_trainer_arguments({"max_epochs": 3, "precision": "bf16-mixed"})
    """
    constructor = L.Trainer.__init__
    names = [name for name in inspect.signature(L.Trainer).parameters if name != "self"]
    hints = get_type_hints(getattr(constructor, "__wrapped__", constructor))
    for name, argument in with_precision(arguments).items():
        if name.startswith("_"):
            continue
        if name not in names:
            advice = suggestion(name, names) or f". It has {', '.join(names)}"
            raise UserError(f"`trainer.{name}` is not an argument of lightning.Trainer{advice}")
        if isinstance(argument, str | int | float | bool):
            check_type(argument, hints.get(name, Any), f"trainer.{name}")


def check_first_batch(module: RerankerModule, graphs: CandidateGraphs, feature_names: Sequence[str]) -> None:
    """Score a batch and compute its loss, so that an invalid model or loss fails before the training starts.

    Weights, random numbers and statistics of layers do not change.

    Args:
        module: Module with the model and the loss.
        graphs: Batch of candidate graphs with ``relevance``.
        feature_names: Names of the columns of ``base_features``, for the message.

    Raises:
        ValueError: If the model or the loss raises an error, or the scores do not have shape ``[num_nodes]``.
    """
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            scores = _scores(module, graphs, feature_names)
            _check_loss(module, graphs, scores)
    finally:
        module.train(was_training)


def _scores(module: RerankerModule, graphs: CandidateGraphs, feature_names: Sequence[str]) -> torch.Tensor:
    name, num_nodes = type(module.model).__name__, len(graphs.x)
    try:
        scores = module(graphs)
    except (RuntimeError, TypeError, IndexError, ValueError) as error:
        columns = f"`base_features` has {len(feature_names)} columns: {', '.join(feature_names)}"
        raise UserError(f"the model {name} failed on the first batch: {error}. {columns}") from error
    shape = list(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
    if shape != [num_nodes]:
        advice = ". Remove the last dimension with squeeze(1)" if shape == [num_nodes, 1] else ""
        raise UserError(
            f"the model {name} must return one score per candidate, shape [{num_nodes}], got {shape}{advice}"
        )
    return scores


def _check_loss(module: RerankerModule, graphs: CandidateGraphs, scores: torch.Tensor) -> None:
    needed = "a function of scores, relevance and mask, each [num_queries, num_candidates], that returns a scalar"
    try:
        loss, _ = module.loss_of(graphs, scores)
    except (RuntimeError, TypeError, IndexError, ValueError) as error:
        raise UserError(f"`loss` must be {needed}, but it failed on the first batch: {error}") from error
    if loss.dim():
        raise UserError(f"`loss` must be {needed}, got shape {list(loss.shape)}")
