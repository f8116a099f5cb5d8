"""Dense vector search: find the nodes with the largest dot products, exactly or with an approximate FAISS index."""

from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from graphrerank.core import Queries, Ranking, Retriever, top_k_by_node_order
from graphrerank.core.ranking import pair_products
from graphrerank.core.retriever import BASE_SCORE
from graphrerank.corpus import CorpusGraph
from graphrerank.installation.extras import require_extra
from graphrerank.operators.vector_index import fill_vector_index, map_vector_index, new_vector_index
from graphrerank.utils.checks import UserError, check_choice, check_counts

#: Kinds of index: exact search, and two approximate indexes of FAISS.
INDEXES = ("flat", "hnsw", "ivf")
MIN_LINKS = 2  # minimum number of links per node of an HNSW index
#: Number of queries per search.
BLOCK_QUERIES = 1024
#: Number of node vectors per matrix product of an exact search.
BLOCK_VECTORS = 1 << 14
#: Largest number of scores in memory when queries whose last rank is uncertain are scored against all nodes.
BLOCK_SCORES = 1 << 22
#: Largest subset of a corpus that is always searched exactly, because building an index would take longer.
SCANNED_PART = 1 << 17
#: Number of extra nodes to retrieve. They reveal ties at the last rank and offset the error of 8-bit vectors.
MARGIN = 16
#: Largest number of nodes per query that FAISS can return on a GPU.
MAX_GPU_K = 2048


@dataclass(eq=False)
class DotRanking:
    r"""Rank candidate nodes by their dot product :math:`v_q \cdot v_n`, with ties broken by node index.

    The scores are computed pair by pair. Equal vectors therefore have equal scores, whichever index found the nodes.

    Attributes:
        embedding: Node vectors ``[N, d]`` of any floating-point type.
        top_k: Number of candidates per query.
        removed: Mask of removed nodes, which are not ranked, ``[N]`` bool. If None, no node is removed.

    Example:
        >>> ranking = DotRanking(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), top_k=2)
        >>> ranking.rank(torch.tensor([[1.0, 0.0]]), torch.tensor([[0, 1, 2]]), is_exact=True).nodes
        tensor([[0, 2]])
    """

    embedding: Tensor
    top_k: int
    removed: Tensor | None = None

    @cached_property
    def num_ranked(self) -> int:
        """Number of nodes that are not removed."""
        return len(self.embedding) - (0 if self.removed is None else int(self.removed.sum()))

    def rank(self, vectors: Tensor, proposed: Tensor, *, is_exact: bool) -> Ranking:
        """Rank the nodes that a search has found.

        Args:
            vectors: Query vectors ``[b, d]``.
            proposed: Found nodes ``[b, M]``, unique per row, padded with -1.
            is_exact: Whether ``proposed`` contains all nodes or, up to rounding, the nearest ``top_k`` +
                :data:`MARGIN`. If so, queries whose last rank is uncertain because of rounding are scored against the
                whole corpus.

        Returns:
            Ranking ``[b, top_k]`` with ``features [b, top_k, 2]``, which both equal the dot product.
        """
        device, num_nodes = self.embedding.device, len(self.embedding)
        if not len(vectors) or not self.num_ranked:
            empty = self.embedding.new_full((len(vectors), self.top_k), -torch.inf, dtype=torch.float32)
            return _ranking(torch.full(empty.shape, -1, device=device), empty)
        vectors = vectors.float().to(device)
        proposed = torch.sort(proposed.to(device), dim=1).values
        scores = dot_products(self.embedding, proposed.clamp(min=0), vectors)
        columns, top_scores = top_k_by_node_order(scores.masked_fill(proposed < 0, -torch.inf), self.top_k)
        nodes = proposed.gather(1, columns.clamp(min=0)).masked_fill(columns < 0, -1)
        if is_exact and proposed.shape[1] < self.num_ranked:
            contested = self._contested(vectors, scores, top_scores[:, -1]).nonzero().flatten()
            for rows in torch.split(contested, max(1, BLOCK_SCORES // num_nodes)):
                every = torch.arange(num_nodes, device=device).expand(len(rows), -1)
                all_scores = self.without_removed(dot_products(self.embedding, every, vectors[rows]), 0)
                nodes[rows], top_scores[rows] = top_k_by_node_order(all_scores, self.top_k)
        return _ranking(nodes, top_scores)

    def without_removed(self, scores: Tensor, start: int) -> Tensor:
        """Set the scores of removed nodes to -inf.

        Args:
            scores: Scores ``[..., n]`` of consecutive nodes.
            start: Index of the first of these nodes.

        Returns:
            Scores ``[..., n]``.
        """
        if self.removed is None:
            return scores
        removed = self.removed[start : start + scores.shape[-1]].to(scores.device)
        return scores.masked_fill(removed, -torch.inf)

    def _contested(self, vectors: Tensor, scores: Tensor, last: Tensor) -> Tensor:
        """Return whether a node that was not proposed might belong to the ``top_k`` of a query, ``[b]``.

        It cannot if the ``last`` selected score exceeds the lowest of the proposed ``scores [b, M]`` by more than the
        rounding errors of both products. Each error is at most ``d`` times the machine epsilon times the product of the
        norms.
        """
        rounding = torch.finfo(torch.float32).eps * self.embedding.shape[1]
        return last - scores.amin(1) <= 4 * rounding * self._largest_norm * vectors.norm(dim=1)

    @cached_property
    def _largest_norm(self) -> float:
        return max(float(part.float().norm(dim=1).max()) for part in torch.split(self.embedding, BLOCK_VECTORS))


def dot_products(embedding: Tensor, nodes: Tensor, vectors: Tensor) -> Tensor:
    """Compute the dot products of queries with their nodes, pair by pair. See :func:`pair_products`.

    Args:
        embedding: Node vectors ``[N, d]``.
        nodes: Node indices ``[b, M]``.
        vectors: Query vectors ``[b, d]``.

    Returns:
        Dot products ``[b, M]``, float32.
    """
    row = torch.arange(len(nodes), device=nodes.device).unsqueeze(1).expand_as(nodes)
    return pair_products(embedding, nodes.flatten(), vectors.float(), row.flatten()).view(nodes.shape)


def _ranking(nodes: Tensor, scores: Tensor) -> Ranking:
    known = scores.masked_fill(nodes < 0, 0.0)
    return Ranking(nodes, scores, torch.stack([known, known], dim=-1))


@dataclass(eq=False)
class DenseRetriever(Retriever):
    r"""Rank the corpus by the dot product :math:`v_q \cdot v_n`, with ties broken by node index.

    The index ``flat`` compares each query with all nodes and is exact, even if nodes are tied at the last rank.
    ``hnsw`` and ``ivf`` are approximate indexes of FAISS, which is an optional dependency: install
    ``graphrerank[faiss]`` for the CPU or ``graphrerank[gpu]`` for CUDA 12, but not both.

    An approximate index is built at the first query. An IVF index is built on the GPU if the vectors are on it and
    FAISS supports it. If the corpus folder stores an index of the same kind, that index is memory-mapped instead, and
    ``links`` and ``num_cells`` are ignored. Small subsets of a corpus (see :meth:`CorpusGraph.select`) are always
    searched exactly.

    Source: FastInsight, Definition 2 (vector search), with its dot product. For unit vectors, the dot product equals
    the cosine similarity of its Example 1.

    Args:
        graph: Corpus graph with an ``embedding``.

    Attributes:
        top_k: Number of candidates per query.
        index: Kind of index, one of ``flat``, ``hnsw`` and ``ivf``.
        links: Number of neighbours of a node in each layer of an HNSW index, at least 2.
        ef_search: Size of the candidate queue of an HNSW search. Values below ``top_k`` are raised to it.
        num_cells: Number of cells of an IVF index. If None, about ``4 sqrt(N)``, but at most one per 64 nodes.
        num_probes: Number of cells of an IVF index that each search visits.
        feature_names: Names of the features of a candidate, which both equal the dot product.

    Example:
        >>> graph = CorpusGraph.from_edges(list("abc"), [""] * 3, torch.tensor([[0, 1]]))
        >>> graph = graph.with_embedding(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]))
        >>> DenseRetriever(graph, top_k=2).retrieve(Queries(["q1"], ["text"], torch.tensor([[1.0, 0.0]]))).nodes
        tensor([[0, 2]])
    """

    graph: InitVar[CorpusGraph]
    _: KW_ONLY
    top_k: int = 100
    index: str = "flat"
    links: int = 32
    ef_search: int = 128
    num_cells: int | None = None
    num_probes: int = 16
    feature_names: tuple[str, ...] = field(default=(BASE_SCORE, "dense_score"), init=False)

    def __post_init__(self, graph: CorpusGraph) -> None:
        check_choice(INDEXES, index=self.index)
        check_counts(top_k=self.top_k, links=self.links, ef_search=self.ef_search)
        if self.links < MIN_LINKS:  # FAISS divides by the logarithm of the number of links and crashes
            raise UserError(f"`links` must be at least {MIN_LINKS}, got {self.links}")
        check_counts(num_cells=self.num_cells, num_probes=self.num_probes)
        self._embedding, self._removed = graph.encoded, graph.passages.removed
        if graph.part_of is not None and graph.num_nodes <= SCANNED_PART:
            self.index = "flat"
        self._stored_index = None if graph.vectors is None else graph.vectors.index
        self._ranking = DotRanking(self._embedding, self.top_k, self._removed)
        if self.index != "flat":
            require_extra("faiss", f"retriever.index={self.index}")

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus by dot product.

        Args:
            queries: ``B`` queries with vectors.

        Returns:
            Ranking ``[B, top_k]`` with ``features [B, top_k, 2]``, which both equal the dot product.
        """
        return Ranking.concatenate([self._search(block.encoded) for block in queries.blocks(BLOCK_QUERIES)])

    def _search(self, vectors: Tensor) -> Ranking:
        if not len(vectors) or not self._ranking.num_ranked:
            return self._ranking.rank(vectors, torch.zeros(len(vectors), 0, dtype=torch.int64), is_exact=False)
        depth = min(self.top_k if self.index == "hnsw" else self.top_k + MARGIN, self._ranking.num_ranked)
        nearest = (self._scan if self.index == "flat" else self._propose)(vectors.float(), depth)
        return self._ranking.rank(vectors, nearest, is_exact=self.index == "flat")

    def _propose(self, vectors: Tensor, depth: int) -> Tensor:
        """Search the index, and search the vectors that were added after the index was stored exactly."""
        index, parameters = self._index
        nearest = torch.from_numpy(index.search(vectors.cpu().contiguous().numpy(), depth, params=parameters)[1])
        if index.ntotal == len(self._embedding):
            return nearest
        added = self._scan(vectors, depth, start=int(index.ntotal))
        return torch.cat([nearest.to(added.device), added], dim=1)

    def _scan(self, vectors: Tensor, depth: int, *, start: int = 0) -> Tensor:
        """Find the ``depth`` nearest nodes of each query by exact search, among the nodes from index ``start`` on."""
        vectors = vectors.to(self._embedding.device)
        scores = vectors.new_zeros(len(vectors), 0)
        nodes = scores.long()
        for first in range(start, len(self._embedding), BLOCK_VECTORS):
            block = vectors @ self._embedding[first : first + BLOCK_VECTORS].float().T
            block = self._ranking.without_removed(block, first)
            best, column = torch.topk(block, min(depth, block.shape[1]), dim=1)
            scores, nodes = torch.cat([scores, best], dim=1), torch.cat([nodes, column + first], dim=1)
            scores, column = torch.topk(scores, min(depth, scores.shape[1]), dim=1)
            nodes = nodes.gather(1, column)
        return nodes.masked_fill(scores == -torch.inf, -1)

    @cached_property
    def _index(self) -> tuple[Any, Any]:
        """FAISS index and the search parameters that exclude removed nodes, None if no node is removed."""
        import faiss  # heavy import, so only when it is needed

        stored = self._stored_index
        is_stored = stored is not None and stored.suffix == f".{self.index}"
        index = self._on_device(map_vector_index(stored)) if stored is not None and is_stored else self._build_index()
        limits: dict[str, Any]
        if self.index == "ivf":
            index.nprobe, limits = self.num_probes, {"nprobe": self.num_probes}
        else:
            ef_search = max(self.ef_search, self.top_k)
            index.hnsw.efSearch, limits = ef_search, {"efSearch": ef_search}
        removed = None if self._removed is None else self._removed[: index.ntotal].nonzero().flatten().cpu().numpy()
        if removed is None or not len(removed):
            return index, None
        module: Any = faiss  # the type stubs of FAISS lack keyword arguments
        parameters = module.SearchParametersIVF if self.index == "ivf" else module.SearchParametersHNSW
        return index, parameters(sel=module.IDSelectorNot(module.IDSelectorBatch(removed)), **limits)

    def _build_index(self) -> Any:
        index = new_vector_index(self._embedding, self.index, links=self.links, num_cells=self.num_cells)
        index = self._on_device(index)
        fill_vector_index(index, self._embedding)
        return index

    def _on_device(self, index: Any) -> Any:
        """Move an IVF index to the GPU of the vectors, if FAISS supports this search there.

        FAISS on a GPU returns at most ``MAX_GPU_K`` neighbours and cannot exclude removed nodes. A memory-mapped index
        is copied to the memory of the GPU.
        """
        import faiss

        device, fits = self._embedding.device, self.top_k + MARGIN <= MAX_GPU_K and self._removed is None
        if self.index == "ivf" and device.type == "cuda" and faiss.get_num_gpus() and fits:
            return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), device.index or 0, index)
        return index
