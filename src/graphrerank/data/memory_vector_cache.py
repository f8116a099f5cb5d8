"""Vectors of texts in memory: what one request encoded, the next ones find."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cached_property
from threading import Lock

import torch
from torch import Tensor

from graphrerank.caching import hash_text
from graphrerank.data.encoder import Encoder, check_vectors
from graphrerank.graphs.queries import query_encoder

ENTRY_BYTES = 250  # of Python objects for each text: its hash, its row and their places in the dictionary


class MemoryVectorCache:
    """An encoder whose latest vectors are kept in memory, by the content of their texts.

    When it is full, the text that was asked for the longest time ago makes room. A text that comes again has the vector
    of its first time; an encoder by itself may differ in the last digits, as it pads texts to those beside them. For
    use by many threads at once.

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
            return dict(zip(held, self._vectors[rows], strict=True))  # a copy: rows are written anew

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
