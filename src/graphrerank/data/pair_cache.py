"""A cross-encoder's vectors on disk, keyed by query, passage and encoder: no pair is read twice."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphrerank.caching import BlobStore, fill, hash_text
from graphrerank.checks import check_choice
from graphrerank.data.encoder import check_vectors
from graphrerank.graphs import PairEncoder

SHARD_PAIRS = 256  # pairs encoded between two writes: at most this much work is lost on a stop
DTYPES: dict[str, np.dtype[Any]] = {"float32": np.dtype("<f4"), "float16": np.dtype("<f2")}


class PairCache:
    """A pair encoder with a cache of vectors on disk.

    Vectors lie in one SQLite file per encoder and number format, ``<folder>/<encoder fingerprint>-<dtype>.sqlite``,
    under the SHA-256 of query and passage.

    Args:
        dtype: How numbers are kept: ``float32``, exact, or ``float16`` in half the space. A new pair's vector is
            rounded before it is returned, so that it is the same whether it was read or encoded.
        label: Title of a progress bar on a terminal; none when None.

    Attributes:
        num_requested: Pairs requested so far, repeats included.
        num_encoded: Pairs that the encoder had to read.

    Raises:
        ValueError: If ``dtype`` is unknown.
    """

    def __init__(
        self, encoder: PairEncoder, folder: str | Path, *, dtype: str = "float32", label: str | None = None
    ) -> None:
        check_choice(sorted(DTYPES), dtype=dtype)
        self.encoder = encoder
        self.folder = Path(folder)
        self.dtype = dtype
        self.label = label
        self.num_requested = 0
        self.num_encoded = 0

    @property
    def hidden_size(self) -> int:
        """Width of a vector."""
        return self.encoder.hidden_size

    @property
    def fingerprint(self) -> str:
        """The wrapped encoder's fingerprint, and the number format unless it is exact."""
        return self.encoder.fingerprint if self.dtype == "float32" else f"{self.encoder.fingerprint}-{self.dtype}"

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / f"{self.encoder.fingerprint[:32]}-{self.dtype}.sqlite"

    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        """Read ``M`` pairs, from disk if cached: ``[M, hidden_size]`` float32, on the CPU."""
        if len(query_texts) != len(passages):
            raise ValueError(f"`passages` must be as many as `query_texts` ({len(query_texts)}), got {len(passages)}")
        self.num_requested += len(passages)
        pairs = list(zip(query_texts, passages, strict=True))
        keys = [_key(*pair) for pair in pairs]
        store = BlobStore(self.path, "pairs")
        encode, length = self._encode_shard, lambda pair: sum(map(len, pair))
        fill(store, keys, pairs, encode, shard_size=SHARD_PAIRS, length=length, label=self.label)
        return store.rows(keys, self.hidden_size, DTYPES[self.dtype])

    def encode_states(
        self, query_texts: Sequence[str], passages: Sequence[str], *, without_last: int
    ) -> tuple[Tensor, Tensor]:
        """Read pairs as the wrapped encoder; states are not kept, as they are some hundred times as much."""
        return self.encoder.encode_states(query_texts, passages, without_last=without_last)

    def head(self, vectors: Tensor) -> Tensor:
        """Score vectors ``[..., hidden_size]``: logits ``[...]``."""
        return self.encoder.head(vectors)

    def _encode_shard(self, pairs: list[tuple[str, str]]) -> list[bytes]:
        vectors = self.encoder.encode([query for query, _ in pairs], [passage for _, passage in pairs])
        self.num_encoded += len(pairs)
        rounded = vectors.cpu().to(getattr(torch, self.dtype))
        check_vectors(rounded, len(pairs), f"the pair encoder's vectors as {self.dtype}")
        return [row.tobytes() for row in rounded.numpy().astype(DTYPES[self.dtype])]


def _key(query: str, passage: str) -> bytes:
    """Hash a pair, each text on its own, so that no two pairs join to one text."""
    return hashlib.sha256(hash_text(query) + hash_text(passage)).digest()
