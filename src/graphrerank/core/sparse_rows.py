"""Rows of compressed sparse and of padded matrices."""

import warnings

import torch
from torch import Tensor


def row_entries(indptr: Tensor, indices: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """List entries ``indices[indptr[i]:indptr[i + 1]]`` of rows ``[R]``: positions in ``rows`` and entries ``[P]``."""
    origin, slot = row_slots(indptr, rows)
    return origin, indices[slot]


def row_slots(
    indptr: Tensor, rows: Tensor, row_stop: Tensor | None = None, *, num_slots: int | None = None
) -> tuple[Tensor, Tensor]:
    """List as :func:`row_entries`, with the place of each entry among all in place of the entry.

    Row ``i`` ends at ``row_stop[i]``, ``[N]``; where the next begins when None. ``num_slots``, their number if it is
    known, spares a device the wait for it.
    """
    length = (indptr[rows + 1] if row_stop is None else row_stop[rows]) - indptr[rows]
    origin = torch.repeat_interleave(torch.arange(rows.numel(), device=rows.device), length, output_size=num_slots)
    offset = indptr[rows] - (length.cumsum(0) - length)
    return origin, offset[origin] + torch.arange(origin.numel(), device=rows.device)


def positions_in_rows(row: Tensor) -> Tensor:
    """Return the position of each entry within its row ``[P]``, ascending."""
    row = row.contiguous()
    return torch.arange(len(row), device=row.device) - torch.searchsorted(row, row)


def pad_rows(row: Tensor, entries: Tensor, num_rows: int, *, fill: float) -> Tensor:
    """Arrange entries ``[P]`` by their rows ``[P]``, ascending, in a matrix as wide as the longest row."""
    position = positions_in_rows(row)
    width = int(position.max()) + 1 if len(row) else 0
    return entries.new_full((num_rows, width), fill).index_put((row, position), entries)


def sparse_matrix(indptr: Tensor, indices: Tensor, entries: Tensor, num_columns: int) -> Tensor:
    """Build a sparse matrix ``[N, num_columns]`` of torch; without its warning that such matrices are new."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
        size = (len(indptr) - 1, num_columns)
        return torch.sparse_csr_tensor(indptr, indices, entries, size, check_invariants=False)
