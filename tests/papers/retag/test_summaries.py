from typing import Any

import pytest
import torch

from graphrerank_papers.retag.index import ReTAGIndex
from graphrerank_papers.retag.summaries import LevelSummaries
from tests.support.retag_index import make_index


def test_a_level_of_all_graphs_and_parents_behind(retag_index: ReTAGIndex) -> None:
    summaries = LevelSummaries(retag_index, 1)
    assert summaries.communities.tolist() == [1, 2, 3, 4, 5, 6, 0]  # topics have one level, which is their finest
    assert summaries.num_listed == 6
    assert summaries.parent.tolist() == [-1, 6, 6, -1, -1, -1, -1]
    assert summaries.in_graph.int().tolist() == [[1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1, 0]]
    assert summaries.num_tokens.tolist() == [3, 5, 6, 5, 10, 6, 11]
    assert list(summaries.graph.texts)[:2] == ["Lothair loved Waldrada.", "Metz and Nancy are cities."]
    _, neighbour = summaries.graph.neighbours(torch.tensor([1]))
    assert set(neighbour.tolist()) == {6, 3}  # its parent, and the topic's community of the same entities


def test_the_coarsest_level_has_no_parents(retag_index: ReTAGIndex) -> None:
    summaries = LevelSummaries(retag_index, 0)
    assert summaries.communities.tolist() == [0, 1, 4, 5, 6]
    assert summaries.parent.tolist() == [-1] * 5


def test_of_equal_summaries_one_is_a_candidate(retag_index: ReTAGIndex) -> None:
    summaries = LevelSummaries(retag_index, 1)
    graphs = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 1, 1], [0, 0, 0]]).bool()
    assert summaries.candidates(graphs).int().tolist() == [
        [1, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 1, 1, 0, 0],
        [1, 1, 1, 0, 1, 0, 0],
        [0, 0, 0, 1, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 0],
    ]


def test_an_empty_summary_is_no_candidate(word_encoder: Any) -> None:
    plan = [(0, 0, -1, (0,), "Metz fell."), (0, 0, -1, (1,), "")]  # no usable answer of a language model
    summaries = LevelSummaries(make_index(word_encoder, plan), 0)
    assert summaries.in_graph.tolist() == [[True, False], [False, False], [False, False]]


def test_an_empty_index(empty_retag_index: ReTAGIndex) -> None:
    summaries = LevelSummaries(empty_retag_index, 0)
    assert len(summaries) == 0
    assert summaries.candidates(torch.ones(2, 3, dtype=torch.bool)).shape == (2, 0)


def test_no_negative_level(retag_index: ReTAGIndex) -> None:
    with pytest.raises(ValueError, match="`level` must not be negative, got -1"):
        LevelSummaries(retag_index, -1)
