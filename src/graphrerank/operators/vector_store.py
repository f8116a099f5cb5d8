"""What a store of vectors is, how it is filled from a corpus, and the retriever that searches it."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from graphrerank.checks import check_counts
from graphrerank.graphs import CorpusGraph, Queries, Ranking
from graphrerank.operators.dot_ranking import MARGIN, DotRanking

BLOCK_QUERIES = 64  # searched at once

Vectors = npt.NDArray[np.float32]
Nodes = npt.NDArray[np.int64]


class VectorStore(Protocol):
    """Passages with their vectors, numbered as in the corpus, in a database.

    Each ``add`` is atomic, even after a stop; the store always holds a prefix of the passages.
    """

    where: str  # names it in errors

    def count(self) -> int:
        """Number of passages that it holds; 0 where it does not exist.

        Raises:
            ValueError: If it holds another corpus, other vectors or something else.
        """

    def add(self, start: int, node_ids: Sequence[str], texts: Sequence[str], vectors: Vectors) -> None:
        """Store ``n`` passages, the next ones from number ``start``, with vectors ``[n, d]``."""

    def finish(self) -> None:
        """Build the indexes that it lacks."""

    def nearest(self, vectors: Vectors, depth: int) -> Nodes:
        """Return the passages with the largest dot products, ``[B, depth]`` for ``B`` queries, padded with -1."""


def fill_store(store: VectorStore, graph: CorpusGraph, *, batch: int) -> None:
    """Bring a store to hold a corpus: new, or where a stopped one was; nothing is added to one that is complete.

    Args:
        store: The store.
        graph: The corpus, with its ``embedding``.
        batch: Passages added at once: at most this much work is lost on a stop.

    Raises:
        ValueError: If it holds something else, or passages were removed from the corpus.
    """
    check_counts(batch=batch)
    done, num_nodes, embedding = store.count(), graph.num_nodes, graph.encoded
    if done > num_nodes:
        raise ValueError(f"{store.where}: needed the {num_nodes:,} passages of the corpus, found {done:,}")
    texts = graph.all_texts
    for start in range(done, num_nodes, batch):
        held = slice(start, start + batch)
        vectors = embedding[held].float().cpu().contiguous().numpy()
        store.add(start, list(graph.node_ids[held]), list(texts[held]), vectors)
    if num_nodes:
        store.finish()


def search_store(store: VectorStore, ranking: DotRanking, queries: Queries, *, is_exact: bool) -> Ranking:
    """Rank the corpus for each of ``B`` queries, which need vectors, by what the store proposes.

    Args:
        store: A filled store.
        ranking: Computes scores and orders the proposals.
        queries: The queries.
        is_exact: Whether the store compares all vectors.
    """
    num_nodes = len(ranking.embedding)
    depth = min(ranking.top_k + (MARGIN if is_exact else 0), num_nodes)
    rankings = []
    for block in queries.blocks(BLOCK_QUERIES):
        vectors = block.encoded
        proposed = np.zeros((len(vectors), 0), dtype=np.int64)
        if depth and len(vectors):
            proposed = store.nearest(vectors.float().cpu().contiguous().numpy(), depth)
        if proposed.size and int(proposed.max()) >= num_nodes:
            raise ValueError(f"{store.where}: needed passages 0 to {num_nodes - 1}, found {int(proposed.max())}")
        rankings.append(ranking.rank(vectors, torch.from_numpy(proposed), is_exact=is_exact))
    return Ranking.concatenate(rankings)
