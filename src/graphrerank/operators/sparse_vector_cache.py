"""Sparse vectors of texts on disk: nothing is encoded twice, and an interrupted run continues."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.caching import TensorStore, fill, hash_text
from graphrerank.graphs.sparse_rows import row_slots

SHARD_TEXTS = 4096  # texts encoded between two writes: at most this much work is lost on a stop
TENSORS = ("indptr", "indices", "weights", "num_columns")


class SparseVectorCache:
    """Sparse vectors of one encoder.

    They lie in ``<folder>/*.safetensors``, each file holding the SHA-256 of its texts and their vectors in compressed
    sparse rows. New texts go to new files, so adding documents to a corpus encodes only those. The folder is this
    encoder's alone; ``encode`` encodes ``n`` texts as a sparse ``[n, V]`` matrix.
    """

    def __init__(self, folder: Path, encode: Callable[[Sequence[str]], Tensor]) -> None:
        self._store = TensorStore(folder, TENSORS, _check)
        self._encode = encode

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return ``[n, V]`` float32 in compressed sparse rows of one text or more, from disk if cached."""
        keys = [hash_text(text) for text in texts]
        fill(self._store, keys, texts, self._encode_shard, shard_size=SHARD_TEXTS, length=len)
        return _gather(self._store.shards, *self._store.rows(keys))

    def _encode_shard(self, texts: list[str]) -> dict[str, Tensor]:
        encoded = self._encode(texts).float()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
            matrix = encoded.to_sparse_csr()
        compressed = (matrix.crow_indices(), matrix.col_indices(), matrix.values(), torch.tensor(matrix.shape[1]))
        shard = dict(zip(TENSORS, compressed, strict=True))
        _check(shard, len(texts), "the sparse encoder's vectors")
        return shard


def _gather(shards: Sequence[Mapping[str, Tensor]], shard: Tensor, row: Tensor) -> Tensor:
    """Put rows of shards, ``[n]`` each, under each other."""
    width = {int(table["num_columns"]) for table in shards}
    if len(width) > 1:
        raise ValueError(f"needed sparse vectors of one width, the cache holds some of {sorted(width)}: delete it")
    first = torch.tensor([0, *(len(table["indptr"]) - 1 for table in shards)]).cumsum(0)
    entries = torch.tensor([0, *(len(table["indices"]) for table in shards)]).cumsum(0).tolist()
    ends = [table["indptr"][1:] + before for table, before in zip(shards, entries, strict=False)]
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), *ends])
    rows = first[shard] + row
    _, slot = row_slots(indptr, rows)
    length = indptr[rows + 1] - indptr[rows]
    starts = torch.cat([length.new_zeros(1), length.cumsum(0)])
    indices, weights = (torch.cat([table[name] for table in shards])[slot] for name in ("indices", "weights"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
        return torch.sparse_csr_tensor(starts, indices, weights, (len(rows), width.pop()), check_invariants=False)


def _check(shard: Mapping[str, Tensor], count: int, source: str) -> None:
    indptr, indices, weights, num_columns = (shard[name] for name in TENSORS)
    fits = indptr.shape == (count + 1,) and weights.dim() == 1 and indices.shape == weights.shape
    fits = fits and num_columns.dim() == 0 and int(indptr[0]) == 0 and int(indptr[-1]) == len(indices)
    fits = fits and bool((indptr.diff() >= 0).all())
    in_range = not indices.numel() or (int(indices.min()) >= 0 and int(indices.max()) < int(num_columns))
    if not fits or not in_range or not bool(torch.isfinite(weights).all()):
        shapes = {name: list(shard[name].shape) for name in TENSORS}
        raise ValueError(f"{source}: needed {count} finite sparse rows, got tensors of shapes {shapes}")
