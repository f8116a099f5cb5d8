"""Retrievers over a database of vectors: how it is filled from a corpus, and the ranking of what it proposes."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from graphrerank.core import Queries, Ranking, Retriever
from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.corpus_graph import content_hash
from graphrerank.installation.extras import require_extra
from graphrerank.operators.dense import MARGIN, DotRanking
from graphrerank.utils.checks import UserError, check_choice, check_counts

BLOCK_QUERIES = 64  # searched at once
FORMAT = 1  # raise it when the same corpus would give other entries

Vectors = npt.NDArray[np.float32]
Nodes = npt.NDArray[np.int64]


@dataclass(eq=False)
class VectorStoreRetriever(Retriever):
    """Ranks passages by dot products among those that a database proposes, which is filled at the first query.

    Each :meth:`add` is atomic: a stopped filling continues where it was. The database is bound to the passages, their
    order and their vectors. A part of a corpus (:meth:`CorpusGraph.select`) is searched in the database of the whole,
    by the database's own filter.
    """

    graph: InitVar[CorpusGraph]  # with its `embedding`
    _: KW_ONLY
    top_k: int = 100  # candidates per query
    index: str = "flat"  # exact, or the name of an approximate index
    batch: int = 1024  # passages added at once: at most this much work is lost on a stop

    extra: ClassVar[str]  # of the database's client
    indexes: ClassVar[tuple[str, ...]]

    def __post_init__(self, graph: CorpusGraph) -> None:
        check_counts(top_k=self.top_k, batch=self.batch)
        check_choice(self.indexes, index=self.index)
        require_extra(self.extra, f"retriever={self.extra}")
        self._graph, self._embedding, self._nodes = graph, graph.encoded, None
        self._ranking = DotRanking(self._embedding, self.top_k)
        if graph.part_of is not None:
            self._graph, nodes = graph.part_of
            self._nodes = nodes.cpu().numpy()
        self._is_filled = False

    @property
    @abstractmethod
    def where(self) -> str:
        """The database, for messages."""

    @abstractmethod
    def count(self) -> int:
        """Number of passages in the database; 0 where it does not exist. A ValueError if it holds something else."""

    @abstractmethod
    def add(self, start: int, node_ids: Sequence[str], texts: Sequence[str], vectors: Vectors) -> None:
        """Store ``n`` passages, the next ones from number ``start``, with vectors ``[n, d]``."""

    @abstractmethod
    def nearest(self, vectors: Vectors, depth: int) -> Nodes:
        """Return the passages with the largest dot products, ``[B, depth]`` for ``B`` queries, padded with -1.

        Of a part of a corpus they are among ``_nodes [n]``.
        """

    def fill(self) -> None:
        """Add the passages that the database lacks; a ValueError if passages were removed from the corpus."""
        done, num_nodes = self.count(), self._graph.num_nodes
        if done > num_nodes:
            raise UserError(f"{self.where}: needed the {num_nodes:,} passages of the corpus, found {done:,}")
        texts = self._graph.all_texts
        for start in range(done, num_nodes, self.batch):
            block = slice(start, start + self.batch)
            vectors = self._graph.encoded[block].float().cpu().contiguous().numpy()
            self.add(start, list(self._graph.node_ids[block]), list(texts[block]), vectors)

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus for each of ``B`` queries, which need vectors: ``[B, top_k]``, ``features [B, top_k, 2]``."""
        if not self._is_filled:
            self.fill()
            self._is_filled = True
        is_exact, num_nodes = self.index == "flat", self._graph.num_nodes
        depth = min(self._ranking.top_k + (MARGIN if is_exact else 0), len(self._embedding))
        rankings = []
        for block in queries.blocks(BLOCK_QUERIES):
            vectors = block.encoded
            proposed = np.zeros((len(vectors), 0), dtype=np.int64)
            if depth and len(vectors):
                proposed = self.nearest(vectors.float().cpu().contiguous().numpy(), depth)
            if proposed.size and int(proposed.max()) >= num_nodes:
                raise UserError(f"{self.where}: needed passages 0 to {num_nodes - 1}, found {int(proposed.max())}")
            proposed = self._in_part(proposed)
            rankings.append(self._ranking.rank(vectors, torch.from_numpy(proposed), is_exact=is_exact))
        return Ranking.concatenate(rankings)

    def _in_part(self, nodes: Nodes) -> Nodes:
        """Return the numbers in the part that is searched, of nodes in the whole, padded with -1."""
        if self._nodes is None:
            return nodes
        return np.where(nodes < 0, -1, np.searchsorted(self._nodes, nodes))

    @cached_property
    def _content(self) -> str:
        """Hash of ids, texts and vectors in their order, to which the database is bound."""
        return content_hash(self._graph)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the database in the client's errors."""
        try:
            yield
        except Exception as error:  # clients raise almost anything
            raise UserError(f"{self.where}: cannot be reached, read or written: {error}") from error

    @property
    def _half(self) -> bool:
        return self._embedding.dtype == torch.float16
