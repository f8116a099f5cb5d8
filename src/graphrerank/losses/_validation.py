"""The argument checks that every loss makes."""

import math

import torch
from torch import Tensor


def check_candidates(scores: Tensor, relevance: Tensor, mask: Tensor) -> None:
    """Refuse a batch whose three tensors do not describe the same candidates.

    Args:
        scores: ``[num_queries, num_candidates]``, floating point.
        relevance: ``[num_queries, num_candidates]``.
        mask: ``[num_queries, num_candidates]``, boolean.

    Raises:
        ValueError: If a shape or dtype is not as above; the message names the argument.

    Example:
        >>> check_candidates(torch.zeros(1, 3), torch.zeros(1, 2), torch.ones(1, 3, dtype=torch.bool))
        Traceback (most recent call last):
        ValueError: `relevance` must have the shape of `scores`, (1, 3), got (1, 2)
    """
    if scores.ndim != 2:
        raise ValueError(f"`scores` must have shape [num_queries, num_candidates], got {tuple(scores.shape)}")
    if not scores.is_floating_point():
        raise ValueError(f"`scores` must be floating point, got {scores.dtype}")
    for name, tensor in (("relevance", relevance), ("mask", mask)):
        if tensor.shape != scores.shape:
            raise ValueError(
                f"`{name}` must have the shape of `scores`, {tuple(scores.shape)}, got {tuple(tensor.shape)}"
            )
    if mask.dtype != torch.bool:
        raise ValueError(f"`mask` must be boolean (True = a real candidate), got {mask.dtype}; use `mask.bool()`")


def check_positive(name: str, number: float) -> None:
    """Refuse a number that is not finite and above 0.

    Args:
        name: The argument's name, for the message.
        number: What the caller passed.

    Raises:
        ValueError: If ``number`` is not finite or not above 0.

    Example:
        >>> check_positive("temperature", 0.0)
        Traceback (most recent call last):
        ValueError: `temperature` must be a finite number above 0, got 0.0
    """
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"`{name}` must be a finite number above 0, got {number}")


def check_top_k(top_k: int) -> None:
    """Refuse a cutoff that is not a positive integer.

    Args:
        top_k: The cutoff rank the caller passed.

    Raises:
        ValueError: If ``top_k`` is not an integer of at least 1.

    Example:
        >>> check_top_k(0)
        Traceback (most recent call last):
        ValueError: `top_k` must be a positive integer, got 0
    """
    if not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 1:
        raise ValueError(f"`top_k` must be a positive integer, got {top_k!r}")
