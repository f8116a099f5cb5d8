"""A cross-encoder's vectors on disk, keyed by query, passage and encoder: no pair is read twice."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphrerank.data.encoder import check_vectors
from graphrerank.files import BlobTable, hash_text
from graphrerank.graphs import PairEncoder

SHARD_PAIRS = 256  # pairs encoded between two writes: at most this much work is lost on a stop
DTYPES: dict[str, np.dtype[Any]] = {"float32": np.dtype("<f4"), "float16": np.dtype("<f2")}


class PairCache:
    """A pair encoder that remembers.

    Vectors lie in one SQLite file per encoder and number format, ``<folder>/<encoder fingerprint>-<dtype>.sqlite``,
    under the SHA-256 of query and passage. Each write is a transaction, so that a stopped run goes on where it was and
    several processes may share the file.

    Args:
        encoder: The encoder to ask for new pairs.
        folder: Where the files lie.
        dtype: How numbers are kept: ``float32``, exact, or ``float16`` in half the space. A new pair's vector is
            rounded before it is returned, so that it is the same whether it was read or encoded.

    Attributes:
        num_requested: Pairs that were asked for so far, each repeat too.
        num_encoded: Pairs that the encoder had to read.

    Raises:
        ValueError: If ``dtype`` is unknown.
    """

    def __init__(self, encoder: PairEncoder, folder: str | Path, *, dtype: str = "float32") -> None:
        if dtype not in DTYPES:
            raise ValueError(f"`dtype` must be one of {sorted(DTYPES)}, got {dtype!r}")
        self.encoder = encoder
        self.folder = Path(folder)
        self.dtype = dtype
        self.num_requested = 0
        self.num_encoded = 0

    @property
    def hidden_size(self) -> int:
        """Width of a vector."""
        return self.encoder.hidden_size

    @property
    def fingerprint(self) -> str:
        """The wrapped encoder's fingerprint, and how numbers are kept where that changes them."""
        return self.encoder.fingerprint if self.dtype == "float32" else f"{self.encoder.fingerprint}-{self.dtype}"

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / f"{self.encoder.fingerprint[:32]}-{self.dtype}.sqlite"

    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        """Read ``M`` pairs, from disk where they are there: ``[M, hidden_size]`` float32, on the CPU.

        Raises:
            ValueError: If the lengths differ, the encoder's vectors are not finite in ``dtype``, or the file is
                damaged, naming it.
        """
        if len(query_texts) != len(passages):
            raise ValueError(f"`passages` must be as many as `query_texts` ({len(query_texts)}), got {len(passages)}")
        self.num_requested += len(passages)
        if not passages:
            return torch.zeros(0, self.hidden_size)
        keys = [_key(query, passage) for query, passage in zip(query_texts, passages, strict=True)]
        known = self._read(list(dict.fromkeys(keys)))
        missing = {key: pair for pair, key in enumerate(keys) if key not in known}
        order = sorted(missing, key=lambda key: len(query_texts[missing[key]]) + len(passages[missing[key]]))
        for start in range(0, len(order), SHARD_PAIRS):
            part = order[start : start + SHARD_PAIRS]
            known.update(self._encode(part, [missing[key] for key in part], query_texts, passages))
        joined = b"".join(known[key] for key in keys)
        vectors = np.frombuffer(joined, dtype=DTYPES[self.dtype]).reshape(len(keys), -1)
        return torch.from_numpy(vectors.astype(np.float32))

    def head(self, vectors: Tensor) -> Tensor:
        """Score vectors ``[..., hidden_size]``: logits ``[...]``."""
        return self.encoder.head(vectors)

    def _encode(
        self, keys: Sequence[bytes], pairs: Sequence[int], query_texts: Sequence[str], passages: Sequence[str]
    ) -> dict[bytes, bytes]:
        made = self.encoder.encode([query_texts[pair] for pair in pairs], [passages[pair] for pair in pairs])
        self.num_encoded += len(pairs)
        rounded = made.cpu().to(getattr(torch, self.dtype))
        check_vectors(rounded, len(pairs), f"the pair encoder's vectors as {self.dtype}")
        rows = rounded.numpy().astype(DTYPES[self.dtype])
        new = {key: row.tobytes() for key, row in zip(keys, rows, strict=True)}
        self._table.write(new)
        return new

    def _read(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        known = self._table.read(keys)
        needed = self.hidden_size * DTYPES[self.dtype].itemsize if known else 0
        if (odd := next((len(row) for row in known.values() if len(row) != needed), None)) is not None:
            raise ValueError(
                f"{self.path}: damaged cache (needed vectors of {needed} bytes, found one of {odd}); "
                "delete this file and run again"
            )
        return known

    @property
    def _table(self) -> BlobTable:
        return BlobTable(self.path, "pairs")


def _key(query: str, passage: str) -> bytes:
    sha = hashlib.sha256()
    for text in (query, passage):  # each by its own hash, so that no two pairs join to one text
        sha.update(hash_text(text))
    return sha.digest()
