"""Semantic-Topological eXpansion: a ranking's neighbours, by similarity to the query and position in the graph."""

from collections.abc import Sequence
from dataclasses import dataclass

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

    ``graph`` is undirected; passages that share an entity are neighbours too. It needs an ``embedding``, and the
    queries ``query_vectors [B, d]``, unless ``similarity_weight`` (:math:`\alpha`) is 0. Edge weights are not read.
    ``seeds`` are ``[B, S]`` retrieved nodes, best first, padding last, unique per row. Nodes of ``exclude [B, M]`` are
    not returned, nor are seeds; with ``only [B, M]`` no other node is entered; both are padded with -1.
    ``structure_weight`` is :math:`\beta`, ``hops`` the maximum number of steps from a seed, and ``edge_type`` the only
    type of edges that is followed, and counted in the degree. Returns ``[B, top_k]``, padded where few nodes are near.

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
    paths = torch.stack([row, seeds.nodes[row, column], column + 1])  # [3, P]: row, last node, 1-based rank of the seed
    excluded = seeds.nodes if exclude is None else torch.cat([seeds.nodes, exclude], dim=1)
    offset = torch.arange(len(seeds), device=excluded.device)[:, None] * graph.num_nodes
    forbidden = torch.where(excluded >= 0, offset + excluded, -1).flatten().sort().values  # keys of row and node
    allowed = None if only is None else torch.where(only >= 0, offset + only, -1).flatten().sort().values
    num_seeds, width = valid.sum(1), valid.shape[1] + 1  # ranks are below it
    remaining = torch.full_like(num_seeds, top_k)
    reached: list[tuple[Tensor, ...]] = []
    for hop in range(1, hops + 1):
        taken, onward = torch.zeros_like(remaining), [paths[:, :0]]
        for block in _row_blocks(graph, paths):
            walks = _step(graph, block, edge_type, forbidden, allowed, width)
            pair, count = torch.unique_consecutive(walks[0] * graph.num_nodes + walks[1], return_counts=True)
            row, node = pair // graph.num_nodes, pair % graph.num_nodes
            best_rank, max_rank = walks[2][count.cumsum(0) - count], num_seeds[row]
            max_count = torch.minimum(graph.count_neighbours(node, edge_type), max_rank)
            proximity = torch.where(max_rank > 1, 1 - (best_rank - 1) / (max_rank - 1).clamp(min=1), 0.0)
            bridging = torch.where(max_count > 1, (count.minimum(max_count) - 1) / (max_count - 1).clamp(min=1), 0.0)
            score = structure_weight * (proximity + bridging)
            if similarity_weight and query_vectors is not None:
                score = similarity_weight * pair_products(graph.encoded, node, query_vectors, row) + score
            best = best_of_rows(row, score, remaining)
            reached.append(
                tuple(part[best] for part in (row, node, score, best_rank, count, torch.full_like(row, hop)))
            )
            if hop < hops:
                taken += torch.bincount(row[best], minlength=len(taken))
                has_room = torch.bincount(row, minlength=len(remaining)) < remaining
                onward.append(walks[:, has_room[walks[0]]])
        if hop == hops:
            break
        remaining, paths = remaining - taken, torch.cat(onward, dim=1)
        forbidden = torch.cat([forbidden, paths[0] * graph.num_nodes + paths[1]]).sort().values
    row, *parts = (torch.cat(part) for part in zip(*reached, strict=True))
    order = torch.argsort(row, stable=True)  # hop after hop within a row
    node, score, best_rank, count, hop_of = (part[order] for part in parts)
    cell = (row[order], positions_in_rows(row[order]))
    best_score = seeds.scores[cell[0], best_rank - 1]
    columns = ((node, -1), (score, -torch.inf), (best_rank, 0), (best_score, 0), (count, 0), (hop_of, 0))
    shape = (len(seeds), top_k)
    return Expansion(*(part.new_full(shape, fill).index_put(cell, part) for part, fill in columns))


def _step(
    graph: CorpusGraph, paths: Tensor, edge_type: int | None, forbidden: Tensor, allowed: Tensor | None, width: int
) -> Tensor:
    """Take one step from the end of each path: ``[3, W]`` paths, each once, ascending by row, node and rank."""
    step, neighbour = graph.neighbours(paths[1], edge_type)
    key = paths[0][step] * graph.num_nodes + neighbour
    is_new = ~_contains(forbidden, key)
    if allowed is not None:
        is_new &= _contains(allowed, key)
    new = is_new.nonzero().flatten()
    walks = torch.unique(key[new] * width + paths[2][step[new]])
    key = walks // width
    return torch.stack([key // graph.num_nodes, key % graph.num_nodes, walks % width])


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
