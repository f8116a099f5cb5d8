"""Routing of questions to topics."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphrerank.checks import check_counts
from graphrerank_papers.retag.topics import Topics

TopicClassifier = Callable[[Sequence[str]], Sequence[int | None]]


def route_to_topics(
    topics: Topics,
    vectors: Tensor,
    is_open: Tensor,
    *,
    threshold: float | None = None,
    max_topics: int | None = None,
) -> Tensor:
    """Choose the topics whose similarity to a question reaches a threshold; other questions go to the general graph.

    Source: ReTAG, section 3.2.2, where a language model routes a question to at most one topic. *Where we differ:* a
    question goes to every topic that is near enough, as the paper suggests under limitations.

    Args:
        topics: ``T`` topics.
        vectors: ``[B, d]``, of the questions.
        is_open: ``[T]`` bool, topics that have a summary; no question goes to the others.
        threshold: Minimum cosine; None for the topics' own threshold, set from data.
        max_topics: Maximum number of topics per question, the nearest ones, ties broken by index; None for all.

    Returns:
        ``[B, 1 + T]`` bool: the general graph, or some topics.

    Example:
        >>> east, centre = torch.tensor([[1.0, 0.0]]), torch.zeros(2)
        >>> topics = Topics(["east"], [["east"]], east, centre, 0.5, 0.5)
        >>> route_to_topics(topics, torch.tensor([[3.0, 4.0], [-1.0, 0.0]]), torch.tensor([True]))
        tensor([[False,  True],
                [ True, False]])
    """
    check_counts(max_topics=max_topics)
    similarity = topics.similarity(vectors).masked_fill(~is_open, -torch.inf)
    is_near = similarity >= (topics.threshold if threshold is None else threshold)
    if max_topics is not None:
        nearest = torch.argsort(similarity, dim=1, descending=True, stable=True)[:, :max_topics]
        is_near = is_near & torch.zeros_like(is_near).scatter(1, nearest, True)
    return torch.cat([~is_near.any(1, keepdim=True), is_near], dim=1)


def topics_to_graphs(chosen: Sequence[int | None], is_open: Tensor) -> Tensor:
    """Send each of ``B`` questions to its topic, or to the general graph without one, or with one that is not open.

    Source: ReTAG, section 3.2.2.

    Returns:
        ``[B, 1 + T]`` bool, one graph each.

    Example:
        >>> topics_to_graphs([0, None, 1], torch.tensor([True, False]))
        tensor([[False,  True, False],
                [ True, False, False],
                [ True, False, False]])
    """
    places = torch.tensor([-1 if topic is None else topic for topic in chosen], device=is_open.device)
    inside = (places.unsqueeze(1) == torch.arange(len(is_open), device=is_open.device)) & is_open
    return torch.cat([~inside.any(1, keepdim=True), inside], dim=1)
