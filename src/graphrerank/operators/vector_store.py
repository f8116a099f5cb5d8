"""Base class of retrievers that search a vector database, fill it from the corpus and rank its results."""

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

#: Number of queries per search.
BLOCK_QUERIES = 64
#: Version of the stored entries. Increase it when the same corpus would be stored differently.
FORMAT = 1

Vectors = npt.NDArray[np.float32]
Nodes = npt.NDArray[np.int64]


@dataclass(eq=False)
class VectorStoreRetriever(Retriever):
    """Base of retrievers that rank the nearest passages of a vector database by their dot product with the query.

    The database is filled at the first query. Each call of :meth:`add` is atomic, so an interrupted job continues where
    it stopped. A database belongs to one corpus: its passages, their order and their vectors. A subset of a corpus (see
    :meth:`CorpusGraph.select`) is searched in the database of the whole corpus with a filter.

    A subclass sets ``extra`` and ``indexes`` and implements ``where``, :meth:`count`, :meth:`add` and :meth:`nearest`.

    Args:
        graph: Corpus graph with an ``embedding``.

    Attributes:
        top_k: Number of candidates per query.
        index: ``flat`` for exact search, or the name of an approximate index of the database.
        batch: Number of passages per call of :meth:`add`. If filling is interrupted, at most this many are added again.
        extra: Name of the extra that installs the client of the database.
        indexes: Supported values of ``index``.
    """

    graph: InitVar[CorpusGraph]
    _: KW_ONLY
    top_k: int = 100
    index: str = "flat"
    batch: int = 1024

    extra: ClassVar[str]
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
        """Description of the database for messages."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of passages in the database, 0 if the database does not exist.

        Raises:
            UserError: If the database contains another corpus.
        """

    def _other_corpus(self, setting: str, example: str) -> UserError:
        """Return the error of :meth:`count` for a database that contains another corpus."""
        return UserError(
            f"{self.where} contains another corpus or the vectors of another encoder. Choose another `{setting}` "
            f"(retriever.{setting}={example})"
        )

    @abstractmethod
    def add(self, start: int, node_ids: Sequence[str], texts: Sequence[str], vectors: Vectors) -> None:
        """Store consecutive passages.

        Args:
            start: Index of the first passage.
            node_ids: Ids of ``n`` passages.
            texts: Texts of the passages.
            vectors: Vectors of the passages, ``[n, d]``.
        """

    @abstractmethod
    def nearest(self, vectors: Vectors, depth: int) -> Nodes:
        """Return the passages with the largest dot products. In a subset of a corpus, these must be among ``_nodes``.

        Args:
            vectors: Query vectors ``[B, d]``.
            depth: Number of passages per query.

        Returns:
            Passage indices ``[B, depth]``, padded with -1.
        """

    def fill(self) -> None:
        """Add the passages that the database lacks.

        Raises:
            UserError: If the database contains more passages than the corpus.
        """
        done, num_nodes = self.count(), self._graph.num_nodes
        if done > num_nodes:
            raise UserError(f"{self.where} must contain at most the {num_nodes:,} passages of the corpus, got {done:,}")
        texts = self._graph.all_texts
        for start in range(done, num_nodes, self.batch):
            block = slice(start, start + self.batch)
            vectors = self._graph.encoded[block].float().cpu().contiguous().numpy()
            self.add(start, list(self._graph.node_ids[block]), list(texts[block]), vectors)

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus by dot product.

        Args:
            queries: ``B`` queries with vectors.

        Returns:
            Ranking ``[B, top_k]`` with ``features [B, top_k, 2]``, which both equal the dot product.

        Raises:
            UserError: If the database cannot be reached or contains another corpus.
        """
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
                raise UserError(f"{self.where} must contain passages 0 to {num_nodes - 1}, got {int(proposed.max())}")
            proposed = self._in_part(proposed)
            rankings.append(self._ranking.rank(vectors, torch.from_numpy(proposed), is_exact=is_exact))
        return Ranking.concatenate(rankings)

    def _in_part(self, nodes: Nodes) -> Nodes:
        """Convert node indices of the whole corpus, padded with -1, to those of the subset that is searched."""
        if self._nodes is None:
            return nodes
        return np.where(nodes < 0, -1, np.searchsorted(self._nodes, nodes))

    @cached_property
    def _content(self) -> str:
        """Hash of the ids, texts and vectors of the corpus, which identifies the database."""
        return content_hash(self._graph)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Convert exceptions of the client to errors that name the database."""
        try:
            yield
        except Exception as error:  # clients have no common base class of exceptions
            raise UserError(f"{self.where} cannot be reached, read or written: {error}") from error

    @property
    def _half(self) -> bool:
        return self._embedding.dtype == torch.float16
