"""One hash of what a store of vectors holds of a corpus: its ids, texts and vectors."""

import hashlib
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from graphrerank.graphs.corpus_graph import CorpusGraph

BLOCK_STRINGS = 1 << 16  # encoded at once
BLOCK_VECTORS = 1 << 14  # copied at once


def content_hash(graph: CorpusGraph) -> str:
    """Hash the ids, texts and vectors of a corpus, in their order; edges are not read.

    A corpus folder with vectors has noted the hash, so that nothing is read. The same corpus in memory has the same
    hash, if its vectors have the same type.
    """
    if graph.vectors is not None and graph.vectors.content is not None:
        return graph.vectors.content
    return combined_hash(
        *(digest for strings in (graph.node_ids, graph.texts) for digest in _hash_strings(strings)),
        None if graph.embedding is None else _hash_vectors(graph.embedding),
    )


def combined_hash(*digests: str | None) -> str:
    """Combine the SHA-256 of offsets and bytes of ids, of those of texts, and of vectors, None where there are none."""
    return hashlib.sha256(repr(digests).encode()).hexdigest()


def _hash_strings(strings: Sequence[str]) -> tuple[str, str]:
    """Hash offsets and bytes as :class:`~graphrerank.graphs.PackedStrings` holds them."""
    lengths, content = [np.zeros(1, dtype=np.int64)], hashlib.sha256()
    for start in range(0, len(strings), BLOCK_STRINGS):
        encoded = [string.encode("utf-8", "surrogatepass") for string in strings[start : start + BLOCK_STRINGS]]
        lengths.append(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        content.update(b"".join(encoded))
    offsets = np.cumsum(np.concatenate(lengths)).astype("<i8")
    return hashlib.sha256(offsets.data).hexdigest(), content.hexdigest()


def _hash_vectors(vectors: Tensor) -> str:
    sha = hashlib.sha256()
    for start in range(0, len(vectors), BLOCK_VECTORS):
        block = vectors[start : start + BLOCK_VECTORS].cpu().contiguous().numpy()
        sha.update(block.astype(block.dtype.newbyteorder("<"), copy=False).data.cast("B"))
    return sha.hexdigest()
