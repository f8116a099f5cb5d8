"""Edges of passages that are added to a corpus folder to their nearest neighbours."""

import torch
from torch import Tensor

from graphrerank.extras import optional
from graphrerank.graphs import CorpusGraph, top_k_by_node_order
from graphrerank.graphs.edge_lists import merge_parallel
from graphrerank.graphs.vector_index import BLOCK_VECTORS, IndexSearch

BLOCK_QUERIES = 1 << 10  # vectors compared at once
NUM_PROBES = 16  # IVF: cells that a search visits
EF_SEARCH = 128  # HNSW: nodes kept open in a search, at least
PROPOSED = 64  # by an index, beside those that are wanted


def nearest_of_added(
    graph: CorpusGraph, vectors: Tensor, pairs: Tensor, removed: Tensor, *, k: int, below: int | None = None
) -> tuple[Tensor, Tensor]:
    """Join each added passage with the ``k`` passages of the largest dot product; ties break by passage number.

    All vectors of the corpus are compared, in blocks; if it has an index of FAISS, those that the index proposes. The
    result is that of :func:`~graphrerank.data.enrichment.knn.nearest_neighbor_edges` with the added passages as
    ``nodes``, up to rounding, and with an index in so far as it proposes the nearest.

    Args:
        graph: The corpus of ``N`` passages, with vectors.
        vectors: ``[n, d]``, of the added passages, which are numbered from ``N`` on.
        pairs: ``[M, 2]`` int64, the edges that they have.
        removed: ``[r]`` int64, passages that are removed with the same change.
        k: Neighbours of each added passage.
        below: Only added passages that have fewer neighbours than this by ``pairs`` are joined; None joins all.

    Returns:
        ``[M', 2]`` int64 (added, neighbour) and ``[M']`` float32 dot products, which are positive.

    Raises:
        MissingExtraError: If the corpus has an index, and FAISS is not installed.
    """
    first, num_new = graph.num_nodes, len(vectors)
    assert graph.vectors is not None
    embedding, gone = graph.vectors.embedding, torch.zeros(first, dtype=torch.bool)
    if graph.passages.removed is not None:
        gone |= graph.passages.removed
    gone[removed] = True
    wanted = torch.arange(num_new)
    if below is not None:
        merged, _ = merge_parallel(torch.cat([pairs, pairs.flip(1)]), torch.ones(2 * len(pairs)), first + num_new)
        own = merged[:, 0][merged[:, 0] >= first] - first
        wanted = wanted[torch.bincount(own, minlength=num_new) < below]
    depth, search = k + PROPOSED, None
    if (stored := graph.vectors.index) is not None:
        optional("faiss", "adding to a corpus with an index")
        ef_search = max(EF_SEARCH, depth)
        search = IndexSearch(stored.open(), stored.kind, num_probes=NUM_PROBES, ef_search=ef_search, removed=gone)
    vectors = vectors.to(embedding.dtype).float()  # as the corpus will have them
    found: list[tuple[Tensor, Tensor]] = [(torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0))]
    for places in torch.split(wanted, BLOCK_QUERIES) if len(wanted) else ():
        best = _Best(len(places), k)
        if search is not None:
            nodes = torch.from_numpy(search.propose(vectors[places], depth)).sort(dim=1).values
            scores = torch.einsum("nd,nkd->nk", vectors[places], embedding[nodes.clamp(min=0)].float())
            best.add(nodes, scores.masked_fill(nodes < 0, -torch.inf))
        for low in range(0 if search is None else search.num_vectors, first, BLOCK_VECTORS):
            block = vectors[places] @ embedding[low : low + BLOCK_VECTORS].float().T
            block[:, gone[low : low + BLOCK_VECTORS]] = -torch.inf
            best.add((low + torch.arange(block.shape[1])).expand_as(block), block)
        among = vectors[places] @ vectors.T
        among[torch.arange(len(places)), places] = -torch.inf  # not its own neighbour
        best.add((first + torch.arange(num_new)).expand_as(among), among)
        row, column = torch.nonzero(best.scores > 0, as_tuple=True)
        found.append((torch.stack([first + places[row], best.nodes[row, column]], 1), best.scores[row, column]))
    return torch.cat([ends for ends, _ in found]), torch.cat([weight for _, weight in found])


class _Best:
    """The ``k`` best nodes of each of ``n`` vectors so far; nodes are added in ascending order."""

    def __init__(self, count: int, k: int) -> None:
        self.k = k
        self.nodes, self.scores = torch.zeros(count, 0, dtype=torch.int64), torch.zeros(count, 0)

    def add(self, nodes: Tensor, scores: Tensor) -> None:
        """Add nodes ``[n, m]``, ascending in each row."""
        nodes, scores = torch.cat([self.nodes, nodes], 1), torch.cat([self.scores, scores], 1)
        place, self.scores = top_k_by_node_order(scores, self.k)
        self.nodes = nodes.gather(1, place.clamp(min=0))
