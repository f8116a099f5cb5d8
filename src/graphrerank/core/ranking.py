"""Batches of rankings, the input and output of every operator."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from graphrerank.core.sparse_rows import positions_in_rows
from graphrerank.utils.checks import UserError, check_counts

#: Number of nodes in a block of the top-k search, which skips blocks whose largest score is too low.
BLOCK_NODES = 64
#: Number of vectors multiplied at once on the CPU, few enough for its cache.
BLOCK_VECTORS = 256
#: Number of pairs multiplied at once on other devices, about 200 MB of vectors.
BLOCK_PAIRS = 1 << 17
#: Number of blocks per result above which the top-k search skips blocks.
FEW_BLOCKS = 4


@dataclass(frozen=True)
class Ranking:
    """Ranked nodes of a batch of queries.

    Attributes:
        nodes: Corpus node indices ``[B, K]`` int64, best first, padded with -1.
        scores: Scores ``[B, K]`` float32, non-increasing in each row, padded with -inf.
        features: Features of the nodes ``[B, K, F]`` float32, named by ``feature_names`` of the retriever, padded with
            0.
        base_nodes: Candidates before expansion, ``[B, K]`` int64. None if the ranking was not expanded.

    Raises:
        UserError: If the shapes of ``nodes`` and ``scores`` differ.

    Example:
        >>> ranking = Ranking(torch.tensor([[7, 2]]), torch.tensor([[0.9, 0.1]]))
        >>> ranking.padded(3).nodes
        tensor([[ 7,  2, -1]])
    """

    nodes: Tensor
    scores: Tensor
    features: Tensor | None = None
    base_nodes: Tensor | None = None

    def __post_init__(self) -> None:
        if self.nodes.shape != self.scores.shape or self.nodes.dim() != 2:
            raise UserError(
                f"`nodes` and `scores` must have the same shape [B, K], got {list(self.nodes.shape)} and "
                f"{list(self.scores.shape)}"
            )

    def __len__(self) -> int:
        return self.nodes.shape[0]

    def to(self, device: str | torch.device) -> "Ranking":
        """Return the rankings on another device.

        Args:
            device: Device of the tensors.
        """
        return self._each(lambda tensor: tensor.to(device))

    def select(self, queries: Tensor) -> "Ranking":
        """Return the rankings of the given queries, in the given order.

        Args:
            queries: Indices of the queries, ``[b]`` int64.
        """
        return self._each(lambda tensor: tensor[queries])

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Ranking":
        tensors = (self.nodes, self.scores, self.features, self.base_nodes)
        return Ranking(*(None if tensor is None else change(tensor) for tensor in tensors))  # type: ignore[arg-type]

    def padded(self, width: int) -> "Ranking":
        """Return the rankings with rows padded to a given width.

        Args:
            width: Number of columns of the result.
        """
        extra = (0, width - self.nodes.shape[1])
        nodes, scores = pad(self.nodes, extra, value=-1), pad(self.scores, extra, value=-torch.inf)
        features = None if self.features is None else pad(self.features, (0, 0, *extra))
        return Ranking(nodes, scores, features, self.base_nodes)

    @staticmethod
    def concatenate(rankings: Sequence["Ranking"]) -> "Ranking":
        """Concatenate the rankings of several batches of queries, padded to the widest.

        Args:
            rankings: At least one ranking.

        Returns:
            Ranking of all queries in order.
        """
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
    """Check that lists of nodes are valid and have no repetitions within a row.

    Args:
        num_nodes: Number of nodes of the corpus.
        lists: Lists ``[B, K]`` by argument name, padded with -1.

    Raises:
        UserError: If a list contains an invalid node or a repeated one. The message contains the name of the argument.
    """
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
    """Rank candidates by their first feature, with ties broken by node index.

    Args:
        nodes: Candidates ``[b, M]``, padded with -1.
        features: Features ``[b, M, F]``. The first is the score.
        top_k: Number of candidates to return per query.
        base_nodes: Candidates before expansion, if any.

    Returns:
        Ranking ``[b, top_k]`` with the features of the candidates.
    """
    by_node = torch.argsort(nodes, dim=1)
    base = features[..., 0].masked_fill(nodes < 0, -torch.inf).gather(1, by_node)
    order = by_node.gather(1, torch.argsort(base, dim=1, descending=True, stable=True))[:, :top_k]
    nodes, features = nodes.gather(1, order), features.take_along_dim(order.unsqueeze(-1), dim=1)
    return Ranking(nodes, features[..., 0].masked_fill(nodes < 0, -torch.inf), features, base_nodes)


def is_listed(nodes: Tensor, listed: Tensor) -> Tensor:
    """Return a mask of the nodes that occur in a list of the same row.

    Args:
        nodes: Nodes ``[B, M]``.
        listed: Lists ``[B, K]``.

    Returns:
        Boolean mask ``[B, M]``.
    """
    if not listed.shape[1]:
        return torch.zeros_like(nodes, dtype=torch.bool)
    ascending = torch.sort(listed, dim=1).values
    position = torch.searchsorted(ascending, nodes.contiguous()).clamp(max=listed.shape[1] - 1)
    return ascending.gather(1, position) == nodes


def top_k_by_node_order(scores: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Return the nodes with the highest scores, with ties broken by node index, even at the last rank.

    Args:
        scores: Scores ``[B, N]``, which must not be NaN. Nodes with a score of -inf are not ranked.
        top_k: Number of nodes to return per query.

    Returns:
        Node indices ``[B, top_k]``, padded with -1, and their scores, padded with -inf.

    Raises:
        UserError: If a score is NaN, or ``top_k`` is not positive.

    Example:
        >>> top_k_by_node_order(torch.tensor([[1.0, 3.0, 1.0, 1.0]]), 3)[0]
        tensor([[1, 0, 2]])
    """
    check_counts(top_k=top_k)
    batch, num_nodes = scores.shape
    if num_nodes > FEW_BLOCKS * BLOCK_NODES * top_k:
        return _top_of_blocks(scores, top_k)
    if torch.isnan(scores).any():
        raise UserError("`scores` must not contain NaN")
    nodes = torch.full((batch, top_k), -1, dtype=torch.int64, device=scores.device)
    top_scores = torch.full((batch, top_k), -torch.inf, dtype=scores.dtype, device=scores.device)
    if num_nodes == 0 or batch == 0:
        return nodes, top_scores
    threshold = torch.topk(scores, min(top_k, num_nodes), dim=1).values[:, -1:]
    row, node = torch.nonzero((scores >= threshold) & (scores > -torch.inf), as_tuple=True)  # ascending within a row
    contenders = scores[row, node]
    order = torch.argsort(contenders, descending=True, stable=True)
    order = order[torch.argsort(row[order], stable=True)]
    rank = positions_in_rows(row[order])
    selected = (rank < top_k).nonzero().flatten()
    order, rank = order[selected], rank[selected]
    nodes[row[order], rank], top_scores[row[order], rank] = node[order], contenders[order]
    return nodes, top_scores


def best_of_rows(row: Tensor, score: Tensor, limit: Tensor) -> Tensor:
    """Return the positions of the best scores of each row. Equal scores keep their order.

    Args:
        row: Row of each score, ``[P]``.
        score: Scores ``[P]``, float32.
        limit: Largest number of positions to return for each row, ``[B]``.

    Returns:
        Positions in ``score``, by row and from the highest score down.
    """
    bits = (score + 0.0).view(torch.int32)
    ascending = (row << 32) - (bits ^ ((bits >> 31) & 0x7FFFFFFF))  # sort key: row first, then descending score
    order = torch.argsort(ascending, stable=True)
    row = row[order]
    return order[positions_in_rows(row) < limit[row]]


def _top_of_blocks(scores: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Compute :func:`top_k_by_node_order` over the ``top_k`` blocks with the largest maximum.

    Ties between blocks are broken by block index. Every node in another block ranks behind ``top_k`` nodes, the best
    node of each selected block.
    """
    batch, num_nodes = scores.shape
    whole = num_nodes // BLOCK_NODES
    largest = scores[:, : whole * BLOCK_NODES].reshape(batch, whole, BLOCK_NODES).amax(2)
    if whole * BLOCK_NODES < num_nodes:
        largest = torch.cat([largest, scores[:, whole * BLOCK_NODES :].amax(1, keepdim=True)], dim=1)
    best_blocks, _ = top_k_by_node_order(largest, top_k)
    blocks = torch.sort(best_blocks, dim=1).values  # -1 if the remaining blocks only contain -inf
    node = (BLOCK_NODES * blocks.unsqueeze(2) + torch.arange(BLOCK_NODES, device=scores.device)).flatten(1)
    is_padding = (node < 0) | (node >= num_nodes)
    block_scores = scores.gather(1, node.clamp(0, num_nodes - 1)).masked_fill(is_padding, -torch.inf)
    column, top_scores = top_k_by_node_order(block_scores, top_k)
    return node.gather(1, column.clamp(min=0)).masked_fill(column < 0, -1), top_scores


def pair_products(embedding: Tensor, nodes: Tensor, vectors: Tensor, row: Tensor) -> Tensor:
    """Compute the dot products of pairs of a node vector and a query vector.

    Unlike with BLAS, equal vectors have equal products in any batch.

    Args:
        embedding: Node vectors ``[N, d]``.
        nodes: Node index of each pair, ``[P]``.
        vectors: Query vectors ``[B, d]``.
        row: Query index of each pair, ``[P]``, in ascending order.

    Returns:
        Dot products ``[P]``, float32.
    """
    if not len(nodes):
        return vectors.new_zeros(0)
    if nodes.device.type == "cpu":  # process one query at a time, so that its vector stays in the cache
        rows, sizes = torch.unique_consecutive(row, return_counts=True)
        queries = zip(torch.split(nodes, sizes.tolist()), vectors[rows], strict=True)
        blocks = [(block, vector) for of_query, vector in queries for block in torch.split(of_query, BLOCK_VECTORS)]
    else:
        row_blocks = zip(torch.split(nodes, BLOCK_PAIRS), torch.split(row, BLOCK_PAIRS), strict=True)
        blocks = [(block, vectors[block_rows]) for block, block_rows in row_blocks]
    return torch.cat([embedding.index_select(0, block).float().mul_(vector).sum(1) for block, vector in blocks])
