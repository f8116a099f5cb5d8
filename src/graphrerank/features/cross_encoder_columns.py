"""A cross-encoder's scores of the first candidates, as scores of a candidate that a graph reranker reads."""

import torch
from torch import Tensor


def cross_encoder_columns(scores: Tensor, read: Tensor) -> Tensor:
    """Turn a cross-encoder's scores of some candidates into columns of any scale's scores alike.

    Of a candidate that was read: its score, min-max scaled among those read; 1 / its rank among them, ties by place;
    and 0. Of the others of the list: 0, 0 and 1. Where nothing was read, all is 0, as where a model's columns are
    hidden.

    Args:
        scores: ``[..., K]``, of any scale; not looked at where nothing was read.
        read: ``[..., K]`` bool, which candidates the cross-encoder has read.

    Returns:
        ``[..., K, 3]`` float32 in [0, 1], columns as in ``CROSS_ENCODER_FEATURES``.

    Example:
        >>> cross_encoder_columns(torch.tensor([-9.0, 3.0, -3.0, 0.0]), torch.tensor([True, True, True, False]))
        tensor([[0.0000, 0.3333, 0.0000],
                [1.0000, 1.0000, 0.0000],
                [0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 1.0000]])
    """
    scores = scores.float()
    low = scores.masked_fill(~read, torch.inf).amin(-1, keepdim=True)
    high = scores.masked_fill(~read, -torch.inf).amax(-1, keepdim=True)
    scaled = (scores - low) / torch.where(high > low, high - low, 1.0)
    order = scores.masked_fill(~read, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(-1, order, torch.arange(scores.shape[-1]).expand_as(order)) + 1
    unread = ~read & read.any(-1, keepdim=True)
    columns = [scaled.masked_fill(~read, 0.0), (1 / rank).masked_fill(~read, 0.0), unread.float()]
    return torch.stack(columns, dim=-1)
