"""Contextual edges: adjacent chunks of one document."""

from collections.abc import Sequence

import torch
from torch import Tensor

from graphrerank.checks import check_counts


def adjacency_edges(doc_ids: Sequence[str], chunk_ids: Sequence[int], *, reach: int = 1) -> Tensor:
    """Join chunks of one document whose numbers differ by at most ``reach``.

    Source: GraphER, section 2.1 (contextual proximity). Chunks on the two sides of a missing number are joined only if
    ``reach`` spans the gap.

    Returns:
        ``[M, 2]`` int64, each pair once as (earlier, later) chunk, ascending.

    Raises:
        ValueError: If lengths differ, ``reach`` is below 1, or a number is repeated within a document.

    Example:
        >>> adjacency_edges(["a", "a", "b", "a"], [1, 0, 0, 3])
        tensor([[1, 0]])
    """
    if len(doc_ids) != len(chunk_ids):
        raise ValueError(
            f"`doc_ids` and `chunk_ids` must have one entry per chunk, got {len(doc_ids)} and {len(chunk_ids)}"
        )
    check_counts(reach=reach)
    node_of: dict[tuple[str, int], int] = {}
    for node, chunk_key in enumerate(zip(doc_ids, chunk_ids, strict=True)):
        if node_of.setdefault(chunk_key, node) != node:
            doc, chunk = chunk_key
            raise ValueError(f"`chunk_ids` must be unique within a document, got {chunk} twice in {doc!r}")
    pairs = [
        (node, node_of[doc, chunk + step])
        for (doc, chunk), node in node_of.items()
        for step in range(1, reach + 1)
        if (doc, chunk + step) in node_of
    ]
    return torch.tensor(sorted(pairs), dtype=torch.int64).reshape(-1, 2)
