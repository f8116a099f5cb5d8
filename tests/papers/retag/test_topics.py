from math import log
from typing import Any

import pytest
import torch

from graphrerank_papers.retag.index import ReTAGIndex
from graphrerank_papers.retag.topics import cluster_entities, covering_threshold, distinctive_words, route_to_topics

OPEN = torch.tensor([True, True])


def test_clusters_are_the_groups_the_largest_first() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.tensor([1] * 12 + [0] * 20 + [2] * 10)
    vectors = torch.nn.functional.normalize(5 * torch.eye(3)[truth] + torch.randn(42, 3, generator=generator), dim=1)
    centres, label = cluster_entities(vectors, num_topics=3)
    assert torch.equal(label, truth)
    assert centres.argmax(dim=1).tolist() == [0, 1, 2]
    assert torch.allclose(centres.norm(dim=1), torch.ones(3))
    again = cluster_entities(vectors, num_topics=3)
    assert torch.equal(again[0], centres)


@pytest.mark.parametrize(("num_entities", "topics"), [(0, 0), (1, 1), (19, 1), (20, 2), (99, 5)])
def test_a_small_corpus_has_few_topics(num_entities: int, topics: int) -> None:
    vectors = torch.randn(num_entities, 4, generator=torch.Generator().manual_seed(0))
    centres, label = cluster_entities(torch.nn.functional.normalize(vectors, dim=1), num_topics=5)
    assert centres.shape == (topics, 4)
    assert label.unique().tolist() == list(range(topics))


def test_no_topics_and_no_vectors() -> None:
    assert cluster_entities(torch.ones(30, 2), num_topics=0)[0].shape == (0, 2)
    centres, label = cluster_entities(torch.zeros(3, 2), num_topics=4)
    assert (centres.shape, label.tolist()) == ((0, 2), [-1, -1, -1])
    assert cluster_entities(torch.zeros(0, 0), num_topics=4)[0].shape == (0, 0)


def test_distinctive_words_by_hand() -> None:
    groups = [["Metz, the river, the river"], ["Nancy, the river", "Nancy, a bridge"]]  # 2 and 4 words: 3 on average
    weight = {"metz": log(1 + 3 / 1), "nancy": 2 * log(1 + 3 / 2), "bridge": log(1 + 3 / 1), "river": log(1 + 3 / 2)}
    assert weight["nancy"] > weight["bridge"] > weight["river"]
    assert distinctive_words(groups, num_words=3) == [["metz", "river"], ["nancy", "bridge", "river"]]
    assert distinctive_words(groups, num_words=1) == [["metz"], ["nancy"]]
    assert distinctive_words([], num_words=3) == []


def test_covering_threshold() -> None:
    likeness = torch.tensor([[0.9, 0.1], [0.2, 0.7], [0.3, 0.0], [0.4, 0.5]])
    for coverage, least in ((1.0, 0.3), (0.75, 0.5), (0.7, 0.5), (0.5, 0.7), (0.01, 0.9)):
        threshold = covering_threshold(likeness, coverage=coverage)
        assert threshold == pytest.approx(least)
        assert (likeness.max(dim=1).values >= threshold).float().mean() >= coverage
    assert covering_threshold(likeness[:0], coverage=0.5) == covering_threshold(likeness[:, :0], coverage=0.5) == 1.0


def test_no_topic_one_or_several(retag_index: ReTAGIndex, word_encoder: Any) -> None:
    vectors = word_encoder.encode(["nothing known", "rivers and cities", "cities and rivers kings who loved"])
    routes = route_to_topics(retag_index.topics, vectors, OPEN)
    assert routes.int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
    likeness = retag_index.topics.similarity(vectors)
    assert torch.equal(routes[:, 1:], likeness >= 0.3)


def test_a_topic_without_summaries_is_closed(retag_index: ReTAGIndex, word_encoder: Any) -> None:
    vectors = word_encoder.encode(["rivers and cities"])
    assert route_to_topics(retag_index.topics, vectors, ~OPEN).int().tolist() == [[1, 0, 0]]
