"""Semantic-Topological eXpansion (STeX): find neighbours by similarity to the query and by graph structure."""

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

#: Largest number of steps from a node to a neighbour in memory at once, about 100 MiB.
BLOCK_PATHS = 1 << 20


@dataclass(frozen=True)
class Expansion:
    """Nodes found by expanding a batch of rankings, with features of the paths to them.

    Attributes:
        nodes: Node indices ``[B, n]``, int64, padded with -1. Nodes with fewer hops come first, then those with higher
            scores.
        scores: Scores :math:`S_n`, ``[B, n]`` float32, padded with -inf.
        best_seed_rank: Rank of the best seed within ``hops`` steps, ``[B, n]`` int64, 1-based and padded with 0.
        best_seed_score: Score of that seed, ``[B, n]`` float32, padded with 0.
        seeds_reached: Number of seeds within ``hops`` steps, ``[B, n]`` int64, padded with 0.
        hops: Number of steps from the nearest seed, ``[B, n]`` int64, padded with 0.
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
    r"""Find the best neighbours of the seeds of each query.

    .. math::
        S_n = \alpha \, v_q \cdot v_n + \beta \, I_{struct}(n), \qquad
        I_{struct}(n) = \Bigl[1 - \frac{r_{best} - 1}{R_{max} - 1}\Bigr]_{R_{max} > 1}
        + \Bigl[\frac{|A(n)| - 1}{C_{max} - 1}\Bigr]_{C_{max} > 1}

    with :math:`A(n)` the seeds that ``n`` is a neighbour of, :math:`r_{best}` the best (1-based) rank among them,
    :math:`R_{max}` the number of seeds, and :math:`C_{max} = \min(\deg n, R_{max})`. The degree is counted in the whole
    corpus graph. A neighbour that shares several entities counts once for each of them.

    Source: FastInsight, Algorithm 3 (STeX), where both weights are 1. *Differences from the paper:* ``exclude`` may
    contain nodes that are not seeds, and ties are broken by node index. Values of ``hops`` above 1 are an addition: if
    the neighbours of a query do not fill ``top_k``, their own neighbours follow. These are scored in the same way, with
    :math:`A(n)` the seeds at the start of a shortest path to ``n``, and with the second term capped at 1.

    Time and memory grow with the sum of the degrees of the seeds, not with the size of the corpus.

    Args:
        graph: Undirected corpus graph. Passages that share an entity are neighbours too. It needs an ``embedding``
            unless ``similarity_weight`` is 0. Edge weights are ignored.
        seeds: Retrieved nodes ``[B, S]``, best first, unique per row. Padding must come last.
        query_vectors: Query vectors ``[B, d]``. May be None if ``similarity_weight`` is 0.
        top_k: Number of nodes to return per query.
        exclude: Nodes that must not be returned, ``[B, M]`` int64, padded with -1. Seeds are always excluded.
        only: Nodes to which the search is restricted, ``[B, M]`` int64, padded with -1. If None, all nodes are allowed.
        similarity_weight: Weight :math:`\alpha` of the similarity, at least 0. With 0, no vectors are needed.
        structure_weight: Weight :math:`\beta` of the structural score, at least 0.
        hops: Maximum number of steps from a seed.
        edge_type: Index of the only edge type to follow and to count in the degree. If None, all edge types are used.

    Returns:
        Expansion ``[B, top_k]``, padded if fewer nodes are within ``hops`` steps of a seed.

    Raises:
        UserError: If an argument is out of range, the padding of the seeds does not come last, or the shape of
            ``query_vectors`` does not fit.

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
        num_taken = torch.zeros_like(remaining)
        onward = [paths.select(slice(0))]  # walks of the next step, of queries that have room for more nodes
        for block in _row_blocks(graph, paths):
            walks = step.walk(block, forbidden)
            nodes = step.score(walks, hop)
            best = nodes.select(best_of_rows(nodes.row, nodes.score, remaining))
            reached.append(best)
            if hop < hops:
                num_taken += torch.bincount(best.row, minlength=len(num_taken))
                has_room = torch.bincount(nodes.row, minlength=len(remaining)) < remaining
                onward.append(walks.select(has_room[walks.row]))
        if hop < hops:
            remaining = remaining - num_taken
            paths = _WalkPaths(*map(torch.cat, zip(*onward, strict=True)))
            visited = paths.row * graph.num_nodes + paths.node
            forbidden = torch.cat([forbidden, visited]).sort().values
    return _pad(reached, seeds, top_k)


def _check_vectors(graph: CorpusGraph, seeds: Ranking, query_vectors: Tensor | None) -> None:
    needed = [len(seeds), graph.encoded.shape[1]]
    shape = None if query_vectors is None else list(query_vectors.shape)
    if shape != needed:
        raise UserError(f"`query_vectors` must have shape {needed}, got {shape}")


def _check_lists(graph: CorpusGraph, seeds: Ranking, exclude: Tensor | None, only: Tensor | None) -> None:
    check_nodes(graph.num_nodes, seeds=seeds.nodes)
    for name, nodes in {"exclude": exclude, "only": only}.items():
        if nodes is not None and (nodes >= graph.num_nodes).any():
            raise UserError(f"`{name}` must be node indices from 0 to {graph.num_nodes - 1}, got {int(nodes.max())}")
    is_seed = seeds.nodes >= 0
    if (is_seed[:, 1:] & ~is_seed[:, :-1]).any():
        raise UserError("the padding of `seeds` must come last, got a node after a -1")


class _WalkPaths(NamedTuple):
    """Walks from seeds, sorted by query.

    Attributes:
        row: Index of the query, ``[P]`` int64.
        node: Node at the end of the walk, ``[P]`` int64.
        seed_rank: Rank of the seed at the start of the walk, ``[P]`` int64, 1-based.
    """

    row: Tensor
    node: Tensor
    seed_rank: Tensor

    def select(self, index: Tensor | slice) -> "_WalkPaths":
        """Return the walks at the given positions."""
        return _WalkPaths(*(field[index] for field in self))


class _Reached(NamedTuple):
    """Nodes reached by a block of walks, each at most once per query. Every field has shape ``[P]``.

    Attributes:
        row: Index of the query.
        node: Node index.
        score: Score :math:`S_n`.
        best_rank: Rank of the best seed from which the node is reached, 1-based.
        num_seeds: Number of seeds from which the node is reached, :math:`|A(n)|`.
        hops: Number of steps from the nearest seed.
    """

    row: Tensor
    node: Tensor
    score: Tensor
    best_rank: Tensor
    num_seeds: Tensor
    hops: Tensor

    def select(self, index: Tensor) -> "_Reached":
        """Return the nodes at the given positions."""
        return _Reached(*(field[index] for field in self))


@dataclass(frozen=True)
class _Step:
    r"""One step of all walks, with the arguments that are the same for every step.

    Attributes:
        graph: Corpus graph.
        query_vectors: Query vectors ``[B, d]``. If None, similarity is not scored.
        num_seeds: Number of seeds :math:`R_{max}` of each query, ``[B]`` int64.
        max_rank: Largest possible rank of a seed.
        allowed: Sorted keys of the nodes that may be entered (see :func:`_keys`). If None, all nodes are allowed.
        similarity_weight: Weight :math:`\alpha` of the similarity.
        structure_weight: Weight :math:`\beta` of the structural score.
        edge_type: Index of the only edge type to follow. If None, all edge types are used.
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
        """Extend each walk to all neighbours of its last node whose key is not in ``forbidden``, which is sorted.

        Returns the distinct walks, sorted by query, node and seed rank.
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
        """Score each distinct node at the end of the given sorted walks, which have ``hop`` steps."""
        num_nodes = self.graph.num_nodes
        pair, count = torch.unique_consecutive(walks.row * num_nodes + walks.node, return_counts=True)
        row, node = pair // num_nodes, pair % num_nodes
        best_rank = walks.seed_rank[count.cumsum(0) - count]  # the first walk to a node comes from its best seed
        score = self.structure_weight * self._structure(row, node, best_rank, count)
        if self.query_vectors is not None:
            score = self.similarity_weight * pair_products(self.graph.encoded, node, self.query_vectors, row) + score
        return _Reached(row, node, score, best_rank, count, torch.full_like(row, hop))

    def _structure(self, row: Tensor, node: Tensor, best_rank: Tensor, count: Tensor) -> Tensor:
        """Return :math:`I_{struct}` of nodes ``[P]`` that are reached from ``count [P]`` seeds."""
        max_rank = self.num_seeds[row]
        max_count = torch.minimum(self.graph.count_neighbours(node, self.edge_type), max_rank)
        proximity = torch.where(max_rank > 1, 1 - (best_rank - 1) / (max_rank - 1).clamp(min=1), 0.0)
        bridging = torch.where(max_count > 1, (count.minimum(max_count) - 1) / (max_count - 1).clamp(min=1), 0.0)
        return proximity + bridging


def _keys(offset: Tensor, nodes: Tensor) -> Tensor:
    """Return sorted keys that combine row and node of ``nodes [B, M]``, -1 for padding. ``offset`` is ``[B, 1]``."""
    return torch.where(nodes >= 0, offset + nodes, -1).flatten().sort().values


def _row_blocks(graph: CorpusGraph, paths: _WalkPaths) -> Sequence[_WalkPaths]:
    """Divide walks into blocks of whole queries, each with about ``BLOCK_PATHS`` next steps or fewer if possible.

    Returns at least one block.
    """
    degree = graph.count_neighbours(paths.node)
    before = (degree.cumsum(0) - degree)[torch.searchsorted(paths.row, paths.row)]  # number of steps in earlier rows
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
    """Arrange the selected nodes of each query in a matrix ``[B, top_k]``, nodes with fewer hops first."""
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
