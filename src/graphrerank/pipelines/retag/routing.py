"""Which topics a question is asked in."""

import torch
from torch import Tensor

from graphrerank.indexes.retag import Topics


def route_to_topics(
    topics: Topics,
    vectors: Tensor,
    is_open: Tensor,
    *,
    threshold: float | None = None,
    max_topics: int | None = None,
) -> Tensor:
    """Choose the topics whose likeness to a question reaches a threshold; the general graph is for the others.

    Source: ReTAG, section 3.2.2, where a language model puts a question to one topic or to none. *Where we differ:* a
    question goes to every topic that is close enough, as the paper asks for (its limitation: questions across topics).

    Args:
        topics: ``T`` topics.
        vectors: ``[B, d]``, of the questions.
        is_open: ``[T]`` bool, topics that have a summary; no question goes to the others.
        threshold: Least cosine; the topics' own, set from data, when None.
        max_topics: Keep at most so many, the closest ones, ties by number; all when None.

    Returns:
        ``[B, 1 + T]`` bool: the general graph, or some topics.

    Raises:
        ValueError: If ``max_topics`` is below 1.

    Example:
        >>> east, centre = torch.tensor([[1.0, 0.0]]), torch.zeros(2)
        >>> topics = Topics(["east"], [["east"]], east, centre, 0.5, 0.5)
        >>> route_to_topics(topics, torch.tensor([[3.0, 4.0], [-1.0, 0.0]]), torch.tensor([True]))
        tensor([[False,  True],
                [ True, False]])
    """
    if max_topics is not None and max_topics < 1:
        raise ValueError(f"`max_topics` must be a positive integer, got {max_topics}")
    likeness = topics.similarity(vectors).masked_fill(~is_open, -torch.inf)
    close = likeness >= (topics.threshold if threshold is None else threshold)
    if max_topics is not None:
        order = torch.argsort(likeness, dim=1, descending=True, stable=True)[:, :max_topics]
        close = close & torch.zeros_like(close).scatter(1, order, True)
    return torch.cat([~close.any(1, keepdim=True), close], dim=1)
