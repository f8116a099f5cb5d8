"""Operations on the rows of CSR matrices and of padded matrices."""

import warnings

import torch
from torch import Tensor


def row_entries(indptr: Tensor, indices: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the entries ``indices[indptr[i]:indptr[i + 1]]`` of the given rows.

    Args:
        indptr: Row pointers ``[N + 1]``.
        indices: Entries of all rows, ``[E]``.
        rows: Rows to look up, ``[R]``.

    Returns:
        Position in ``rows`` of each entry, ``[P]``, and the entries ``[P]``.
    """
    origin, slot = row_slots(indptr, rows)
    return origin, indices[slot]


def row_slots(
    indptr: Tensor, rows: Tensor, row_stop: Tensor | None = None, *, num_slots: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the positions of the entries of the given rows.

    Args:
        indptr: Row pointers ``[N + 1]``.
        rows: Rows to look up, ``[R]``.
        row_stop: End of each row, ``[N]``. If None, each row ends where the next one starts.
        num_slots: Total number of entries, if known. It avoids a synchronisation with the GPU.

    Returns:
        Position in ``rows`` of each entry, ``[P]``, and the positions of the entries ``[P]``.
    """
    length = (indptr[rows + 1] if row_stop is None else row_stop[rows]) - indptr[rows]
    origin = torch.repeat_interleave(torch.arange(rows.numel(), device=rows.device), length, output_size=num_slots)
    offset = indptr[rows] - (length.cumsum(0) - length)
    return origin, offset[origin] + torch.arange(origin.numel(), device=rows.device)


def positions_in_rows(row: Tensor) -> Tensor:
    """Return the position of each entry within its row.

    Args:
        row: Row of each entry, ``[P]``, in ascending order.

    Returns:
        Positions ``[P]``, counted from 0.
    """
    row = row.contiguous()
    return torch.arange(len(row), device=row.device) - torch.searchsorted(row, row)


def pad_rows(row: Tensor, entries: Tensor, num_rows: int, *, fill: float) -> Tensor:
    """Arrange entries in a matrix that is as wide as the longest row.

    Args:
        row: Row of each entry, ``[P]``, in ascending order.
        entries: Entries ``[P]``.
        num_rows: Number of rows of the matrix.
        fill: Value of the padding.

    Returns:
        Matrix ``[num_rows, W]``.
    """
    position = positions_in_rows(row)
    width = int(position.max()) + 1 if len(row) else 0
    return entries.new_full((num_rows, width), fill).index_put((row, position), entries)


def sparse_matrix(indptr: Tensor, indices: Tensor, entries: Tensor, num_columns: int) -> Tensor:
    """Build a CSR matrix without PyTorch's warning that such matrices are in beta state.

    Args:
        indptr: Row pointers ``[N + 1]``.
        indices: Column of each entry, ``[E]``.
        entries: Values of the entries, ``[E]``.
        num_columns: Number of columns.

    Returns:
        Sparse matrix ``[N, num_columns]``.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
        size = (len(indptr) - 1, num_columns)
        return torch.sparse_csr_tensor(indptr, indices, entries, size, check_invariants=False)
