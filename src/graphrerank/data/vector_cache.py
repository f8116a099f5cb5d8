"""Vectors of texts on disk: nothing is encoded twice, and an interrupted run continues."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.caching import TensorStore, fill, hash_text
from graphrerank.data.encoder import Encoder, check_vectors
from graphrerank.graphs.queries import query_encoder

SHARD_TEXTS = 4096  # texts encoded between two writes: at most this much work is lost on a stop

MANY_TEXTS = 500  # from which on a terminal shows a progress bar


class VectorCache:
    """An encoder with a cache of vectors on disk.

    Vectors lie in ``<folder>/<encoder fingerprint>/*.safetensors``, each file holding the SHA-256 of its texts and
    their vectors. New texts go to new files, so adding documents to a corpus encodes only those. An encoder that counts
    (:class:`~graphrerank.data.endpoint_encoder.EndpointEncoder`) is told how many texts the cache held.
    """

    def __init__(self, encoder: Encoder, folder: str | Path) -> None:
        self.encoder = encoder
        self.folder = Path(folder)
        self.name = encoder.name
        self._num_encoded = 0

    @property
    def fingerprint(self) -> str:
        """The wrapped encoder's fingerprint."""
        return self.encoder.fingerprint

    @cached_property
    def for_queries(self) -> "VectorCache":
        """A cache of the wrapped encoder's vectors of queries; itself where queries are encoded as passages are."""
        encoder = query_encoder(self.encoder)
        return self if encoder is self.encoder else VectorCache(encoder, self.folder)

    @property
    def counts(self) -> dict[str, int]:
        """What the wrapped encoder counts; empty where it does not."""
        return getattr(self.encoder, "counts", {})

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return ``[n, d]`` float32 unit vectors, from disk if cached."""
        keys, before = [hash_text(text) for text in texts], self._num_encoded
        label = f"encoding texts with {self.name}" if len(texts) > MANY_TEXTS else None
        fill(self._store, keys, texts, self._encode_shard, shard_size=SHARD_TEXTS, length=len, label=label)
        if "cache_hits" in self.counts:
            self.counts["cache_hits"] += len(set(keys)) - (self._num_encoded - before)
        if not keys:
            return torch.zeros(0, 0)
        shard, row = self._store.rows(keys)
        tables = [table["vectors"] for table in self._store.shards]
        vectors = torch.empty(len(keys), tables[int(shard[0])].shape[1])
        counts = torch.bincount(shard, minlength=len(tables)).tolist()
        for table, chosen in zip(tables, torch.split(shard.argsort(stable=True), counts), strict=True):
            vectors[chosen] = table[row[chosen]]
        return vectors

    def _encode_shard(self, texts: list[str]) -> dict[str, Tensor]:
        self._num_encoded += len(texts)
        return {"vectors": check_vectors(self.encoder.encode(texts), len(texts), self.name)}

    @cached_property
    def _store(self) -> TensorStore:
        return TensorStore(
            self.folder / self.fingerprint[:32],
            ("vectors",),
            lambda shard, count, source: check_vectors(shard["vectors"], count, source),
        )
