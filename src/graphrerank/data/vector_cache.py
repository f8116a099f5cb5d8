"""Caches of vectors: on disk, so that an interrupted run continues, and of limited size in memory."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock

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
    (:class:`~graphrerank.data.endpoint_encoder.EndpointEncoder`) gets the number of texts that the cache held.
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


ENTRY_BYTES = 250  # of Python objects for each text: its hash, its row and their places in the dictionary


class MemoryVectorCache:
    """An encoder whose latest vectors are kept in memory, by the content of their texts.

    When it is full, the least recently used text makes room. A repeated text has the vector of its first time; an
    encoder alone may differ in the last digits, as it pads texts to the length of their batch. Thread-safe.

    Args:
        encoder: Encodes new texts, each once in a call.
        max_bytes: Limit of the memory for vectors and hashes; texts themselves are not kept.

    Attributes:
        num_requested: Texts requested so far, repeats included.
        num_encoded: Texts that the encoder had to read.

    Raises:
        ValueError: If ``max_bytes`` is not positive.
    """

    def __init__(self, encoder: Encoder, *, max_bytes: int = 1 << 28) -> None:
        if not max_bytes > 0:
            raise ValueError(f"`max_bytes` must be positive, got {max_bytes}")
        self.encoder = encoder
        self.name = encoder.name
        self.max_bytes = max_bytes
        self.num_requested = 0
        self.num_encoded = 0
        self._lock = Lock()
        self._row: OrderedDict[bytes, int] = OrderedDict()  # by the hash of its text; the latest request last
        self._vectors = torch.zeros(0, 0)

    @property
    def fingerprint(self) -> str:
        """The wrapped encoder's fingerprint."""
        return self.encoder.fingerprint

    @cached_property
    def for_queries(self) -> "MemoryVectorCache":
        """A cache as large for the vectors of queries; itself where queries are encoded as passages are."""
        encoder = query_encoder(self.encoder)
        return self if encoder is self.encoder else MemoryVectorCache(encoder, max_bytes=self.max_bytes)

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return ``[n, d]`` float32 unit vectors.

        Raises:
            ValueError: If the encoder's vectors are not finite, or of another shape.
        """
        if not texts:
            return torch.zeros(0, 0)
        keys = [hash_text(text) for text in texts]
        known = self._look_up(keys)
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if new:
            encoded = check_vectors(self.encoder.encode(list(new.values())), len(new), self.name)
            known |= zip(new, encoded, strict=True)
            self._keep(new.keys(), encoded)
        with self._lock:
            self.num_requested += len(texts)
            self.num_encoded += len(new)
        return torch.stack([known[key] for key in keys])

    def _look_up(self, keys: Sequence[bytes]) -> dict[bytes, Tensor]:
        with self._lock:
            held = [key for key in dict.fromkeys(keys) if key in self._row]
            for key in held:
                self._row.move_to_end(key)
            rows = torch.tensor([self._row[key] for key in held], dtype=torch.int64)
            return dict(zip(held, self._vectors[rows], strict=True))  # a copy: rows are overwritten

    def _keep(self, keys: Iterable[bytes], vectors: Tensor) -> None:
        with self._lock:
            if not len(self._vectors):
                capacity = max(1, self.max_bytes // (4 * vectors.shape[1] + ENTRY_BYTES))
                self._vectors = torch.empty(capacity, vectors.shape[1])  # takes memory as rows are written
            for key, vector in zip(keys, vectors, strict=True):
                if key not in self._row:  # another thread may have been first
                    row = self._row.popitem(last=False)[1] if len(self._row) == len(self._vectors) else len(self._row)
                    self._row[key] = row
                    self._vectors[row] = vector
