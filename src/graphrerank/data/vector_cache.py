"""Caches of vectors: on disk, so that an interrupted run continues, and of limited size in memory."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from graphrerank.core import Encoder, PairEncoder
from graphrerank.core.adapters import as_encoder, as_pair_encoder
from graphrerank.data.encoder import check_finite_vectors
from graphrerank.utils.caching import BlobStore, TensorStore, fill, hash_text
from graphrerank.utils.checks import UserError, check_positive
from graphrerank.utils.progress import LOGGER, Clock, describe_seconds

SHARD_TEXTS = 4096  # texts encoded between two writes: at most this much work is lost on a stop
SHARD_PAIRS = 128  # pairs likewise: ten seconds or so of a small cross-encoder on a CPU
NUM_TIMED_READS = 64  # read first, to estimate how long the others take
MANY_TEXTS = 500  # from which on a terminal shows a progress bar
ENTRY_BYTES = 300  # of Python objects for each text in memory: its hash, its array and their places in the dictionary
NUMBER = np.dtype("<f4")  # of a pair's vector on disk


class VectorCache(Encoder):
    """An encoder with a cache of vectors on disk.

    Vectors lie in ``<folder>/<encoder fingerprint>/*.safetensors``, each file holding the SHA-256 of its texts and
    their vectors. New texts go to new files, so adding documents to a corpus encodes only those. An encoder that counts
    (:class:`~graphrerank.data.endpoint_encoder.EndpointEncoder`) gets the number of texts that the cache held.
    """

    def __init__(self, encoder: Encoder, folder: str | Path) -> None:
        self.encoder = as_encoder(encoder)
        self.folder = Path(folder)
        self.name = self.encoder.name
        self.counts = self.encoder.counts
        self._num_encoded = 0

    @property
    def fingerprint(self) -> str:
        """The wrapped encoder's fingerprint."""
        return self.encoder.fingerprint

    @cached_property
    def for_queries(self) -> "VectorCache":
        """A cache of the wrapped encoder's vectors of queries; itself where queries are encoded as passages are."""
        encoder = self.encoder.for_queries
        return self if encoder is self.encoder else VectorCache(encoder, self.folder)

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return ``[n, d]`` float32 unit vectors, from disk if cached."""
        keys, before = [hash_text(text) for text in texts], self._num_encoded
        label = f"encoding texts with {self.name}" if len(texts) > MANY_TEXTS else None
        fill(self._store, keys, texts, self._encode_shard, shard_size=SHARD_TEXTS, length=len, label=label)
        self.encoder.count_cache_hits(len(set(keys)) - (self._num_encoded - before))
        return self._store.rows(keys) if keys else torch.zeros(0, 0)

    def _encode_shard(self, texts: list[str]) -> Tensor:
        self._num_encoded += len(texts)
        return check_finite_vectors(self.encoder.encode(texts), len(texts), self.name)

    @cached_property
    def _store(self) -> TensorStore:
        return TensorStore(self.folder / self.fingerprint[:32])


class PairCache(PairEncoder):
    """A pair encoder with a cache of vectors on disk: no pair is read twice.

    Vectors lie in one SQLite file per encoder, ``<folder>/<encoder fingerprint>-float32.sqlite``, under the SHA-256 of
    query and passage. ``label`` is the title of a progress bar on a terminal; None for none.
    """

    def __init__(self, encoder: PairEncoder, folder: str | Path, *, label: str | None = None) -> None:
        self.encoder = as_pair_encoder(encoder)
        self.folder = Path(folder)
        self.label = label

    @property
    def fingerprint(self) -> str:
        """The wrapped encoder's fingerprint."""
        return self.encoder.fingerprint

    @property
    def name(self) -> str:
        """The wrapped encoder's name."""
        return self.encoder.name

    @property
    def hidden_size(self) -> int:
        """Width of a vector."""
        return int(self.encoder.hidden_size)

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / f"{self.fingerprint[:32]}-float32.sqlite"

    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        """Read ``M`` pairs, from disk if cached: ``[M, hidden_size]`` float32, on the CPU."""
        keys, pairs = self._keyed(query_texts, passages)
        store = BlobStore(self.path, "pairs")
        self._fill(store, keys, pairs, self.label)
        return store.rows(keys, self.hidden_size, NUMBER)

    def read_ahead(self, query_texts: Sequence[str], passages: Sequence[str], *, clock: Clock = time.monotonic) -> None:
        """Read ``M`` pairs into the cache, and log before it starts how many there are and about how long it takes.

        The speed is measured on a few of the pairs that the cache lacks. Pairs are written as they are read, so that a
        run that is interrupted goes on where it stopped.

        Args:
            query_texts: Text of the query of each pair.
            passages: Text of the passage of each pair.
            clock: Returns the time in seconds, from any moment on.
        """
        keys, pairs = self._keyed(query_texts, passages)
        pair_of = dict(zip(keys, pairs, strict=True))
        store = BlobStore(self.path, "pairs")
        known = store.stored(list(pair_of))
        missing = sorted((key for key in pair_of if key not in known), key=lambda key: _length(pair_of[key]))
        LOGGER.info(
            f"{len(pair_of):,} pairs of a query and a passage for the cross-encoder {self.name}: "
            f"{len(pair_of) - len(missing):,} are cached, {len(missing):,} must be read"
        )
        if not missing:
            return
        self.encoder.encode(*([text] for text in pair_of[missing[0]]))  # loads the model, whose time says nothing
        timed = missing[:: -(-len(missing) // NUM_TIMED_READS)]  # of all lengths
        begin = clock()
        self._fill(store, timed, [pair_of[key] for key in timed], None)
        took = clock() - begin
        measured = set(timed)
        if rest := [key for key in missing if key not in measured]:
            seconds = describe_seconds(took / len(timed) * len(rest))
            LOGGER.info(f"reading them takes about {seconds} here; an interrupted run goes on where it stopped")
            self._fill(store, rest, [pair_of[key] for key in rest], "reading pairs", clock=clock)

    def _keyed(self, query_texts: Sequence[str], passages: Sequence[str]) -> tuple[list[bytes], list[tuple[str, str]]]:
        """Return the key of each pair, and the pair."""
        if len(query_texts) != len(passages):
            raise UserError(f"`passages` must be as many as `query_texts` ({len(query_texts)}), got {len(passages)}")
        pairs = list(zip(query_texts, passages, strict=True))
        # each text hashed for itself, so that no two pairs join to one text
        return [hashlib.sha256(hash_text(query) + hash_text(passage)).digest() for query, passage in pairs], pairs

    def _fill(
        self,
        store: BlobStore,
        keys: Sequence[bytes],
        pairs: Sequence[tuple[str, str]],
        label: str | None,
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        fill(store, keys, pairs, self._encode_shard, shard_size=SHARD_PAIRS, length=_length, label=label, clock=clock)

    def head(self, vectors: Tensor) -> Tensor:
        """Score vectors ``[..., hidden_size]``: logits ``[...]``."""
        return self.encoder.head(vectors)

    def _encode_shard(self, pairs: list[tuple[str, str]]) -> list[bytes]:
        vectors = self.encoder.encode([query for query, _ in pairs], [passage for _, passage in pairs]).cpu().float()
        check_finite_vectors(vectors, len(pairs), "the pair encoder's vectors")
        return [row.tobytes() for row in vectors.numpy().astype(NUMBER)]


def _length(pair: tuple[str, str]) -> int:
    """Return the characters of a pair, which decide how long it takes to read."""
    return len(pair[0]) + len(pair[1])


class MemoryVectorCache(Encoder):
    """An encoder whose latest vectors are kept in memory, by the content of their texts.

    ``max_bytes`` limits the memory for vectors and hashes of texts; the least recently used text makes room. A repeated
    text has the vector of its first time, also where the encoder's differ by the length of the batch. Thread-safe:
    one thread encodes at a time.
    """

    def __init__(self, encoder: Encoder, *, max_bytes: int = 1 << 28) -> None:
        check_positive(max_bytes=max_bytes)
        self.encoder = as_encoder(encoder)
        self.name = self.encoder.name
        self.max_bytes = max_bytes
        self._lock, self._encoding = Lock(), Lock()
        self._kept: OrderedDict[bytes, np.ndarray] = OrderedDict()  # by the hash of its text; the latest request last

    @property
    def fingerprint(self) -> str:
        """The wrapped encoder's fingerprint."""
        return self.encoder.fingerprint

    @cached_property
    def for_queries(self) -> "MemoryVectorCache":
        """A cache as large for the vectors of queries; itself where queries are encoded as passages are."""
        encoder = self.encoder.for_queries
        if encoder is self.encoder:
            return self
        twin = MemoryVectorCache(encoder, max_bytes=self.max_bytes)
        twin._encoding = self._encoding  # of one model
        return twin

    def missing(self, texts: Sequence[str]) -> list[str]:
        """Return the texts whose vectors are not kept, each once."""
        with self._lock:
            return [text for text in dict.fromkeys(texts) if hash_text(text) not in self._kept]

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return ``[n, d]`` float32 unit vectors; a ValueError if the encoder's are not finite."""
        if not texts:
            return torch.zeros(0, 0)
        keys = [hash_text(text) for text in texts]
        with self._lock:
            known = {key: self._kept[key] for key in keys if key in self._kept}
            for key in known:
                self._kept.move_to_end(key)
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if new:
            with self._encoding:
                encoded = check_finite_vectors(self.encoder.encode(list(new.values())), len(new), self.name)
            vectors = {key: row.copy() for key, row in zip(new, encoded.numpy(), strict=True)}
            known |= vectors
            with self._lock:
                self._kept.update(vectors)
                while len(self._kept) > max(1, self.max_bytes // (4 * encoded.shape[1] + ENTRY_BYTES)):
                    self._kept.popitem(last=False)
        return torch.from_numpy(np.stack([known[key] for key in keys]))
