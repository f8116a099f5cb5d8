"""Semantic-Topological eXpansion: a ranking's neighbours, by likeness to the query and place in the graph."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from graphrerank.graphs import CorpusGraph, Ranking

BLOCK_PATHS = 1 << 20  # steps from a seed to a neighbour held at once, some 100 MiB
BLOCK_VECTORS = 256  # node vectors copied at once, few enough for a processor's cache


@dataclass(frozen=True)
class Expansion:
    """New nodes for a batch of rankings and what the walk that found them knows of each.

    Attributes:
        nodes: ``[B, n]`` int64 node numbers; fewer hops first, then best score first; padded with -1.
        scores: ``[B, n]`` float32 :math:`S_n`; padded with -inf.
        similarity: ``[B, n]`` float32 dot product of query and node vector (padded with 0; all 0 where its weight is).
        structure: ``[B, n]`` float32 :math:`I_{struct}` in [0, 2] (padded with 0).
        best_seed_rank: ``[B, n]`` int64, 1 for the top seed (padded with 0).
        best_seed_score: ``[B, n]`` float32, that seed's score (padded with 0).
        seeds_reached: ``[B, n]`` int64, number of seeds within ``hops`` (padded with 0).
        hops: ``[B, n]`` int64, steps from the nearest seed (padded with 0).
    """

    nodes: Tensor
    scores: Tensor
    similarity: Tensor
    structure: Tensor
    best_seed_rank: Tensor
    best_seed_score: Tensor
    seeds_reached: Tensor
    hops: Tensor


def semantic_topological_expansion(
    graph: CorpusGraph,
    seeds: Ranking,
    query_vectors: Tensor | None,
    *,
    top_k: int,
    exclude: Tensor | None = None,
    similarity_weight: float = 1.0,
    structure_weight: float = 1.0,
    hops: int = 1,
) -> Expansion:
    r"""Find the best neighbours of each query's seeds, for all queries at once.

    .. math::
        S_n = \alpha \, v_q \cdot v_n + \beta \, I_{struct}(n), \qquad
        I_{struct}(n) = \Bigl[1 - \frac{r_{best} - 1}{R_{max} - 1}\Bigr]_{R_{max} > 1}
        + \Bigl[\frac{|A(n)| - 1}{C_{max} - 1}\Bigr]_{C_{max} > 1}

    with :math:`A(n)` the seeds that ``n`` is a neighbour of, :math:`r_{best}` the best (1-based) rank among them,
    :math:`R_{max}` the number of seeds, :math:`C_{max} = \min(\deg n, R_{max})` with the degree in the whole corpus
    graph (a neighbour by shared entities counts once for each), :math:`\alpha` the ``similarity_weight`` and
    :math:`\beta` the ``structure_weight``.

    Source: FastInsight, Algorithm 3 (STeX); its weights are 1. *Where we differ:* the seeds may be fewer than the nodes
    that must not come back (``exclude``); ties break by node number. ``hops`` above 1 is ours: where a query's nodes
    do not fill ``top_k``, the neighbours of these nodes follow, scored alike with :math:`A(n)` the seeds at the start
    of a shortest path to ``n`` and its term capped at 1.

    Work and memory grow with the sum of the seeds' degrees, in blocks of queries; never with the corpus.

    Args:
        graph: The corpus, undirected; passages that share an entity are neighbours too. With an ``embedding`` unless
            ``similarity_weight`` is 0. Edge weights are not read.
        seeds: ``[B, S]`` the retrieved nodes, best first, padding last; a row holds a node at most once.
        query_vectors: ``[B, d]``; may be None where ``similarity_weight`` is 0.
        top_k: Nodes to return per query, at least 1.
        exclude: ``[B, M]`` int64 nodes that must not be returned, padded with -1; the seeds never are.
        similarity_weight: Weight of the dot product, not negative; 0 ranks the neighbours by structure, and reads no
            vectors.
        structure_weight: Weight of the structural score, not negative; 0 ranks the neighbours by similarity.
        hops: Most steps from a seed, at least 1.

    Returns:
        ``[B, top_k]``; only nodes within ``hops`` of a seed, so that a row may be mostly padding.

    Raises:
        ValueError: If an argument is out of range, shapes do not fit, or vectors that are read are not there.

    Example:
        >>> graph = CorpusGraph.from_edges(list("abcd"), [""] * 4, torch.tensor([[0, 2], [1, 2], [1, 3]]))
        >>> graph = graph.with_embedding(torch.tensor([[0.0], [0.0], [0.25], [1.0]]))
        >>> seeds = Ranking(torch.tensor([[0, 1]]), torch.tensor([[0.9, 0.8]]))
        >>> found = semantic_topological_expansion(graph, seeds, torch.ones(1, 1), top_k=3)
        >>> found.nodes.tolist(), found.scores.tolist(), found.seeds_reached.tolist()
        ([[2, 3, -1]], [[2.25, 1.0, -inf]], [[2, 1, 0]])
    """
    _check(graph, seeds, query_vectors, exclude, top_k, similarity_weight, structure_weight, hops)
    valid = seeds.nodes >= 0
    row, column = torch.nonzero(valid, as_tuple=True)
    paths = torch.stack([row, seeds.nodes[row, column], column + 1])
    taken = seeds.nodes if exclude is None else torch.cat([seeds.nodes, exclude], dim=1)
    owner = torch.arange(len(seeds), device=taken.device)[:, None] * graph.num_nodes
    forbidden = torch.unique((owner + taken)[taken >= 0])
    step = _Step(graph, query_vectors, valid.sum(1), similarity_weight, structure_weight)
    room = torch.full_like(valid.sum(1), top_k)
    reached: list[_Reached] = []
    for hop in range(1, hops + 1):
        ends = [step.walk(block, forbidden, room, hop) for block in _row_blocks(graph, paths)]
        reached += [found for found, _ in ends]
        paths = torch.cat([paths[:, :0], *(onward for _, onward in ends)], dim=1)
        forbidden = torch.unique(torch.cat([forbidden, paths[0] * graph.num_nodes + paths[1]]))
        room = room - torch.bincount(torch.cat([room[:0], *(found.row for found, _ in ends)]), minlength=len(room))
    return _pad(reached, seeds, top_k)


class _Reached(NamedTuple):
    """Nodes that a block of walks arrived at, each field ``[P]``; grouped by row, best first."""

    row: Tensor
    node: Tensor
    score: Tensor
    similarity: Tensor
    structure: Tensor
    best_rank: Tensor
    num_seeds: Tensor
    hops: Tensor


@dataclass(frozen=True)
class _Step:
    graph: CorpusGraph
    query_vectors: Tensor | None
    num_seeds: Tensor  # [B], R_max
    similarity_weight: float
    structure_weight: float

    def walk(self, paths: Tensor, forbidden: Tensor, room: Tensor, hop: int) -> tuple[_Reached, Tensor]:
        """Take one step from the end of each path.

        Args:
            paths: ``[3, P]``: row, node at the end, 1-based rank of the seed at the start; ascending by row.
            forbidden: ``[F]`` sorted keys ``row * num_nodes + node`` that must not be entered.
            room: ``[B]`` nodes that each row still takes.
            hop: Steps from the seeds after this one.

        Returns:
            The nodes each row takes, and the paths to walk on from, ``[3, P']``: those of the rows with room left.
        """
        num_nodes, width = self.graph.num_nodes, int(self.num_seeds.max()) + 1
        step, neighbour = self.graph.neighbours(paths[1])
        key = paths[0][step] * num_nodes + neighbour
        new = ~_contains(forbidden, key)
        walks = torch.unique(key[new] * width + paths[2][step[new]])  # ascending: a node's best seed comes first
        key = torch.div(walks, width, rounding_mode="floor")
        pair, count = torch.unique_consecutive(key, return_counts=True)
        row = torch.div(pair, num_nodes, rounding_mode="floor")
        found = self._score(row, pair - row * num_nodes, walks[count.cumsum(0) - count] % width, count, hop)

        rows, per_row = torch.unique_consecutive(row, return_counts=True)
        kept = [  # stable: ties stay in node order
            start + torch.argsort(scores, descending=True, stable=True)[:most]
            for start, most, scores in zip(
                (per_row.cumsum(0) - per_row).tolist(),
                room[rows].tolist(),
                _split(found.score, per_row),
                strict=True,
            )
        ]
        best = torch.cat([row[:0], *kept])
        row_of_walk = torch.div(key, num_nodes, rounding_mode="floor")
        onward = torch.stack([row_of_walk, key - row_of_walk * num_nodes, walks - key * width])
        left = torch.bincount(row, minlength=len(room)) < room
        return _Reached(*(field[best] for field in found)), onward[:, left[row_of_walk]]

    def _score(self, row: Tensor, node: Tensor, best_rank: Tensor, count: Tensor, hop: int) -> _Reached:
        most_ranks = self.num_seeds[row]
        most_seeds = torch.minimum(self.graph.num_neighbours[node], most_ranks)
        proximity = torch.where(most_ranks > 1, 1 - (best_rank - 1) / (most_ranks - 1).clamp(min=1), 0.0)
        bridging = torch.where(most_seeds > 1, (count.minimum(most_seeds) - 1) / (most_seeds - 1).clamp(min=1), 0.0)
        similarity, structure = self._similarity(row, node), proximity + bridging
        score = self.similarity_weight * similarity + self.structure_weight * structure
        return _Reached(row, node, score, similarity, structure, best_rank, count, torch.full_like(node, hop))

    def _similarity(self, row: Tensor, node: Tensor) -> Tensor:
        """Multiply query and node vectors, ``row`` ascending; equal vectors give equal scores, which BLAS may not.

        All 0 where the weight is.
        """
        if not self.similarity_weight:
            return torch.zeros(row.numel(), device=row.device)
        assert self.graph.embedding is not None
        assert self.query_vectors is not None
        rows, per_row = torch.unique_consecutive(row, return_counts=True)
        dots = [
            self.graph.embedding.index_select(0, part).mul_(query).sum(1)
            for nodes, query in zip(_split(node, per_row), self.query_vectors[rows], strict=True)
            for part in torch.split(nodes, BLOCK_VECTORS)
        ]
        return torch.cat([self.query_vectors.new_zeros(0), *dots])


def _split(parts: Tensor, sizes: Tensor, *, dim: int = 0) -> Sequence[Tensor]:
    return torch.split(parts, sizes.tolist(), dim=dim) if sizes.numel() else ()


def _row_blocks(graph: CorpusGraph, paths: Tensor) -> Sequence[Tensor]:
    """Cut paths between rows, so that each part but those of a single row makes about ``BLOCK_PATHS`` steps at most."""
    degree = graph.num_neighbours[paths[1]]
    before = (degree.cumsum(0) - degree)[torch.searchsorted(paths[0], paths[0])]  # steps of the rows above
    block = torch.div(before, BLOCK_PATHS, rounding_mode="floor")
    _, sizes = torch.unique_consecutive(block, return_counts=True)
    return _split(paths, sizes, dim=1)


def _contains(ascending: Tensor, wanted: Tensor) -> Tensor:
    if not ascending.numel():
        return torch.zeros_like(wanted, dtype=torch.bool)
    return ascending[torch.searchsorted(ascending, wanted).clamp(max=ascending.numel() - 1)] == wanted


def _pad(reached: list[_Reached], seeds: Ranking, top_k: int) -> Expansion:
    shape, device = (len(seeds), top_k), seeds.nodes.device
    nodes = torch.full(shape, -1, device=device)
    scores, zeros = seeds.scores.new_full(shape, -torch.inf), seeds.scores.new_zeros(shape)
    counts = torch.zeros_like(nodes)
    if not reached:
        return Expansion(nodes, scores, zeros, zeros, counts, zeros, counts, counts)
    every = _Reached(*(torch.cat(parts) for parts in zip(*reached, strict=True)))
    order = torch.argsort(every.row, stable=True)  # hop after hop within a row
    every = _Reached(*(field[order] for field in every))
    slot = torch.arange(len(order), device=device) - torch.searchsorted(every.row, every.row)
    at = (every.row, slot)
    return Expansion(
        nodes=nodes.index_put(at, every.node),
        scores=scores.index_put(at, every.score),
        similarity=zeros.index_put(at, every.similarity),
        structure=zeros.index_put(at, every.structure),
        best_seed_rank=counts.index_put(at, every.best_rank),
        best_seed_score=zeros.index_put(at, seeds.scores[every.row, every.best_rank - 1]),
        seeds_reached=counts.index_put(at, every.num_seeds),
        hops=counts.index_put(at, every.hops),
    )


def _check(
    graph: CorpusGraph,
    seeds: Ranking,
    query_vectors: Tensor | None,
    exclude: Tensor | None,
    top_k: int,
    similarity_weight: float,
    structure_weight: float,
    hops: int,
) -> None:
    for name, number in (("top_k", top_k), ("hops", hops)):
        if number < 1:
            raise ValueError(f"`{name}` must be a positive integer, got {number}")
    for name, weight in (("similarity_weight", similarity_weight), ("structure_weight", structure_weight)):
        if not weight >= 0:
            raise ValueError(f"`{name}` must not be negative, got {weight}")
    if similarity_weight:
        if graph.embedding is None:
            raise ValueError("`graph` must have an embedding: encode the corpus first, or set `similarity_weight` to 0")
        needed, given = [len(seeds), graph.embedding.shape[1]], None if query_vectors is None else query_vectors.shape
        if given is None or list(given) != needed:
            raise ValueError(f"`query_vectors` must be {needed}, got {given and list(given)}")
    if exclude is not None and (exclude.dim() != 2 or len(exclude) != len(seeds)):
        raise ValueError(f"`exclude` must be [{len(seeds)}, M], got {list(exclude.shape)}")
    for name, nodes in (("seeds", seeds.nodes), ("exclude", exclude)):
        if nodes is not None and nodes.numel() and int(nodes.max()) >= graph.num_nodes:
            raise ValueError(f"`{name}` must hold nodes 0 to {graph.num_nodes - 1}, got {int(nodes.max())}")
    if ((seeds.nodes[:, 1:] >= 0) & (seeds.nodes[:, :-1] < 0)).any():
        raise ValueError("`seeds` must have their padding last, got a node after a -1")
    ascending = torch.sort(seeds.nodes, dim=1).values
    repeated = ((ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)).any(1)
    if repeated.any():
        raise ValueError(f"`seeds` must hold a node once per query, got one twice in row {int(repeated.nonzero()[0])}")
