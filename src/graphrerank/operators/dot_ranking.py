"""The ranking of proposed nodes by their dot products with a query: what every search by vectors ends with."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from graphrerank.graphs import Ranking, top_k_by_node_order

BLOCK_VECTORS = 1 << 14  # multiplied at once if the whole corpus is scored
MARGIN = 16  # further nodes of a search, to detect ties with the last of ``top_k``, and for vectors of 8 bits


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
        """Nodes that are ranked."""
        return len(self.embedding) - (0 if self.removed is None else int(self.removed.sum()))

    def rank(self, vectors: Tensor, proposed: Tensor, *, is_exact: bool) -> Ranking:
        """Rank what was proposed.

        Args:
            vectors: ``[b, d]`` query vectors.
            proposed: ``[b, M]`` int64 nodes, each once in a row, in any order; padded with -1.
            is_exact: Whether they are the nearest up to rounding, ``top_k`` and :data:`MARGIN`, or all. A query whose
                last place is contested within rounding is then scored against the whole corpus.

        Returns:
            ``[b, top_k]`` nodes and dot products, which are its two features as well.
        """
        device, num_nodes = self.embedding.device, len(self.embedding)
        if not len(vectors) or not self.num_ranked:
            empty = self.embedding.new_full((len(vectors), self.top_k), -torch.inf, dtype=torch.float32)
            return _ranking(torch.full(empty.shape, -1, device=device), empty)
        vectors = vectors.float().to(device)
        proposed = torch.sort(proposed.to(device), dim=1).values
        scores = torch.stack(
            [self._score(row.clamp(min=0), vector) for row, vector in zip(proposed, vectors, strict=True)]
        )
        columns, top_scores = top_k_by_node_order(scores.masked_fill(proposed < 0, -torch.inf), self.top_k)
        nodes = proposed.gather(1, columns.clamp(min=0)).masked_fill(columns < 0, -1)
        if is_exact and proposed.shape[1] < self.num_ranked:
            for row in self._contested(vectors, scores, top_scores[:, -1]).nonzero().flatten().tolist():
                blocks = torch.split(torch.arange(num_nodes, device=device), BLOCK_VECTORS)
                all_scores = torch.cat([self._score(block, vectors[row]) for block in blocks])
                all_scores = self.without_removed(all_scores, 0).unsqueeze(0)
                nodes[row], top_scores[row] = (part[0] for part in top_k_by_node_order(all_scores, self.top_k))
        return _ranking(nodes, top_scores)

    def without_removed(self, scores: Tensor, start: int) -> Tensor:
        """Fill the scores ``[..., n]`` of nodes from ``start`` on with -inf where a node was removed."""
        if self.removed is None:
            return scores
        removed = self.removed[start : start + scores.shape[-1]].to(scores.device)
        return scores.masked_fill(removed, -torch.inf)

    def _score(self, nodes: Tensor, vector: Tensor) -> Tensor:
        """Return dot products node by node: unlike a matrix product, equal vectors give equal scores."""
        return (self.embedding[nodes] * vector).sum(1)

    def _contested(self, vectors: Tensor, scores: Tensor, last: Tensor) -> Tensor:
        """Return ``[b]``, whether a node that was not proposed might belong among the ``top_k``.

        It cannot if the ``last`` kept score exceeds the lowest of the proposed ``scores [b, M]`` by more than rounding:
        a product of ``d`` terms is off by at most ``d`` roundings of the product of norms, there and here.
        """
        rounding = torch.finfo(torch.float32).eps * self.embedding.shape[1]
        return last - scores.amin(1) <= 4 * rounding * self._largest_norm * vectors.norm(dim=1)

    @cached_property
    def _largest_norm(self) -> float:
        return max(float(part.float().norm(dim=1).max()) for part in torch.split(self.embedding, BLOCK_VECTORS))


def _ranking(nodes: Tensor, scores: Tensor) -> Ranking:
    known = scores.masked_fill(nodes < 0, 0.0)
    return Ranking(nodes, scores, torch.stack([known, known], dim=-1))
