"""Padded batches of queries: check them, blank the padding, average the queries."""

import torch
from torch import Tensor


def blank_padding(scores: Tensor, relevance: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Check a batch, and set padded slots to 0: NaN or infinity in them must not reach the loss or its gradient.

    Half precision is raised to float32: sums over a few hundred candidates do not fit into bfloat16.

    Example:
        >>> blank_padding(torch.tensor([[2.0, torch.nan]]), torch.tensor([[1, 1]]), torch.tensor([[True, False]]))
        (tensor([[2., 0.]]), tensor([[1., 0.]]))
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
    dtype = torch.promote_types(scores.dtype, torch.float32)
    return torch.where(mask, scores.to(dtype), 0.0), torch.where(mask, relevance.to(dtype), 0.0)


def mean_over_queries(per_query: Tensor, relevance: Tensor) -> Tensor:
    """Average a per-query loss over the queries that have a relevant candidate.

    Example:
        >>> mean_over_queries(torch.tensor([3.0, 5.0]), torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
        tensor(3.)
    """
    counted = (relevance > 0).any(dim=1)  # [num_queries]
    return torch.where(counted, per_query, 0.0).sum() / counted.sum().clamp(min=1)
