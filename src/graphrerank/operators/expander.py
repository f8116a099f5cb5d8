"""What every expanding retriever does once it has a base ranking: neighbours of its top, and a list of equal depth."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.graphs import CorpusGraph, Ranking
from graphrerank.operators.stex import Expansion, semantic_topological_expansion


@dataclass(frozen=True)
class Expander:
    """Takes the top ``base_k`` of a ranking, then neighbours of its top ``num_seeds`` up to ``top_k``.

    The neighbours are ordered by STeX's score (:func:`semantic_topological_expansion`). Where there are too few, the
    ranking beyond ``base_k`` fills the list.

    Attributes:
        graph: The corpus.
        top_k: Candidates per query.
        base_k: Candidates from the base ranking, fewer than ``top_k``.
        num_seeds: Nodes to expand from, at most ``base_k``.
        similarity_weight: STeX's weight of the dot product of query and node, not negative; 0 needs no vectors.
        structure_weight: STeX's weight of the structural score, not negative.
        hops: 1, or 2 to go on to the neighbours' neighbours where one hop leaves room.

    Raises:
        ValueError: If a number is out of range.
    """

    graph: CorpusGraph
    top_k: int
    base_k: int
    num_seeds: int
    similarity_weight: float
    structure_weight: float
    hops: int

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise ValueError(f"`top_k` must be a positive integer, got {self.top_k}")
        if not 1 <= self.base_k < self.top_k:
            raise ValueError(
                f"`base_k` must lie in [1, `top_k`) = [1, {self.top_k}), got {self.base_k}; lower it or raise `top_k`"
            )
        if not 1 <= self.num_seeds <= self.base_k:
            raise ValueError(f"`num_seeds` must lie in [1, `base_k`] = [1, {self.base_k}], got {self.num_seeds}")
        for name in ("similarity_weight", "structure_weight"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"`{name}` must not be negative, got {getattr(self, name)}")
        if self.hops not in (1, 2):
            raise ValueError(f"`hops` must be 1 or 2, got {self.hops}")

    def expand(self, nodes: Tensor, scores: Tensor, query_vectors: Tensor | None) -> tuple[Tensor, Tensor]:
        """Collect candidates: of the base ranking, then neighbours, then what fills the list.

        Args:
            nodes: ``[b, top_k]`` int64, the base ranking, padded with -1.
            scores: ``[b, top_k]``.
            query_vectors: ``[b, d]``; None where ``similarity_weight`` is 0.

        Returns:
            ``[b, 2 * top_k - base_k]`` int64 nodes, each once per row, at most ``top_k`` of them not -1; and ``[b, ..,
            4]`` what the walk knows of each, as ``EXPANSION_FEATURES``: 0 but for the neighbours.
        """
        base = nodes[:, : self.base_k]
        found = semantic_topological_expansion(
            self.graph,
            Ranking(nodes[:, : self.num_seeds], scores[:, : self.num_seeds]),
            query_vectors,
            top_k=self.top_k - self.base_k,
            exclude=base,
            similarity_weight=self.similarity_weight,
            structure_weight=self.structure_weight,
            hops=self.hops,
        )
        fill = _fill(nodes[:, self.base_k :], found.nodes)
        candidates = torch.cat([base, found.nodes, fill], dim=1)
        walked = torch.zeros(*candidates.shape, 4, device=candidates.device)
        walked[:, self.base_k : self.top_k] = self._walk_features(found)
        return candidates, walked

    def _walk_features(self, found: Expansion) -> Tensor:
        reciprocal_rank = torch.where(found.nodes >= 0, 1 / found.best_seed_rank, 0.0)
        reached = found.seeds_reached / self.num_seeds
        return torch.stack([found.hops.float(), found.best_seed_score, reciprocal_rank, reached], dim=-1)


def rank_candidates(nodes: Tensor, features: Tensor, top_k: int, *, base_nodes: Tensor) -> Ranking:
    """Rank candidates by their first feature, ties by node number.

    Args:
        nodes: ``[b, M]`` int64, padded anywhere with -1, at most ``top_k`` of a row not padding.
        features: ``[b, M, F]``, padded with 0.
        top_k: Columns of the result.
        base_nodes: ``[b, top_k]``, the candidates without expansion.
    """
    by_node = torch.argsort(nodes, dim=1)
    base = features[..., 0].masked_fill(nodes < 0, -torch.inf).gather(1, by_node)
    order = by_node.gather(1, torch.argsort(base, dim=1, descending=True, stable=True))[:, :top_k]
    nodes, features = nodes.gather(1, order), features.take_along_dim(order.unsqueeze(-1), dim=1)
    return Ranking(nodes, features[..., 0].masked_fill(nodes < 0, -torch.inf), features, base_nodes)


def _fill(nodes: Tensor, found: Tensor) -> Tensor:
    """Keep, per row, the first of ``nodes`` that are not ``found``, as many as ``found`` has padding."""
    ascending = torch.sort(found, dim=1).values
    place = torch.searchsorted(ascending, nodes.contiguous()).clamp(max=found.shape[1] - 1)
    fresh = (nodes >= 0) & (ascending.gather(1, place) != nodes)
    return nodes.where(fresh & (fresh.cumsum(1) <= (found < 0).sum(1, keepdim=True)), -1)
