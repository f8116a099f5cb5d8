"""Semantic-Topological eXpansion: a ranking's neighbours, by similarity to the query and position in the graph."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from graphrerank.core import Ranking
from graphrerank.core.ranking import best_of_rows, check_nodes, pair_products
from graphrerank.core.sparse_rows import positions_in_rows
from graphrerank.corpus import CorpusGraph
from graphrerank.utils.checks import UserError, check_counts, check_not_negative

BLOCK_PATHS = 1 << 20  # steps from a seed to a neighbour held at once, some 100 MiB


@dataclass(frozen=True)
class Expansion:
    """New nodes for a batch of rankings, with features of the walk that found them.

    Attributes:
        nodes: ``[B, n]`` int64 nodes. Fewer hops come first, then the best score; padded with -1.
        scores: ``[B, n]`` float32 :math:`S_n`, padded with -inf.
        best_seed_rank: ``[B, n]`` int64 rank of the best seed within ``hops``, 1 for the top one; padded with 0.
        best_seed_score: ``[B, n]`` float32 score of that seed, padded with 0.
        seeds_reached: ``[B, n]`` int64 number of seeds within ``hops``, padded with 0.
        hops: ``[B, n]`` int64 steps from the nearest seed, padded with 0.
    """

    nodes: Tensor
    scores: Tensor
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
    only: Tensor | None = None,
    similarity_weight: float = 1.0,
    structure_weight: float = 1.0,
    hops: int = 1,
    edge_type: int | None = None,
) -> Expansion:
    r"""Find the best neighbours of each query's seeds, for all queries at once.

    .. math::
        S_n = \alpha \, v_q \cdot v_n + \beta \, I_{struct}(n), \qquad
        I_{struct}(n) = \Bigl[1 - \frac{r_{best} - 1}{R_{max} - 1}\Bigr]_{R_{max} > 1}
        + \Bigl[\frac{|A(n)| - 1}{C_{max} - 1}\Bigr]_{C_{max} > 1}

    with :math:`A(n)` the seeds that ``n`` is a neighbour of, :math:`r_{best}` the best (1-based) rank among them,
    :math:`R_{max}` the number of seeds, :math:`C_{max} = \min(\deg n, R_{max})` with the degree in the whole corpus
    graph (a neighbour by shared entities counts once for each).

    Source: FastInsight, Algorithm 3 (STeX); its weights are 1. *Where we differ:* ``exclude`` may contain more nodes
    than the seeds; ties are broken by node index. ``hops`` above 1 is ours: if a query's nodes do not fill ``top_k``,
    the neighbours of these nodes follow, with the same score over the seeds :math:`A(n)` at the start of a shortest
    path to ``n``, and its second term capped at 1.

    Time and memory grow with the sum of the seeds' degrees, not with the corpus.

    Args:
        graph: The corpus, undirected. Passages that share an entity are neighbours too. It needs an ``embedding``
            unless ``similarity_weight`` is 0. Edge weights are not read.
        seeds: ``[B, S]`` retrieved nodes, best first, padding last, unique per row.
        query_vectors: ``[B, d]`` vectors. May be None if ``similarity_weight`` is 0.
        top_k: Number of nodes to return per query.
        exclude: ``[B, M]`` int64 nodes that must not be returned, padded with -1. Seeds are never returned.
        only: ``[B, M]`` int64 nodes, padded with -1; no other node is entered. If None, all may be entered.
        similarity_weight: :math:`\alpha`, not negative. 0 reads no vectors.
        structure_weight: :math:`\beta`, not negative.
        hops: Maximum number of steps from a seed.
        edge_type: The only type of edges that is followed, and counted in the degree. If None, all are.

    Returns:
        ``[B, top_k]`` nodes, padded where few nodes are within ``hops`` of a seed.

    Raises:
        UserError: If an argument is out of range, the seeds' padding is not last, or ``query_vectors`` do not fit.

    Example:
        >>> graph = CorpusGraph.from_edges(list("abcd"), [""] * 4, torch.tensor([[0, 2], [1, 2], [1, 3]]))
        >>> graph = graph.with_embedding(torch.tensor([[0.0], [0.0], [0.25], [1.0]]))
        >>> seeds = Ranking(torch.tensor([[0, 1]]), torch.tensor([[0.9, 0.8]]))
        >>> expansion = semantic_topological_expansion(graph, seeds, torch.ones(1, 1), top_k=3)
        >>> expansion.nodes.tolist(), expansion.scores.tolist(), expansion.seeds_reached.tolist()
        ([[2, 3, -1]], [[2.25, 1.0, -inf]], [[2, 1, 0]])
    """
    check_counts(top_k=top_k, hops=hops)
    check_not_negative(similarity_weight=similarity_weight, structure_weight=structure_weight)
    if similarity_weight:
        _check_vectors(graph, seeds, query_vectors)
    _check_lists(graph, seeds, exclude, only)
    is_seed = seeds.nodes >= 0
    row, column = torch.nonzero(is_seed, as_tuple=True)
    paths = _WalkPaths(row, seeds.nodes[row, column], column + 1)
    offset = torch.arange(len(seeds), device=seeds.nodes.device)[:, None] * graph.num_nodes
    forbidden = _keys(offset, seeds.nodes if exclude is None else torch.cat([seeds.nodes, exclude], dim=1))
    step = _Step(
        graph=graph,
        query_vectors=query_vectors if similarity_weight else None,
        num_seeds=is_seed.sum(1),
        max_rank=is_seed.shape[1],
        allowed=None if only is None else _keys(offset, only),
        similarity_weight=similarity_weight,
        structure_weight=structure_weight,
        edge_type=edge_type,
    )
    remaining = torch.full_like(step.num_seeds, top_k)
    reached: list[_Reached] = []
    for hop in range(1, hops + 1):
        taken, onward = torch.zeros_like(remaining), [paths.select(slice(0))]
        for block in _row_blocks(graph, paths):
            walks = step.walk(block, forbidden)
            nodes = step.score(walks, hop)
            best = nodes.select(best_of_rows(nodes.row, nodes.score, remaining))
            reached.append(best)
            if hop < hops:
                taken += torch.bincount(best.row, minlength=len(taken))
                has_room = torch.bincount(nodes.row, minlength=len(remaining)) < remaining
                onward.append(walks.select(has_room[walks.row]))
        if hop < hops:
            remaining, paths = remaining - taken, _WalkPaths(*map(torch.cat, zip(*onward, strict=True)))
            forbidden = torch.cat([forbidden, paths.row * graph.num_nodes + paths.node]).sort().values
    return _pad(reached, seeds, top_k)


def _check_vectors(graph: CorpusGraph, seeds: Ranking, query_vectors: Tensor | None) -> None:
    needed = [len(seeds), graph.encoded.shape[1]]
    shape = None if query_vectors is None else list(query_vectors.shape)
    if shape != needed:
        raise UserError(f"`query_vectors` must be {needed}, got {shape}")


def _check_lists(graph: CorpusGraph, seeds: Ranking, exclude: Tensor | None, only: Tensor | None) -> None:
    check_nodes(graph.num_nodes, seeds=seeds.nodes)
    for name, nodes in {"exclude": exclude, "only": only}.items():
        if nodes is not None and (nodes >= graph.num_nodes).any():
            raise UserError(f"`{name}` must lie in 0 to {graph.num_nodes - 1}, got {int(nodes.max())}")
    is_seed = seeds.nodes >= 0
    if (is_seed[:, 1:] & ~is_seed[:, :-1]).any():
        raise UserError("`seeds` must have their padding last, got a node after a -1")


class _WalkPaths(NamedTuple):
    """Walks from seeds, ``P`` of them, ascending by row.

    Attributes:
        row: ``[P]`` int64 number of the query.
        node: ``[P]`` int64 node at the end of the walk.
        seed_rank: ``[P]`` int64 rank of the seed at its start, from 1.
    """

    row: Tensor
    node: Tensor
    seed_rank: Tensor

    def select(self, index: Tensor | slice) -> "_WalkPaths":
        """Return some of the paths."""
        return _WalkPaths(*(field[index] for field in self))


class _Reached(NamedTuple):
    """Nodes that a block of walks reached, each once per query; every field is ``[P]``.

    Attributes:
        row: Number of the query.
        node: The node.
        score: :math:`S_n`.
        best_rank: Rank of the best seed it is reached from, from 1.
        num_seeds: Number of seeds it is reached from, :math:`|A(n)|`.
        hops: Steps from the nearest seed.
    """

    row: Tensor
    node: Tensor
    score: Tensor
    best_rank: Tensor
    num_seeds: Tensor
    hops: Tensor

    def select(self, index: Tensor) -> "_Reached":
        """Return some of the nodes."""
        return _Reached(*(field[index] for field in self))


@dataclass(frozen=True)
class _Step:
    r"""One step of all walks, with what does not change between steps.

    Attributes:
        graph: The corpus.
        query_vectors: ``[B, d]`` vectors. None if similarity does not count.
        num_seeds: ``[B]`` int64, :math:`R_{max}`.
        max_rank: Largest rank of a seed that is possible.
        allowed: Ascending keys (:func:`_keys`) of the nodes that may be entered. None for all.
        similarity_weight: :math:`\alpha`.
        structure_weight: :math:`\beta`.
        edge_type: The only type of edges that is followed. None for all.
    """

    graph: CorpusGraph
    query_vectors: Tensor | None
    num_seeds: Tensor
    max_rank: int
    allowed: Tensor | None
    similarity_weight: float
    structure_weight: float
    edge_type: int | None

    def walk(self, paths: _WalkPaths, forbidden: Tensor) -> _WalkPaths:
        """Go on from the end of each path to all neighbours but ``forbidden`` ones, which are ascending keys.

        Returns the paths, each once, ascending by row, node and rank.
        """
        step, neighbour = self.graph.neighbours(paths.node, self.edge_type)
        key = paths.row[step] * self.graph.num_nodes + neighbour
        is_new = ~_contains(forbidden, key)
        if self.allowed is not None:
            is_new &= _contains(self.allowed, key)
        new, width = is_new.nonzero().flatten(), self.max_rank + 1
        walks = torch.unique(key[new] * width + paths.seed_rank[step[new]])
        key = walks // width
        return _WalkPaths(key // self.graph.num_nodes, key % self.graph.num_nodes, walks % width)

    def score(self, walks: _WalkPaths, hop: int) -> _Reached:
        """Score each node at the end of some walks, which are ascending, after ``hop`` steps."""
        num_nodes = self.graph.num_nodes
        pair, count = torch.unique_consecutive(walks.row * num_nodes + walks.node, return_counts=True)
        row, node = pair // num_nodes, pair % num_nodes
        best_rank = walks.seed_rank[count.cumsum(0) - count]  # a node's first walk is that of its best seed
        score = self.structure_weight * self._structure(row, node, best_rank, count)
        if self.query_vectors is not None:
            score = self.similarity_weight * pair_products(self.graph.encoded, node, self.query_vectors, row) + score
        return _Reached(row, node, score, best_rank, count, torch.full_like(row, hop))

    def _structure(self, row: Tensor, node: Tensor, best_rank: Tensor, count: Tensor) -> Tensor:
        r"""Return :math:`I_{struct}` of nodes ``[P]`` that are reached from ``count [P]`` seeds."""
        max_rank = self.num_seeds[row]
        max_count = torch.minimum(self.graph.count_neighbours(node, self.edge_type), max_rank)
        proximity = torch.where(max_rank > 1, 1 - (best_rank - 1) / (max_rank - 1).clamp(min=1), 0.0)
        bridging = torch.where(max_count > 1, (count.minimum(max_count) - 1) / (max_count - 1).clamp(min=1), 0.0)
        return proximity + bridging


def _keys(offset: Tensor, nodes: Tensor) -> Tensor:
    """Return a number for each row and node of ``[B, M]``, ascending; -1 for padding. ``offset`` is ``[B, 1]``."""
    return torch.where(nodes >= 0, offset + nodes, -1).flatten().sort().values


def _row_blocks(graph: CorpusGraph, paths: _WalkPaths) -> Sequence[_WalkPaths]:
    """Cut paths between rows into blocks of at most about ``BLOCK_PATHS`` steps, or of a single row; at least one."""
    degree = graph.count_neighbours(paths.node)
    before = (degree.cumsum(0) - degree)[torch.searchsorted(paths.row, paths.row)]  # steps of the rows above
    _, sizes = torch.unique_consecutive(before // BLOCK_PATHS, return_counts=True)
    if not sizes.numel():
        return (paths,)
    fields = (torch.split(field, sizes.tolist()) for field in paths)
    return [_WalkPaths(*block) for block in zip(*fields, strict=True)]


def _contains(ascending: Tensor, keys: Tensor) -> Tensor:
    if not ascending.numel():
        return torch.zeros_like(keys, dtype=torch.bool)
    return ascending[torch.searchsorted(ascending, keys).clamp(max=ascending.numel() - 1)] == keys


def _pad(reached: Sequence[_Reached], seeds: Ranking, top_k: int) -> Expansion:
    """Lay out the nodes that each row takes, hop after hop, as ``[B, top_k]``."""
    joined = _Reached(*map(torch.cat, zip(*reached, strict=True)))
    nodes = joined.select(torch.argsort(joined.row, stable=True))
    cell = (nodes.row, positions_in_rows(nodes.row))

    def laid_out(entries: Tensor, fill: float = 0) -> Tensor:
        return entries.new_full((len(seeds), top_k), fill).index_put(cell, entries)

    return Expansion(
        nodes=laid_out(nodes.node, -1),
        scores=laid_out(nodes.score, -torch.inf),
        best_seed_rank=laid_out(nodes.best_rank),
        best_seed_score=laid_out(seeds.scores[nodes.row, nodes.best_rank - 1]),
        seeds_reached=laid_out(nodes.num_seeds),
        hops=laid_out(nodes.hops),
    )
