from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphrerank_papers.retag.index import ReTAGIndex
from tests.support.retag_index import same


def test_an_index_comes_back_as_it_was_saved(
    tmp_path: Path, retag_index: ReTAGIndex, empty_retag_index: ReTAGIndex
) -> None:
    for index in (retag_index, empty_retag_index):  # the second one over the first
        index.save(tmp_path / "index")
        assert same(ReTAGIndex.load(tmp_path / "index"), index)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
    with pytest.raises(ValueError, match="missing or damaged index"):
        ReTAGIndex.load(tmp_path / "none")


def test_a_level_holds_each_entity_once(retag_index: ReTAGIndex) -> None:
    communities = retag_index.communities
    assert [communities.num_levels(graph) for graph in (0, 1, 3)] == [2, 1, 0]
    assert communities.at_level(0, 0).tolist() == [0, 1]
    assert communities.at_level(0, 1).tolist() == communities.at_level(0, 9).tolist() == [1, 2, 3]
    assert communities.at_level(1, 0).tolist() == [4, 5]
    with pytest.raises(ValueError, match="`level` must not be negative, got -1"):
        communities.at_level(0, -1)


def test_topics_compare_what_is_left_without_the_centre(retag_index: ReTAGIndex) -> None:
    vectors, centre = torch.eye(4)[:2], torch.tensor([0.0, 0.0, 1.0, 0.0])
    topics = replace(retag_index.topics, vectors=vectors, centre=centre)
    found = topics.similarity(torch.tensor([[3.0, 4.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0]]))
    assert torch.allclose(found, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))
    assert replace(topics, names=[]).similarity(torch.ones(2, 3)).shape == (2, 0)
