"""Semantic-Topological eXpansion: a ranking's neighbours, by similarity to the query and position in the graph."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from graphrerank.checks import UserError, check_counts, check_not_negative
from graphrerank.graphs import CorpusGraph, Ranking
from graphrerank.graphs.ranking import check_nodes
from graphrerank.graphs.sparse_rows import positions_in_rows

BLOCK_PATHS = 1 << 20  # steps from a seed to a neighbour held at once, some 100 MiB
BLOCK_VECTORS = 256  # node vectors copied at once, few enough for a processor's cache


@dataclass(frozen=True)
class Expansion:
    """New nodes for a batch of rankings, with features of the walk that found them."""

    nodes: Tensor  # `[B, n]` int64 nodes; fewer hops first, then best score first; padded with -1
    scores: Tensor  # `[B, n]` float32 :math:`S_n`; padded with -inf
    best_seed_rank: Tensor  # `[B, n]` int64, 1 for the top seed, padded with 0
    best_seed_score: Tensor  # `[B, n]` float32, that seed's score, padded with 0
    seeds_reached: Tensor  # `[B, n]` int64, number of seeds within `hops`, padded with 0
    hops: Tensor  # `[B, n]` int64, steps from the nearest seed, padded with 0


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
        graph: The corpus, undirected; passages that share an entity are neighbours too. It needs an ``embedding``
            unless ``similarity_weight`` is 0. Edge weights are not read.
        seeds: ``[B, S]`` the retrieved nodes, best first, padding last, unique per row.
        query_vectors: ``[B, d]``; may be None if ``similarity_weight`` is 0.
        top_k: Nodes to return per query.
        exclude: ``[B, M]`` int64 nodes that must not be returned, padded with -1; the seeds never are.
        only: ``[B, M]`` int64, padded with -1: the only nodes that may be entered; all when None.
        similarity_weight: :math:`\alpha`, not negative; 0 reads no vectors.
        structure_weight: :math:`\beta`, not negative.
        hops: Maximum number of steps from a seed.
        edge_type: The only type of edges to follow, and to count in the degree; None for all.

    Returns:
        ``[B, top_k]``; only nodes within ``hops`` of a seed, so that a row may be mostly padding.

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
        needed, given = [len(seeds), graph.encoded.shape[1]], None if query_vectors is None else query_vectors.shape
        if given is None or list(given) != needed:
            raise UserError(f"`query_vectors` must be {needed}, got {given and list(given)}")
    check_nodes(graph.num_nodes, seeds=seeds.nodes)
    for name, nodes in {"exclude": exclude, "only": only}.items():
        if nodes is not None and (nodes >= graph.num_nodes).any():
            raise UserError(f"`{name}` must lie in 0 to {graph.num_nodes - 1}, got {int(nodes.max())}")
    valid = seeds.nodes >= 0
    if (valid[:, 1:] & ~valid[:, :-1]).any():
        raise UserError("`seeds` must have their padding last, got a node after a -1")
    row, column = torch.nonzero(valid, as_tuple=True)
    paths = torch.stack([row, seeds.nodes[row, column], column + 1])
    excluded = seeds.nodes if exclude is None else torch.cat([seeds.nodes, exclude], dim=1)
    offset = torch.arange(len(seeds), device=excluded.device)[:, None] * graph.num_nodes
    forbidden = torch.unique((offset + excluded)[excluded >= 0])
    allowed = None if only is None else torch.unique((offset + only)[only >= 0])
    step = _Step(graph, query_vectors, valid.sum(1), allowed, similarity_weight, structure_weight, edge_type)
    remaining = torch.full_like(valid.sum(1), top_k)
    reached: list[_Reached] = []
    for hop in range(1, hops + 1):
        walks = [step.walk(block, forbidden, remaining, hop) for block in _row_blocks(graph, paths)]
        reached += [nodes for nodes, _ in walks]
        paths = torch.cat([onward for _, onward in walks], dim=1)
        forbidden = torch.unique(torch.cat([forbidden, paths[0] * graph.num_nodes + paths[1]]))
        rows = torch.cat([nodes.row for nodes, _ in walks])
        remaining = remaining - torch.bincount(rows, minlength=len(remaining))
    return _pad(reached, seeds, top_k)


class _Reached(NamedTuple):
    """Nodes reached by a block of walks, each field ``[P]``; grouped by row, best first."""

    row: Tensor
    node: Tensor
    score: Tensor
    best_rank: Tensor
    num_seeds: Tensor
    hops: Tensor


@dataclass(frozen=True)
class _Step:
    graph: CorpusGraph
    query_vectors: Tensor | None
    num_seeds: Tensor  # [B], R_max
    allowed: Tensor | None  # [A], sorted keys as `forbidden`: nodes that may be entered; None for all
    similarity_weight: float
    structure_weight: float
    edge_type: int | None

    def walk(self, paths: Tensor, forbidden: Tensor, remaining: Tensor, hop: int) -> tuple[_Reached, Tensor]:
        """Take one step from the end of each path; return the nodes that each row takes, and the paths that go on."""
        # paths: [3, P], row, node at the end, 1-based rank of the seed at the start; ascending by row
        # forbidden: [F], sorted keys `row * num_nodes + node` of nodes that must not be entered
        # remaining: [B], number of nodes that each row may still take; hop: steps from the seeds after this one
        num_nodes, width = self.graph.num_nodes, int(paths[2].max()) + 1 if paths.numel() else 1
        step, neighbour = self.graph.neighbours(paths[1], self.edge_type)
        key = paths[0][step] * num_nodes + neighbour
        is_new = ~_contains(forbidden, key)
        if self.allowed is not None:
            is_new &= _contains(self.allowed, key)
        walks = torch.unique(key[is_new] * width + paths[2][step[is_new]])  # ascending: a node's best seed comes first
        key = walks // width
        pair, count = torch.unique_consecutive(key, return_counts=True)
        row = pair // num_nodes
        nodes = self._score(row, pair % num_nodes, walks[count.cumsum(0) - count] % width, count, hop)

        rows, per_row = torch.unique_consecutive(row, return_counts=True)
        best_of_rows = [  # stable: ties stay in node order
            start + torch.argsort(scores, descending=True, stable=True)[:limit]
            for start, limit, scores in zip(
                (per_row.cumsum(0) - per_row).tolist(),
                remaining[rows].tolist(),
                _split(nodes.score, per_row),
                strict=True,
            )
        ]
        best = torch.cat([row[:0], *best_of_rows])
        onward = torch.stack([key // num_nodes, key % num_nodes, walks % width])
        has_room = torch.bincount(row, minlength=len(remaining)) < remaining
        return _Reached(*(field[best] for field in nodes)), onward[:, has_room[onward[0]]]

    def _score(self, row: Tensor, node: Tensor, best_rank: Tensor, count: Tensor, hop: int) -> _Reached:
        max_rank = self.num_seeds[row]
        max_count = torch.minimum(self.graph.count_neighbours(node, self.edge_type), max_rank)
        proximity = torch.where(max_rank > 1, 1 - (best_rank - 1) / (max_rank - 1).clamp(min=1), 0.0)
        bridging = torch.where(max_count > 1, (count.minimum(max_count) - 1) / (max_count - 1).clamp(min=1), 0.0)
        score = self.similarity_weight * self._similarity(row, node) + self.structure_weight * (proximity + bridging)
        return _Reached(row, node, score, best_rank, count, torch.full_like(node, hop))

    def _similarity(self, row: Tensor, node: Tensor) -> Tensor:
        """Multiply query and node vectors, ``row`` ascending; equal vectors give equal scores, unlike in BLAS."""
        if not self.similarity_weight or self.query_vectors is None:
            return torch.zeros(row.numel(), device=row.device)
        rows, per_row = torch.unique_consecutive(row, return_counts=True)
        products = [
            self.graph.encoded.index_select(0, block).float().mul_(query).sum(1)
            for nodes, query in zip(_split(node, per_row), self.query_vectors[rows], strict=True)
            for block in torch.split(nodes, BLOCK_VECTORS)
        ]
        return torch.cat([self.query_vectors.new_zeros(0), *products])


def _split(entries: Tensor, sizes: Tensor) -> Sequence[Tensor]:
    return torch.split(entries, sizes.tolist()) if sizes.numel() else ()


def _row_blocks(graph: CorpusGraph, paths: Tensor) -> Sequence[Tensor]:
    """Cut paths between rows into blocks of at most about ``BLOCK_PATHS`` steps, or of a single row; at least one."""
    degree = graph.count_neighbours(paths[1])
    before = (degree.cumsum(0) - degree)[torch.searchsorted(paths[0], paths[0])]  # steps of the rows above
    _, sizes = torch.unique_consecutive(before // BLOCK_PATHS, return_counts=True)
    return torch.split(paths, sizes.tolist(), dim=1) if sizes.numel() else (paths,)


def _contains(ascending: Tensor, keys: Tensor) -> Tensor:
    if not ascending.numel():
        return torch.zeros_like(keys, dtype=torch.bool)
    return ascending[torch.searchsorted(ascending, keys).clamp(max=ascending.numel() - 1)] == keys


def _pad(reached: list[_Reached], seeds: Ranking, top_k: int) -> Expansion:
    joined = _Reached(*(torch.cat(fields) for fields in zip(*reached, strict=True)))
    order = torch.argsort(joined.row, stable=True)  # hop after hop within a row
    row, node, score, best_rank, num_seeds, hops = (field[order] for field in joined)
    cell = (row, positions_in_rows(row))

    def laid_out(entries: Tensor, fill: float = 0) -> Tensor:
        return entries.new_full((len(seeds), top_k), fill).index_put(cell, entries)

    best_score = seeds.scores[row, best_rank - 1]
    rest = (laid_out(best_rank), laid_out(best_score), laid_out(num_seeds), laid_out(hops))
    return Expansion(laid_out(node, -1), laid_out(score, -torch.inf), *rest)
