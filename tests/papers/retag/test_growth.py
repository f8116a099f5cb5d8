import pytest
import torch

from graphrerank_papers.retag.entity_graph import Hierarchy
from graphrerank_papers.retag.growth import graft, joined_communities
from graphrerank_papers.retag.index import ReTAGSettings

pytest.importorskip("graspologic_native", reason="communities need graspologic-native")

SETTINGS = ReTAGSettings(max_community=5, min_component=2)


def test_new_nodes_join_communities_or_form_new_ones() -> None:
    hierarchy = Hierarchy([0, 0, 1, 1], [-1, -1, 0, 0], [[0, 1, 2, 3], [4, 5], [0, 1], [2, 3]])
    edges = torch.tensor([[0, 1], [0, 2], [2, 3], [4, 5], [0, 6], [4, 6], [6, 7], [8, 9]])
    weight = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 1.0, 1.0])
    grown = graft(hierarchy, edges, weight, SETTINGS)
    assert grown.members == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [0, 1], [2, 3]]  # node 7 by way of node 6
    assert (grown.level, grown.parent) == ([0, 0, 0, 1, 1], [-1, -1, -1, 0, 0])


def test_a_community_that_became_too_large_is_divided() -> None:
    hierarchy = Hierarchy([0], [-1], [[0, 1, 2, 3]])
    edges = torch.tensor([[0, 1], [0, 2], [1, 2], [3, 4], [3, 5], [4, 5], [2, 3]])  # two triangles
    grown = graft(hierarchy, edges, torch.ones(7), SETTINGS)
    assert grown.members == [[0, 1, 2, 3, 4, 5], [0, 1, 2], [3, 4, 5]]
    assert (grown.level, grown.parent) == ([0, 1, 1], [-1, 0, 0])


def test_a_graph_that_did_not_grow_keeps_its_communities() -> None:
    hierarchy = Hierarchy([0, 1], [-1, 0], [[0, 1, 2], [0, 1]])
    assert graft(hierarchy, torch.tensor([[0, 1], [1, 2]]), torch.ones(2), SETTINGS) == hierarchy


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([([0, 2], 1.0), ([1, 2], 2.0)], {2: 1}),  # the larger weight
        ([([0, 2], 1.0), ([2, 1], 1.0)], {2: 0}),  # a tie
        ([([0, 2], 1.0), ([2, 3], 1.0)], {2: 0, 3: 0}),  # through a new node
        ([([2, 3], 1.0)], {}),
    ],
)
def test_the_community_of_a_new_node(pairs: list[tuple[list[int], float]], expected: dict[int, int]) -> None:
    assert joined_communities(pairs, {0: 0, 1: 1}) == expected
