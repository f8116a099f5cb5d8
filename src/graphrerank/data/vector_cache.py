"""Caches of vectors: on disk, so that interrupted runs resume, and in memory with a size limit."""

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

SHARD_TEXTS = 4096  # Number of texts between two writes. An interrupted run loses at most this many.
SHARD_PAIRS = 128  # Number of pairs between two writes, about ten seconds of a small cross-encoder on a CPU.
NUM_TIMED_READS = 64  # Number of pairs encoded first, to estimate the time for the others.
MANY_TEXTS = 500  # Minimum number of texts for a progress bar.
ENTRY_BYTES = 300  # Memory overhead per text: hash, array object and dictionary entry.
NUMBER = np.dtype("<f4")  # Type of the stored components of a pair's vector.


class _EncoderCache(Encoder):
    """Base of the caches of text vectors, which have the name and the fingerprint of the encoder that they wrap."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = as_encoder(encoder)
        self.name = self.encoder.name

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the wrapped encoder."""
        return self.encoder.fingerprint


class VectorCache(_EncoderCache):
    """Encoder with a cache of vectors on disk.

    Vectors are stored in ``<folder>/<encoder fingerprint>/*.safetensors``, under the SHA-256 of their texts. New texts
    are written to new files, so adding documents to a corpus encodes only the new ones. Encoders with counts
    (:class:`~graphrerank.data.endpoint_encoder.EndpointEncoder`) are informed of the number of cache hits.

    Args:
        encoder: Encoder to wrap.
        folder: Folder of the cache.
    """

    def __init__(self, encoder: Encoder, folder: str | Path) -> None:
        super().__init__(encoder)
        self.folder = Path(folder)
        self.counts = self.encoder.counts
        self._num_encoded = 0

    @cached_property
    def for_queries(self) -> "VectorCache":
        """Cache of query vectors, or this cache if queries and passages are encoded in the same way."""
        encoder = self.encoder.for_queries
        return self if encoder is self.encoder else VectorCache(encoder, self.folder)

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode texts, or read their vectors from disk.

        Args:
            texts: ``n`` texts.

        Returns:
            Unit vectors ``[n, d]`` float32.

        Raises:
            ValueError: If the encoder returns vectors that are not finite, or if the cache cannot be written.
        """
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
    """Cross-encoder with a cache of vectors on disk, so that no pair is encoded twice.

    Vectors are stored in one SQLite file per encoder, ``<folder>/<encoder fingerprint>-float32.sqlite``, under the
    SHA-256 of query and passage.

    Args:
        encoder: Cross-encoder to wrap.
        folder: Folder of the SQLite file.
        label: Title of a progress bar. If None, no progress is shown.
    """

    def __init__(self, encoder: PairEncoder, folder: str | Path, *, label: str | None = None) -> None:
        self.encoder = as_pair_encoder(encoder)
        self.folder = Path(folder)
        self.label = label

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the wrapped encoder."""
        return self.encoder.fingerprint

    @property
    def name(self) -> str:
        """Name of the wrapped encoder."""
        return self.encoder.name

    @property
    def hidden_size(self) -> int:
        """Number of components per vector."""
        return int(self.encoder.hidden_size)

    @property
    def path(self) -> Path:
        """Path of the SQLite file."""
        return self.folder / f"{self.fingerprint[:32]}-float32.sqlite"

    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        """Encode pairs, or read their vectors from disk.

        Args:
            query_texts: Query of each of the ``M`` pairs.
            passages: Passage of each of the ``M`` pairs.

        Returns:
            Vectors ``[M, hidden_size]`` float32 on the CPU.

        Raises:
            ValueError: If the arguments differ in length, if vectors are not finite, or if the cache is damaged.
        """
        keys, pairs = self._keyed(query_texts, passages)
        store = BlobStore(self.path, "pairs")
        self._fill(store, keys, pairs, self.label)
        return store.rows(keys, self.hidden_size, NUMBER)

    def read_ahead(self, query_texts: Sequence[str], passages: Sequence[str], *, clock: Clock = time.monotonic) -> None:
        """Encode pairs into the cache, and log their number and an estimate of the time before starting.

        The speed is measured on a sample of the missing pairs. Pairs are written as they are encoded, so that an
        interrupted run resumes where it stopped.

        Args:
            query_texts: Query of each pair.
            passages: Passage of each pair.
            clock: Function that returns the current time in seconds, from any moment on.

        Raises:
            ValueError: If the arguments differ in length, or if the cache is damaged or cannot be written.
        """
        keys, pairs = self._keyed(query_texts, passages)
        pair_of = dict(zip(keys, pairs, strict=True))
        store = BlobStore(self.path, "pairs")
        stored = store.stored(list(pair_of))
        missing = sorted((key for key in pair_of if key not in stored), key=lambda key: _length(pair_of[key]))
        LOGGER.info(
            f"{len(pair_of):,} pairs of a query and a passage for the cross-encoder {self.name}: "
            f"{len(pair_of) - len(missing):,} are cached, {len(missing):,} must be encoded"
        )
        if not missing:
            return
        self.encoder.encode(
            *([text] for text in pair_of[missing[0]])
        )  # Loads the model, which is not part of the measurement.
        timed = missing[:: -(-len(missing) // NUM_TIMED_READS)]  # A sample of pairs of all lengths.
        begin = clock()
        self._fill(store, timed, [pair_of[key] for key in timed], None)
        took = clock() - begin
        measured = set(timed)
        if rest := [key for key in missing if key not in measured]:
            seconds = describe_seconds(took / len(timed) * len(rest))
            LOGGER.info(f"encoding them takes about {seconds} here; an interrupted run resumes where it stopped")
            self._fill(store, rest, [pair_of[key] for key in rest], "encoding pairs", clock=clock)

    def _keyed(self, query_texts: Sequence[str], passages: Sequence[str]) -> tuple[list[bytes], list[tuple[str, str]]]:
        """Return the keys of the pairs, and the pairs."""
        if len(query_texts) != len(passages):
            raise UserError(
                f"`passages` must have the length of `query_texts` ({len(query_texts)}), got {len(passages)}"
            )
        pairs = list(zip(query_texts, passages, strict=True))
        # Each text is hashed separately, because different pairs can give the same concatenated text.
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
        """Compute logits from vectors.

        Args:
            vectors: Vectors ``[..., hidden_size]``.

        Returns:
            Logits ``[...]``.
        """
        return self.encoder.head(vectors)

    def encode_states(
        self, query_texts: Sequence[str], passages: Sequence[str], *, without_last: int
    ) -> tuple[Tensor, Tensor]:
        """Encode pairs without their last layers. States are not cached, because they take hundreds of times the space.

        Args:
            query_texts: Query of each of the ``M`` pairs.
            passages: Passage of each of the ``M`` pairs.
            without_last: Number of last layers that are omitted.

        Returns:
            States of all tokens ``[T, h]``, and the boundaries of the pairs ``[M + 1]``.
        """
        return self.encoder.encode_states(query_texts, passages, without_last=without_last)

    def _encode_shard(self, pairs: list[tuple[str, str]]) -> list[bytes]:
        vectors = self.encoder.encode([query for query, _ in pairs], [passage for _, passage in pairs]).cpu().float()
        check_finite_vectors(vectors, len(pairs), "the pair encoder's vectors")
        return [row.tobytes() for row in vectors.numpy().astype(NUMBER)]


def _length(pair: tuple[str, str]) -> int:
    """Return the number of characters of a pair, which determines its encoding time."""
    return len(pair[0]) + len(pair[1])


class MemoryVectorCache(_EncoderCache):
    """Encoder with a cache of recent vectors in memory. It is thread-safe, and one thread encodes at a time.

    The least recently used texts are evicted first. A repeated text always has the vector of its first encoding, even
    if the encoder's result depends on the batch.

    Args:
        encoder: Encoder to wrap.
        max_bytes: Maximum memory for vectors and hashes of texts, in bytes.

    Raises:
        ValueError: If ``max_bytes`` is not positive.
    """

    def __init__(self, encoder: Encoder, *, max_bytes: int = 1 << 28) -> None:
        check_positive(max_bytes=max_bytes)
        super().__init__(encoder)
        self.max_bytes = max_bytes
        self._lock, self._encoding = Lock(), Lock()
        # Vectors by the hash of their text. The most recently used text is last.
        self._vectors: OrderedDict[bytes, np.ndarray] = OrderedDict()

    @cached_property
    def for_queries(self) -> "MemoryVectorCache":
        """Cache of query vectors with the same size limit, or this cache if queries need no separate encoder."""
        encoder = self.encoder.for_queries
        if encoder is self.encoder:
            return self
        twin = MemoryVectorCache(encoder, max_bytes=self.max_bytes)
        twin._encoding = self._encoding  # Both encoders share one model.
        return twin

    def missing(self, texts: Sequence[str]) -> list[str]:
        """Return the texts that are not in the cache, without duplicates.

        Args:
            texts: Texts to look up.

        Returns:
            Texts that must be encoded.
        """
        with self._lock:
            return [text for text in dict.fromkeys(texts) if hash_text(text) not in self._vectors]

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode texts, or return their cached vectors.

        Args:
            texts: ``n`` texts.

        Returns:
            Unit vectors ``[n, d]`` float32.

        Raises:
            ValueError: If the encoder returns vectors that are not finite.
        """
        if not texts:
            return torch.zeros(0, 0)
        keys = [hash_text(text) for text in texts]
        with self._lock:
            cached = {key: self._vectors[key] for key in keys if key in self._vectors}
            for key in cached:
                self._vectors.move_to_end(key)
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in cached}
        if new:
            with self._encoding:
                encoded = check_finite_vectors(self.encoder.encode(list(new.values())), len(new), self.name)
            vectors = {key: row.copy() for key, row in zip(new, encoded.numpy(), strict=True)}
            cached |= vectors
            with self._lock:
                self._vectors.update(vectors)
                while len(self._vectors) > max(1, self.max_bytes // (4 * encoded.shape[1] + ENTRY_BYTES)):
                    self._vectors.popitem(last=False)
        return torch.from_numpy(np.stack([cached[key] for key in keys]))
