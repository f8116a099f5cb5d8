"""A batch of rankings, the value that every operator takes and gives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from graphrerank.core.sparse_rows import positions_in_rows
from graphrerank.utils.checks import UserError, check_counts

BLOCK_NODES = 64  # of a block whose largest score decides whether its nodes are looked at
BLOCK_VECTORS = 256  # multiplied at once on the CPU, few enough for its cache
BLOCK_PAIRS = 1 << 17  # multiplied at once on another device: 200 MB of vectors
FEW_BLOCKS = 4  # for each node that is kept: with fewer, all nodes are looked at at once


@dataclass(frozen=True)
class Ranking:
    """The ranked nodes of a batch of queries."""

    nodes: Tensor  # `[B, K]` int64 corpus node numbers, best first; padded with -1
    scores: Tensor  # `[B, K]` float32, non-increasing along a row; padded with -inf
    features: Tensor | None = None  # `[B, K, F]` float32 as in the retriever's `feature_names`, padded with 0
    base_nodes: Tensor | None = None  # `[B, K]` int64, the candidates without expansion; None if nothing was expanded

    def __post_init__(self) -> None:
        if self.nodes.shape != self.scores.shape or self.nodes.dim() != 2:
            raise UserError(
                f"`nodes` and `scores` must both be [B, K], got {list(self.nodes.shape)} and {list(self.scores.shape)}"
            )

    def __len__(self) -> int:
        return self.nodes.shape[0]

    def to(self, device: str | torch.device) -> "Ranking":
        """Return the same rankings on a device."""
        return self._each(lambda part: part.to(device))

    def select(self, queries: Tensor) -> "Ranking":
        """Take the rows of some queries (``[b]`` int64), in that order."""
        return self._each(lambda part: part[queries])

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Ranking":
        parts = (self.nodes, self.scores, self.features, self.base_nodes)
        return Ranking(*(None if part is None else change(part) for part in parts))  # type: ignore[arg-type]

    def padded(self, width: int) -> "Ranking":
        """Pad the rows behind to a width."""
        extra = (0, width - self.nodes.shape[1])
        nodes, scores = pad(self.nodes, extra, value=-1), pad(self.scores, extra, value=-torch.inf)
        features = None if self.features is None else pad(self.features, (0, 0, *extra))
        return Ranking(nodes, scores, features, self.base_nodes)

    @staticmethod
    def concatenate(rankings: Sequence["Ranking"]) -> "Ranking":
        """Put the rankings of several batches of queries below each other, padded to the widest."""
        width = max(ranking.nodes.shape[1] for ranking in rankings)
        padded = [ranking.padded(width) for ranking in rankings]
        features = [ranking.features for ranking in padded if ranking.features is not None]
        base_nodes = [ranking.base_nodes for ranking in padded if ranking.base_nodes is not None]
        return Ranking(
            torch.cat([ranking.nodes for ranking in padded]),
            torch.cat([ranking.scores for ranking in padded]),
            torch.cat(features) if features else None,
            torch.cat(base_nodes) if base_nodes else None,
        )


def check_nodes(num_nodes: int, **lists: Tensor) -> None:
    """Raise a ValueError naming a list ``[B, K]`` with a node out of range or twice in a row; -1 is padding."""
    for name, nodes in lists.items():
        ascending = torch.sort(nodes, dim=1).values
        is_bad = (ascending < -1) | (ascending >= num_nodes)
        is_bad[:, 1:] |= (ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)
        if is_bad.any():
            row, column = is_bad.nonzero()[0].tolist()
            node = int(ascending[row, column])
            needed = "be unique per query" if 0 <= node < num_nodes else f"lie in 0 to {num_nodes - 1} or be -1"
            raise UserError(f"`{name}` must {needed}, got {node} in row {row}")


def rank_candidates(nodes: Tensor, features: Tensor, top_k: int, base_nodes: Tensor | None = None) -> Ranking:
    """Rank nodes ``[b, M]``, padded with -1, by their first feature of ``[b, M, F]``, ties by node number."""
    by_node = torch.argsort(nodes, dim=1)
    base = features[..., 0].masked_fill(nodes < 0, -torch.inf).gather(1, by_node)
    order = by_node.gather(1, torch.argsort(base, dim=1, descending=True, stable=True))[:, :top_k]
    nodes, features = nodes.gather(1, order), features.take_along_dim(order.unsqueeze(-1), dim=1)
    return Ranking(nodes, features[..., 0].masked_fill(nodes < 0, -torch.inf), features, base_nodes)


def is_listed(nodes: Tensor, listed: Tensor) -> Tensor:
    """Return which of the nodes ``[B, M]`` are among the listed ones ``[B, K]`` of their row: ``[B, M]`` bool."""
    if not listed.shape[1]:
        return torch.zeros_like(nodes, dtype=torch.bool)
    ascending = torch.sort(listed, dim=1).values
    position = torch.searchsorted(ascending, nodes.contiguous()).clamp(max=listed.shape[1] - 1)
    return ascending.gather(1, position) == nodes


def top_k_by_node_order(scores: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Rank nodes by score, ties by node number, also where a tie straddles the cut.

    In ``scores [B, N]``, -inf marks a node that must not be ranked, and none may be NaN. Returns ``nodes [B, top_k]``
    padded with -1 and ``scores [B, top_k]`` padded with -inf.

    Example:
        >>> top_k_by_node_order(torch.tensor([[1.0, 3.0, 1.0, 1.0]]), 3)[0]
        tensor([[1, 0, 2]])
    """
    check_counts(top_k=top_k)
    batch, num_nodes = scores.shape
    if num_nodes > FEW_BLOCKS * BLOCK_NODES * top_k:
        return _top_of_blocks(scores, top_k)
    if torch.isnan(scores).any():
        raise UserError("`scores` must not hold NaN")
    nodes = torch.full((batch, top_k), -1, dtype=torch.int64, device=scores.device)
    kept_scores = torch.full((batch, top_k), -torch.inf, dtype=scores.dtype, device=scores.device)
    if num_nodes == 0 or batch == 0:
        return nodes, kept_scores
    threshold = torch.topk(scores, min(top_k, num_nodes), dim=1).values[:, -1:]
    row, node = torch.nonzero((scores >= threshold) & (scores > -torch.inf), as_tuple=True)  # row-major: node order
    found = scores[row, node]
    order = torch.argsort(found, descending=True, stable=True)
    order = order[torch.argsort(row[order], stable=True)]
    rank = positions_in_rows(row[order])
    kept = (rank < top_k).nonzero().flatten()
    order, rank = order[kept], rank[kept]
    nodes[row[order], rank], kept_scores[row[order], rank] = node[order], found[order]
    return nodes, kept_scores


def best_of_rows(row: Tensor, score: Tensor, limit: Tensor) -> Tensor:
    """Return the places of the best float32 scores ``[P]`` of each row, at most its ``limit [B]``; ties keep order."""
    bits = (score + 0.0).view(torch.int32)
    ascending = (row << 32) - (bits ^ ((bits >> 31) & 0x7FFFFFFF))  # by row, then from the largest score down
    order = torch.argsort(ascending, stable=True)
    row = row[order]
    return order[positions_in_rows(row) < limit[row]]


def _top_of_blocks(scores: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Rank as :func:`top_k_by_node_order`, in the ``top_k`` blocks of the largest scores, ties by block number.

    A node in another block has ``top_k`` nodes before it, one in each of these.
    """
    batch, num_nodes = scores.shape
    whole = num_nodes // BLOCK_NODES
    largest = scores[:, : whole * BLOCK_NODES].reshape(batch, whole, BLOCK_NODES).amax(2)
    if whole * BLOCK_NODES < num_nodes:
        largest = torch.cat([largest, scores[:, whole * BLOCK_NODES :].amax(1, keepdim=True)], dim=1)
    blocks = torch.sort(top_k_by_node_order(largest, top_k)[0], dim=1).values  # -1 where all others are -inf
    node = (BLOCK_NODES * blocks.unsqueeze(2) + torch.arange(BLOCK_NODES, device=scores.device)).flatten(1)
    is_none = (node < 0) | (node >= num_nodes)
    held = scores.gather(1, node.clamp(0, num_nodes - 1)).masked_fill(is_none, -torch.inf)
    place, kept_scores = top_k_by_node_order(held, top_k)
    return node.gather(1, place.clamp(min=0)).masked_fill(place < 0, -1), kept_scores


def pair_products(embedding: Tensor, nodes: Tensor, vectors: Tensor, row: Tensor) -> Tensor:
    """Multiply ``embedding[nodes]`` with ``vectors[row]`` pair by pair, for ``P`` pairs, ``row`` ascending: ``[P]``.

    Unlike in BLAS, equal vectors give equal scores, in any batch.
    """
    if not len(nodes):
        return vectors.new_zeros(0)
    if nodes.device.type == "cpu":  # a query at a time, whose vector stays in the cache
        rows, sizes = torch.unique_consecutive(row, return_counts=True)
        split = zip(torch.split(nodes, sizes.tolist()), vectors[rows], strict=True)
        pairs = [(block, vector) for part, vector in split for block in torch.split(part, BLOCK_VECTORS)]
    else:
        blocks = zip(torch.split(nodes, BLOCK_PAIRS), torch.split(row, BLOCK_PAIRS), strict=True)
        pairs = [(part, vectors[of]) for part, of in blocks]
    return torch.cat([embedding.index_select(0, part).float().mul_(vector).sum(1) for part, vector in pairs])
