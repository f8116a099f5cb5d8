"""The common part of expanding retrievers: from a base ranking to neighbours of its top, in a list of fixed depth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from graphrerank.checks import check_counts, check_not_negative
from graphrerank.graphs import CorpusGraph, Ranking
from graphrerank.graphs.edge_types import EDGE_TYPES, edge_type_numbers
from graphrerank.graphs.ranking import is_listed
from graphrerank.operators.entity_ppr import EntityPPR, corpus_entities
from graphrerank.operators.stex import Expansion, semantic_topological_expansion


@dataclass(frozen=True)
class Expander:
    """Takes the top ``base_k`` of a ranking, then neighbours of its top ``num_seeds`` up to ``top_k``.

    The neighbours are ordered by STeX's score (:func:`semantic_topological_expansion`). If there are too few, the
    ranking beyond ``base_k`` fills the list. With ``quotas`` they compete within their type of edges, each with a
    share of the places (:func:`share_places`, types in the order of ``EDGE_TYPES``); the features are of all edges.
    ``pagerank_share`` of the places are for passages by PageRank over entities (:class:`EntityPPR`), which need not be
    neighbours by an edge; the others stay for neighbours, and take what it leaves free.
    """

    graph: CorpusGraph
    top_k: int  # candidates per query
    base_k: int  # candidates from the base ranking, fewer than `top_k`
    num_seeds: int  # nodes to expand from, at most `base_k`
    similarity_weight: float  # STeX's weight of the dot product of query and node, not negative; 0 needs no vectors
    structure_weight: float  # STeX's weight of the structural score, not negative
    hops: int  # 1, or 2 to continue with the neighbours' neighbours if one hop leaves room
    pagerank_share: float = 0.0  # of the places, in [0, 1], for passages by PageRank over entities (`EntityPPR`)
    quotas: Mapping[str, float] | None = None  # share of the places by type of edge, together at most 1; None: no types

    def __post_init__(self) -> None:
        check_counts(top_k=self.top_k)
        if not 1 <= self.base_k < self.top_k:
            raise ValueError(
                f"`base_k` must lie in [1, `top_k`) = [1, {self.top_k}), got {self.base_k}; lower it or raise `top_k`"
            )
        if not 1 <= self.num_seeds <= self.base_k:
            raise ValueError(f"`num_seeds` must lie in [1, `base_k`] = [1, {self.base_k}], got {self.num_seeds}")
        check_not_negative(similarity_weight=self.similarity_weight, structure_weight=self.structure_weight)
        if self.hops not in (1, 2):
            raise ValueError(f"`hops` must be 1 or 2, got {self.hops}")
        if not 0 <= self.pagerank_share <= 1:
            raise ValueError(f"`pagerank_share` must lie in [0, 1], got {self.pagerank_share}")
        if self.pagerank_share and self.hops != 1:
            raise ValueError(f"`hops` must be 1 with `pagerank_share`, got {self.hops}")
        if self.quotas is not None:
            edge_type_numbers(self.quotas, argument="quotas")
            if min(self.quotas.values(), default=0) < 0 or sum(self.quotas.values()) > 1 + 1e-6:
                raise ValueError(f"`quotas` must not be negative, nor above 1 together, got {dict(self.quotas)}")
            if self.hops != 1:
                raise ValueError(f"`hops` must be 1 with `quotas` (or set `quotas` to null), got {self.hops}")

    def expand(self, nodes: Tensor, scores: Tensor, query_vectors: Tensor | None) -> tuple[Tensor, Tensor]:
        """Collect candidates: the top of the base ranking, neighbours, and the rest of the base ranking as needed.

        ``nodes`` ``[b, top_k]`` int64 and ``scores`` are the base ranking, padded with -1; ``query_vectors`` may be
        None if ``similarity_weight`` is 0. Returns ``[b, M]`` int64 nodes, unique per row, at most ``top_k`` of them
        not -1; and ``[b, M, 4]`` the ``EXPANSION_FEATURES``, 0 except for neighbours.
        """
        base = nodes[:, : self.base_k]
        seeds = Ranking(nodes[:, : self.num_seeds], scores[:, : self.num_seeds])
        expansion, others = self._neighbours(seeds, base, query_vectors)
        rest = nodes[:, self.base_k :]
        is_new = (rest >= 0) & ~is_listed(rest, torch.cat([expansion.nodes, others], dim=1))
        num_missing = self.top_k - self.base_k - ((expansion.nodes >= 0).sum(1) + (others >= 0).sum(1)).unsqueeze(1)
        fill = rest.where(is_new & (is_new.cumsum(1) <= num_missing), -1)
        candidates = torch.cat([base, expansion.nodes, others, fill], dim=1)
        features = torch.zeros(*candidates.shape, 4, device=candidates.device)
        features[:, self.base_k : self.top_k] = self._walk_features(expansion)
        return candidates, features

    def _neighbours(self, seeds: Ranking, base: Tensor, query_vectors: Tensor | None) -> tuple[Expansion, Tensor]:
        """Choose neighbours; and, ``[b, n]``, those of PageRank's passages that no edge joins with a seed."""
        room = self.top_k - self.base_k

        def walk(edge_type: int | None = None, only: Tensor | None = None) -> Expansion:
            return semantic_topological_expansion(
                self.graph,
                seeds,
                query_vectors,
                top_k=room,
                exclude=base,
                only=only,
                similarity_weight=self.similarity_weight,
                structure_weight=self.structure_weight,
                hops=self.hops,
                edge_type=edge_type,
            )

        num_ranked = round(room * self.pagerank_share)
        if self.quotas is None or (self.graph.weight_by_type is None and self.graph.entities is None):  # of one type
            all_types = walk()
            if not num_ranked:
                return all_types, base[:, :0]
            lists, places = [all_types.nodes], [room - num_ranked]
        else:
            lists = [walk(edge_type).nodes for edge_type in range(len(EDGE_TYPES))]
            places = [round((room - num_ranked) * self.quotas.get(name, 0)) for name in EDGE_TYPES]
        if num_ranked:
            lists.append(self._pagerank.expand(seeds, top_k=room, exclude=base).nodes)
            places.append(num_ranked)
        chosen = share_places(lists, places, room)
        expansion = walk(only=chosen)
        return expansion, chosen.where(~is_listed(chosen, expansion.nodes), -1)

    @cached_property
    def _pagerank(self) -> EntityPPR:
        return EntityPPR(corpus_entities(self.graph), num_seeds=self.num_seeds)

    def _walk_features(self, expansion: Expansion) -> Tensor:
        reciprocal_rank = torch.where(expansion.nodes >= 0, 1 / expansion.best_seed_rank, 0.0)
        share_reached = expansion.seeds_reached / self.num_seeds
        features = (expansion.hops.float(), expansion.best_seed_score, reciprocal_rank, share_reached)
        return torch.stack(features, dim=-1)


def share_places(lists: Sequence[Tensor], places: Sequence[int], num_places: int) -> Tensor:
    """Choose nodes from several lists for each query: each list's places first, then the others from the first list on.

    A node of several lists takes the first place that one of them has for it.

    Args:
        lists: ``[b, n]`` int64 each, best first, unique per row, padded with -1.
        places: Of each list; what it leaves free goes to the others, the first one first.
        num_places: All places together.

    Returns:
        ``[b, M]`` int64, at most ``num_places`` of a row not -1, unique.

    Example:
        >>> share_places([torch.tensor([[1, 2, 3]]), torch.tensor([[2, 4, -1]])], [1, 2], 4)
        tensor([[ 1,  2,  4, -1,  3, -1]])
    """
    own = [nodes[:, :count] for nodes, count in zip(lists, places, strict=True)]
    others = [nodes[:, count:] for nodes, count in zip(lists, places, strict=True)]
    joined = torch.cat([*own, *others], dim=1)
    ascending, order = torch.sort(joined, dim=1, stable=True)
    is_first = torch.ones_like(joined, dtype=torch.bool)
    is_first[:, 1:] = ascending[:, 1:] != ascending[:, :-1]
    is_new = torch.zeros_like(is_first).scatter_(1, order, is_first) & (joined >= 0)
    return joined.where(is_new & (is_new.cumsum(1) <= num_places), -1)


def rank_candidates(nodes: Tensor, features: Tensor, top_k: int, *, base_nodes: Tensor) -> Ranking:
    """Rank candidates ``[b, M]`` int64, with -1 anywhere as padding, by their first feature, ties broken by node index.

    ``features`` are ``[b, M, F]``, padded with 0; ``base_nodes`` ``[b, top_k]``, the candidates without expansion.
    """
    by_node = torch.argsort(nodes, dim=1)
    base = features[..., 0].masked_fill(nodes < 0, -torch.inf).gather(1, by_node)
    order = by_node.gather(1, torch.argsort(base, dim=1, descending=True, stable=True))[:, :top_k]
    nodes, features = nodes.gather(1, order), features.take_along_dim(order.unsqueeze(-1), dim=1)
    return Ranking(nodes, features[..., 0].masked_fill(nodes < 0, -torch.inf), features, base_nodes)
