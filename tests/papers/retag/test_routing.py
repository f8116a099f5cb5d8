from typing import Any

import pytest
import torch

from graphrerank_papers.retag.index import ReTAGIndex
from graphrerank_papers.retag.routing import route_to_topics

OPEN = torch.tensor([True, True])


def test_no_topic_one_or_several(retag_index: ReTAGIndex, word_encoder: Any) -> None:
    vectors = word_encoder.encode(["nothing known", "rivers and cities", "cities and rivers kings who loved"])
    routes = route_to_topics(retag_index.topics, vectors, OPEN)
    assert routes.int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
    likeness = retag_index.topics.similarity(vectors)
    assert torch.equal(routes[:, 1:], likeness >= 0.3)


def test_the_closest_topics_alone(retag_index: ReTAGIndex, word_encoder: Any) -> None:
    vectors = word_encoder.encode(["cities and rivers kings who loved", "nothing"])
    likeness = retag_index.topics.similarity(vectors)
    routes = route_to_topics(retag_index.topics, vectors, OPEN, max_topics=1)
    assert routes.sum(1).tolist() == [1, 1]
    assert routes[0, 1:].tolist() == (likeness[0] == likeness[0].max()).tolist()
    tied = route_to_topics(retag_index.topics, torch.zeros(1, 256), OPEN, max_topics=1, threshold=0.0)
    assert tied.int().tolist() == [[0, 1, 0]]


def test_a_threshold_of_ones_own(retag_index: ReTAGIndex, word_encoder: Any) -> None:
    vectors = word_encoder.encode(["cities and rivers kings who loved"])
    assert route_to_topics(retag_index.topics, vectors, OPEN, threshold=1.1).int().tolist() == [[1, 0, 0]]
    assert route_to_topics(retag_index.topics, vectors, OPEN, threshold=-1.0).int().tolist() == [[0, 1, 1]]


def test_a_topic_without_summaries_is_closed(retag_index: ReTAGIndex, word_encoder: Any) -> None:
    vectors = word_encoder.encode(["rivers and cities"])
    assert route_to_topics(retag_index.topics, vectors, ~OPEN).int().tolist() == [[1, 0, 0]]


def test_no_question(retag_index: ReTAGIndex) -> None:
    assert route_to_topics(retag_index.topics, torch.zeros(0, 256), OPEN).shape == (0, 3)


def test_max_topics_must_be_positive(retag_index: ReTAGIndex) -> None:
    with pytest.raises(ValueError, match="`max_topics` must be a positive integer, got 0"):
        route_to_topics(retag_index.topics, torch.zeros(1, 256), OPEN, max_topics=0)
