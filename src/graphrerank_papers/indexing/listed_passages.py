"""Passages listed query by query, as a ranking."""

from collections.abc import Sequence

import torch

from graphrerank.pipelines.state import RetrievalState


def with_listed(state: RetrievalState, listed: Sequence[Sequence[int]], *, budget: int) -> RetrievalState:
    """Replace the retrieved passages by those listed for each query, best first, up to ``budget``.

    The score of a passage is the reciprocal of its rank. A query for which none is listed keeps its ranking.
    """
    device = state.nodes.device
    rows = [list(row)[:budget] for row in listed]
    width = max([state.nodes.shape[1], *map(len, rows)])
    kept = state.ranking.padded(width)
    nodes, scores = kept.nodes.clone(), kept.scores.clone()
    for number, row in enumerate(rows):
        if row:
            nodes[number] = -1
            nodes[number, : len(row)] = torch.tensor(row, device=device)
            scores[number] = -torch.inf
            scores[number, : len(row)] = 1 / torch.arange(1, len(row) + 1, device=device, dtype=scores.dtype)
    return state.with_ranking(nodes, scores)


def round_robin(lists: Sequence[Sequence[int]]) -> list[int]:
    """Merge lists by taking the first of each, then the second and so on; repeated entries are dropped.

    Example:
        >>> round_robin([[1, 2, 3], [4, 1]])
        [1, 4, 2, 3]
    """
    longest = max(map(len, lists), default=0)
    return list(dict.fromkeys(row[rank] for rank in range(longest) for row in lists if rank < len(row)))
