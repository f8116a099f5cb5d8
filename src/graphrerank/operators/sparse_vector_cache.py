"""Sparse vectors on disk, keyed by the text: nothing is encoded twice, and an interrupted run goes on."""

import hashlib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.files import hash_text, load_tensors, save_tensors
from graphrerank.graphs.sparse_rows import row_slots

SHARD_TEXTS = 4096  # texts encoded between two writes: at most this much work is lost on a stop
TENSORS = ("keys", "indptr", "indices", "weights", "num_columns")


class SparseVectorCache:
    """Sparse vectors of one encoder.

    They lie in ``<shelf>/*.safetensors``, each file holding the SHA-256 of its texts and their vectors in compressed
    sparse rows. New texts go to new files, so adding documents to a corpus encodes only those.

    Args:
        shelf: Folder of this encoder's files alone.
        encode: Encodes ``n`` texts as a sparse ``[n, V]`` matrix.
    """

    def __init__(self, shelf: Path, encode: Callable[[Sequence[str]], Tensor]) -> None:
        self.shelf = shelf
        self._encode = encode

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return ``[n, V]`` float32 in compressed sparse rows, from disk where they are there.

        Args:
            texts: ``n`` texts, at least 1.

        Raises:
            ValueError: If a cache file is damaged, naming it; or the encoder's vectors are not finite.
        """
        keys = [hash_text(text) for text in texts]
        place, shards = self._read()
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in place}
        order = sorted(missing, key=lambda key: len(missing[key]))  # like lengths together: less padding
        for start in range(0, len(order), SHARD_TEXTS):
            part = order[start : start + SHARD_TEXTS]
            matrix = _csr(self._encode([missing[key] for key in part]))
            indptr, indices, weights = matrix.crow_indices(), matrix.col_indices(), matrix.values()
            table = torch.frombuffer(bytearray(b"".join(part)), dtype=torch.uint8).reshape(-1, 32)
            shard = dict(zip(TENSORS, (table, indptr, indices, weights, torch.tensor(matrix.shape[1])), strict=True))
            name = f"{hashlib.sha256(b''.join(part)).hexdigest()[:32]}.safetensors"
            _check(shard, "the sparse encoder's vectors")
            save_tensors(self.shelf / name, shard)
            place.update((key, (len(shards), row)) for row, key in enumerate(part))
            shards.append(shard)
        return _gather(shards, [place[key] for key in keys])

    def _read(self) -> tuple[dict[bytes, tuple[int, int]], list[dict[str, Tensor]]]:
        """Read all shards, and where in them each key's row is."""
        place: dict[bytes, tuple[int, int]] = {}
        shards: list[dict[str, Tensor]] = []
        for file in sorted(self.shelf.glob("*.safetensors")):
            shard = load_tensors(file, TENSORS)
            _check(shard, f"{file} (delete this file and run again)")
            table = shard["keys"].numpy().tobytes()
            place.update((table[32 * row : 32 * row + 32], (len(shards), row)) for row in range(len(table) // 32))
            shards.append(shard)
        return place, shards


def _gather(shards: Sequence[dict[str, Tensor]], places: Sequence[tuple[int, int]]) -> Tensor:
    """Put rows ``(shard, row)`` under each other."""
    width = {int(shard["num_columns"]) for shard in shards}
    if len(width) > 1:
        raise ValueError(f"needed sparse vectors of one width, the cache holds some of {sorted(width)}: delete it")
    first = torch.tensor([0, *(len(shard["indptr"]) - 1 for shard in shards)]).cumsum(0)
    entries = torch.tensor([0, *(len(shard["indices"]) for shard in shards)]).cumsum(0).tolist()
    ends = [shard["indptr"][1:] + before for shard, before in zip(shards, entries, strict=False)]
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), *ends])
    number, row = torch.tensor(places).unbind(1)
    rows = first[number] + row
    _, slot = row_slots(indptr, rows)
    length = indptr[rows + 1] - indptr[rows]
    starts = torch.cat([length.new_zeros(1), length.cumsum(0)])
    indices, weights = (torch.cat([shard[name] for shard in shards])[slot] for name in ("indices", "weights"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
        return torch.sparse_csr_tensor(starts, indices, weights, (len(places), width.pop()), check_invariants=False)


def _csr(matrix: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
        return matrix.float().to_sparse_csr()


def _check(shard: dict[str, Tensor], source: str) -> None:
    table, indptr, indices, weights, num_columns = (shard[name] for name in TENSORS)
    fits = table.dim() == 2 and table.shape[1] == 32 and indptr.shape == (len(table) + 1,)
    fits = fits and weights.dim() == 1 and indices.shape == weights.shape and num_columns.dim() == 0
    fits = fits and int(indptr[0]) == 0 and int(indptr[-1]) == len(indices) and bool((indptr.diff() >= 0).all())
    in_range = not indices.numel() or (int(indices.min()) >= 0 and int(indices.max()) < int(num_columns))
    if not fits or not in_range or not bool(torch.isfinite(weights).all()):
        shapes = {name: list(shard[name].shape) for name in TENSORS}
        raise ValueError(f"{source}: needed finite sparse rows, one per key, got tensors of shapes {shapes}")
