"""Contextual edges: chunks that stand next to each other in one document."""

from collections.abc import Sequence

import torch
from torch import Tensor


def adjacency_edges(doc_ids: Sequence[str], chunk_ids: Sequence[int], *, reach: int = 1) -> Tensor:
    """Join chunks of one document whose numbers differ by at most ``reach``.

    Source: GraphER, section 2.1 (contextual proximity). A missing number is a gap, and nothing is joined across it
    (but with a larger ``reach``).

    Args:
        doc_ids: ``N`` documents, one per chunk.
        chunk_ids: ``N`` numbers of the chunks within their documents.
        reach: Largest difference, at least 1.

    Returns:
        ``[M, 2]`` int64, each pair once as (earlier, later) chunk, ascending.

    Raises:
        ValueError: If lengths differ, ``reach`` is below 1, or a document has a chunk number twice.

    Example:
        >>> adjacency_edges(["a", "a", "b", "a"], [1, 0, 0, 3])
        tensor([[1, 0]])
    """
    if len(doc_ids) != len(chunk_ids):
        raise ValueError(
            f"`doc_ids` and `chunk_ids` must have one entry per chunk, got {len(doc_ids)} and {len(chunk_ids)}"
        )
    if reach < 1:
        raise ValueError(f"`reach` must be a positive integer, got {reach}")
    node_of: dict[tuple[str, int], int] = {}
    for node, place in enumerate(zip(doc_ids, chunk_ids, strict=True)):
        if node_of.setdefault(place, node) != node:
            raise ValueError(f"`chunk_ids` must be unique within a document, got {place[1]} twice in {place[0]!r}")
    pairs = [
        (node, node_of[doc, chunk + step])
        for (doc, chunk), node in node_of.items()
        for step in range(1, reach + 1)
        if (doc, chunk + step) in node_of
    ]
    return torch.tensor(sorted(pairs), dtype=torch.int64).reshape(-1, 2)
