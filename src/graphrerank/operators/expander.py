"""The common part of expanding retrievers: from a base ranking to neighbours of its top, in a list of fixed depth."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.checks import check_counts, check_not_negative
from graphrerank.graphs import CorpusGraph, Ranking
from graphrerank.graphs.ranking import is_listed
from graphrerank.operators.stex import Expansion, semantic_topological_expansion


@dataclass(frozen=True)
class Expander:
    """Takes the top ``base_k`` of a ranking, then neighbours of its top ``num_seeds`` up to ``top_k``.

    The neighbours are ordered by STeX's score (:func:`semantic_topological_expansion`). If there are too few, the
    ranking beyond ``base_k`` fills the list.
    """

    graph: CorpusGraph
    top_k: int  # candidates per query
    base_k: int  # candidates from the base ranking, fewer than `top_k`
    num_seeds: int  # nodes to expand from, at most `base_k`
    similarity_weight: float  # STeX's weight of the dot product of query and node, not negative; 0 needs no vectors
    structure_weight: float  # STeX's weight of the structural score, not negative
    hops: int  # 1, or 2 to continue with the neighbours' neighbours if one hop leaves room

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

    def expand(self, nodes: Tensor, scores: Tensor, query_vectors: Tensor | None) -> tuple[Tensor, Tensor]:
        """Collect candidates: the top of the base ranking, neighbours, and the rest of the base ranking as needed.

        ``nodes`` ``[b, top_k]`` int64 and ``scores`` are the base ranking, padded with -1; ``query_vectors`` may be
        None if ``similarity_weight`` is 0. Returns ``[b, 2 * top_k - base_k]`` int64 nodes, unique per row, at most
        ``top_k`` of them not -1; and ``[b, .., 4]`` the ``EXPANSION_FEATURES``, 0 except for neighbours.
        """
        base = nodes[:, : self.base_k]
        expansion = semantic_topological_expansion(
            self.graph,
            Ranking(nodes[:, : self.num_seeds], scores[:, : self.num_seeds]),
            query_vectors,
            top_k=self.top_k - self.base_k,
            exclude=base,
            similarity_weight=self.similarity_weight,
            structure_weight=self.structure_weight,
            hops=self.hops,
        )
        rest = nodes[:, self.base_k :]
        is_new = (rest >= 0) & ~is_listed(rest, expansion.nodes)
        num_missing = (expansion.nodes < 0).sum(1, keepdim=True)
        fill = rest.where(is_new & (is_new.cumsum(1) <= num_missing), -1)
        candidates = torch.cat([base, expansion.nodes, fill], dim=1)
        features = torch.zeros(*candidates.shape, 4, device=candidates.device)
        features[:, self.base_k : self.top_k] = self._walk_features(expansion)
        return candidates, features

    def _walk_features(self, expansion: Expansion) -> Tensor:
        reciprocal_rank = torch.where(expansion.nodes >= 0, 1 / expansion.best_seed_rank, 0.0)
        share_reached = expansion.seeds_reached / self.num_seeds
        features = (expansion.hops.float(), expansion.best_seed_score, reciprocal_rank, share_reached)
        return torch.stack(features, dim=-1)


def rank_candidates(nodes: Tensor, features: Tensor, top_k: int, *, base_nodes: Tensor) -> Ranking:
    """Rank candidates ``[b, M]`` int64, with -1 anywhere as padding, by their first feature, ties broken by node index.

    ``features`` are ``[b, M, F]``, padded with 0; ``base_nodes`` ``[b, top_k]``, the candidates without expansion.
    """
    by_node = torch.argsort(nodes, dim=1)
    base = features[..., 0].masked_fill(nodes < 0, -torch.inf).gather(1, by_node)
    order = by_node.gather(1, torch.argsort(base, dim=1, descending=True, stable=True))[:, :top_k]
    nodes, features = nodes.gather(1, order), features.take_along_dim(order.unsqueeze(-1), dim=1)
    return Ranking(nodes, features[..., 0].masked_fill(nodes < 0, -torch.inf), features, base_nodes)
