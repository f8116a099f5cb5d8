"""Dense vector search: the nodes with the largest dot products, exactly or by an approximate index of FAISS."""

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
from graphrerank.utils.checks import check_choice, check_counts

INDEXES = ("flat", "hnsw", "ivf")
BLOCK_QUERIES = 1024  # searched at once
BLOCK_VECTORS = 1 << 14  # multiplied at once if the whole corpus is scored
BLOCK_SCORES = 1 << 22  # of queries with contested ranks held at once, each with those of all nodes
SCANNED_PART = 1 << 17  # nodes of a part of a corpus: an index of it takes longer to build than many searches
MARGIN = 16  # further nodes of a search, to detect ties with the last of ``top_k``, and for vectors of 8 bits
MAX_GPU_K = 2048  # nodes per query that FAISS returns on a GPU


@dataclass(eq=False)
class DotRanking:
    r"""Rank proposed nodes by :math:`v_q \cdot v_n`, ties broken by node index.

    Scores are computed here, node by node, so that equal vectors get equal scores whatever proposed them.
    """

    embedding: Tensor  # `[N, d]` node vectors, of any type of float
    top_k: int  # candidates per query
    removed: Tensor | None = None  # `[N]` bool, nodes that are not ranked

    @cached_property
    def num_ranked(self) -> int:
        """Number of nodes that are not removed."""
        return len(self.embedding) - (0 if self.removed is None else int(self.removed.sum()))

    def rank(self, vectors: Tensor, proposed: Tensor, *, is_exact: bool) -> Ranking:
        """Rank the nodes ``proposed [b, M]``, unique per row, padded with -1: ``[b, top_k]``, products as two features.

        With ``is_exact`` they are the nearest up to rounding, ``top_k`` and :data:`MARGIN`, or all; a query whose last
        rank is contested within rounding is then scored against the whole corpus.
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
        """Fill the scores ``[..., n]`` of nodes from ``start`` on with -inf where a node was removed."""
        if self.removed is None:
            return scores
        removed = self.removed[start : start + scores.shape[-1]].to(scores.device)
        return scores.masked_fill(removed, -torch.inf)

    def _contested(self, vectors: Tensor, scores: Tensor, last: Tensor) -> Tensor:
        """Return ``[b]``, whether a node that was not proposed might belong among the ``top_k``.

        It cannot if the ``last`` kept score exceeds the lowest of the proposed ``scores [b, M]`` by more than rounding,
        of a product of ``d`` terms at most ``d`` times the product of norms, there and here.
        """
        rounding = torch.finfo(torch.float32).eps * self.embedding.shape[1]
        return last - scores.amin(1) <= 4 * rounding * self._largest_norm * vectors.norm(dim=1)

    @cached_property
    def _largest_norm(self) -> float:
        return max(float(part.float().norm(dim=1).max()) for part in torch.split(self.embedding, BLOCK_VECTORS))


def dot_products(embedding: Tensor, nodes: Tensor, vectors: Tensor) -> Tensor:
    """Multiply query vectors ``[b, d]`` with those of nodes ``[b, M]``, pair by pair (:func:`pair_products`)."""
    row = torch.arange(len(nodes), device=nodes.device).unsqueeze(1).expand_as(nodes)
    return pair_products(embedding, nodes.flatten(), vectors.float(), row.flatten()).view(nodes.shape)


def _ranking(nodes: Tensor, scores: Tensor) -> Ranking:
    known = scores.masked_fill(nodes < 0, 0.0)
    return Ranking(nodes, scores, torch.stack([known, known], dim=-1))


@dataclass(eq=False)
class DenseRetriever(Retriever):
    r"""Rank the corpus by :math:`v_q \cdot v_n`, ties broken by node index.

    ``flat`` multiplies all nodes with the queries, in blocks, and is exact, even if nodes tie at the last rank.
    ``hnsw`` and ``ivf`` are approximate indexes of FAISS, an extra: ``graphrerank[faiss]`` for the CPU,
    ``graphrerank[gpu]`` for CUDA 12, never both; their nodes are ordered in the same way.

    Source: FastInsight, Definition 2 (vector search), with its dot product; for unit vectors that is the cosine of its
    Example 1. An approximate index is built at the first query, an IVF index on the GPU of the vectors if FAISS has
    one. A stored index of the same kind is mapped instead, whatever ``links`` and ``num_cells`` say. Small parts of a
    corpus (:meth:`CorpusGraph.select`) are always searched exactly.
    """

    graph: InitVar[CorpusGraph]  # with its `embedding`
    _: KW_ONLY
    top_k: int = 100  # candidates per query
    index: str = "flat"  # or `hnsw` or `ivf`
    links: int = 32  # HNSW: neighbours of a node in its layers
    ef_search: int = 128  # HNSW: nodes kept open in a search, at least `top_k`
    num_cells: int | None = None  # IVF: cells of the corpus; None: about `4 sqrt(N)`, at most one per 64 nodes
    num_probes: int = 16  # IVF: cells that a search visits
    feature_names: tuple[str, ...] = field(default=(BASE_SCORE, "dense_score"), init=False)

    def __post_init__(self, graph: CorpusGraph) -> None:
        check_choice(INDEXES, index=self.index)
        check_counts(top_k=self.top_k, links=self.links, ef_search=self.ef_search)
        check_counts(num_cells=self.num_cells, num_probes=self.num_probes)
        self._embedding, self._removed = graph.encoded, graph.passages.removed
        if graph.part_of is not None and graph.num_nodes <= SCANNED_PART:
            self.index = "flat"
        self._stored_index = None if graph.vectors is None else graph.vectors.index
        self._ranking = DotRanking(self._embedding, self.top_k, self._removed)
        if self.index != "flat":
            require_extra("faiss", f"retriever.index={self.index}")

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus for each of ``B`` queries, which need vectors: ``[B, top_k]``, ``features [B, top_k, 2]``."""
        return Ranking.concatenate([self._search(block.encoded) for block in queries.blocks(BLOCK_QUERIES)])

    def _search(self, vectors: Tensor) -> Ranking:
        if not len(vectors) or not self._ranking.num_ranked:
            return self._ranking.rank(vectors, torch.zeros(len(vectors), 0, dtype=torch.int64), is_exact=False)
        depth = min(self.top_k if self.index == "hnsw" else self.top_k + MARGIN, self._ranking.num_ranked)
        nearest = (self._scan if self.index == "flat" else self._propose)(vectors.float(), depth)
        return self._ranking.rank(vectors, nearest, is_exact=self.index == "flat")

    def _propose(self, vectors: Tensor, depth: int) -> Tensor:
        """Search the index, and scan the vectors that were added after it was stored."""
        index, parameters = self._index
        nearest = torch.from_numpy(index.search(vectors.cpu().contiguous().numpy(), depth, params=parameters)[1])
        if index.ntotal == len(self._embedding):
            return nearest
        added = self._scan(vectors, depth, start=int(index.ntotal))
        return torch.cat([nearest.to(added.device), added], dim=1)

    def _scan(self, vectors: Tensor, depth: int, *, start: int = 0) -> Tensor:
        """Find the ``depth`` nearest nodes of each query by multiplying with all, or those from one on, in blocks."""
        vectors = vectors.to(self._embedding.device)
        scores = vectors.new_zeros(len(vectors), 0)
        nodes = scores.long()
        for first in range(start, len(self._embedding), BLOCK_VECTORS):
            block = vectors @ self._embedding[first : first + BLOCK_VECTORS].float().T
            block = self._ranking.without_removed(block, first)
            best, place = torch.topk(block, min(depth, block.shape[1]), dim=1)
            scores, nodes = torch.cat([scores, best], dim=1), torch.cat([nodes, place + first], dim=1)
            scores, place = torch.topk(scores, min(depth, scores.shape[1]), dim=1)
            nodes = nodes.gather(1, place)
        return nodes.masked_fill(scores == -torch.inf, -1)

    @cached_property
    def _index(self) -> tuple[Any, Any]:
        """The index of FAISS, and its parameters of a search, which exclude removed nodes; None if there are none."""
        import faiss  # heavy: only when something is searched

        stored = self._stored_index
        is_stored = stored is not None and stored.suffix == f".{self.index}"
        index = map_vector_index(stored) if stored is not None and is_stored else self._build_index()
        limits: dict[str, Any]
        if self.index == "ivf":
            index.nprobe, limits = self.num_probes, {"nprobe": self.num_probes}
        else:
            ef_search = max(self.ef_search, self.top_k)
            index.hnsw.efSearch, limits = ef_search, {"efSearch": ef_search}
        removed = None if self._removed is None else self._removed[: index.ntotal].nonzero().flatten().cpu().numpy()
        if removed is None or not len(removed):
            return index, None
        module: Any = faiss  # whose types lack keyword arguments
        parameters = module.SearchParametersIVF if self.index == "ivf" else module.SearchParametersHNSW
        return index, parameters(sel=module.IDSelectorNot(module.IDSelectorBatch(removed)), **limits)

    def _build_index(self) -> Any:
        import faiss

        index = new_vector_index(self._embedding, self.index, links=self.links, num_cells=self.num_cells)
        device, fits = self._embedding.device, self.top_k + MARGIN <= MAX_GPU_K and self._removed is None
        if self.index == "ivf" and device.type == "cuda" and faiss.get_num_gpus() and fits:
            index = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), device.index or 0, index)
        fill_vector_index(index, self._embedding)
        return index
