"""Rows of a compressed sparse matrix."""

import torch
from torch import Tensor


def row_entries(indptr: Tensor, indices: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """List what some rows hold, one after the other.

    Args:
        indptr: ``[N + 1]`` int64.
        indices: ``[nnz]`` int64; row ``i`` holds ``indices[indptr[i]:indptr[i + 1]]``.
        rows: ``[R]`` int64.

    Returns:
        For each entry the place of its row in ``rows``, ``[P]``, and the entry, ``[P]``.

    Example:
        >>> row_entries(torch.tensor([0, 2, 3]), torch.tensor([7, 8, 9]), torch.tensor([1, 0]))
        (tensor([0, 1, 1]), tensor([9, 7, 8]))
    """
    origin, slot = row_slots(indptr, rows)
    return origin, indices[slot]


def row_slots(indptr: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """List where some rows' entries lie, one row after the other; as :func:`row_entries`, before the look-up.

    Returns:
        For each entry the place of its row in ``rows``, ``[P]``, and its place among all entries, ``[P]``.
    """
    length = indptr[rows + 1] - indptr[rows]
    origin = torch.repeat_interleave(torch.arange(rows.numel(), device=rows.device), length)
    offset = indptr[rows] - (length.cumsum(0) - length)
    return origin, offset[origin] + torch.arange(origin.numel(), device=rows.device)
