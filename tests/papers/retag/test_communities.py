import sys

import networkx as nx
import pytest
import torch

from graphrerank_papers.retag.communities import Hierarchy, graft, hierarchical_leiden
from graphrerank_papers.retag.index import ReTAGSettings

pytest.importorskip("graspologic_native", reason="communities need graspologic-native")


def leiden(edges: torch.Tensor, weight: torch.Tensor, **settings: int) -> Hierarchy:
    return hierarchical_leiden(edges, weight, ReTAGSettings(**{"min_component": 1, **settings}))  # type: ignore[arg-type]


def edges_of(graph: nx.Graph) -> torch.Tensor:
    return torch.tensor(sorted(tuple(sorted(pair)) for pair in graph.edges), dtype=torch.int64).reshape(-1, 2)


def test_against_networkx_modularity_and_large_communities_are_split() -> None:
    graph = nx.gnm_random_graph(300, 900, seed=0)
    edges = edges_of(graph)
    found = leiden(edges, torch.ones(len(edges)), max_community=10)
    ours = [set(nodes) for nodes, level in zip(found.members, found.level, strict=True) if level == 0]
    lonely = [{node} for node in graph if graph.degree[node] == 0]
    theirs = nx.community.louvain_communities(graph, seed=0)
    assert nx.community.modularity(graph, ours + lonely) > nx.community.modularity(graph, theirs) - 0.01
    assert max(found.level) > 0
    for community in range(len(found)):
        if below := [child for child, parent in enumerate(found.parent) if parent == community]:
            assert len(found.members[community]) >= 10
            assert sorted(node for child in below for node in found.members[child]) == found.members[community]
            assert {found.level[child] for child in below} == {found.level[community] + 1}
    order = [(level, members[0]) for level, members in zip(found.level, found.members, strict=True)]
    assert order == sorted(order)
    assert leiden(edges, torch.ones(len(edges)), max_community=10) == found
    assert leiden(edges, torch.ones(len(edges)), max_community=10, seed=4) != found


def test_cliques_are_communities() -> None:
    edges = edges_of(nx.ring_of_cliques(6, 8))
    found = leiden(edges, torch.ones(len(edges)))
    assert found.members == [list(range(start, start + 8)) for start in range(0, 48, 8)]
    assert (list(found.level), list(found.parent)) == ([0] * 6, [-1] * 6)


def test_weights_count() -> None:
    square = torch.tensor([[0, 1], [0, 3], [1, 2], [2, 3]])
    assert leiden(square, torch.tensor([9.0, 1.0, 1.0, 9.0])).members == [[0, 1], [2, 3]]
    assert leiden(square, torch.tensor([1.0, 9.0, 9.0, 1.0])).members == [[0, 3], [1, 2]]


def test_small_components_are_left_out() -> None:
    edges = torch.tensor([[0, 1], [2, 3], [3, 4], [2, 4]])
    assert leiden(edges, torch.ones(4), min_component=3).members == [[2, 3, 4]]
    assert len(leiden(edges, torch.ones(4), min_component=4)) == 0
    assert len(leiden(edges[:0], torch.ones(0), min_component=2)) == 0


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graspologic_native", None)
    with pytest.raises(ValueError, match=r"pip install graphrerank\[retag\]"):
        leiden(torch.tensor([[0, 1]]), torch.ones(1))


def test_graft() -> None:
    old = Hierarchy([0, 0, 1, 1], [-1, -1, 0, 0], [[0, 1, 2, 3], [4, 5], [0, 1], [2, 3]])
    edges = torch.tensor([[0, 1], [0, 2], [2, 3], [4, 5], [0, 6], [4, 6], [6, 7], [8, 9]])
    weight = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 1.0, 1.0])
    grown = graft(old, edges, weight, ReTAGSettings(max_community=5, min_component=2))
    assert grown.members == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [0, 1], [2, 3]]  # 7 by way of 6
    assert (grown.level, grown.parent) == ([0, 0, 0, 1, 1], [-1, -1, -1, 0, 0])


def test_graft_splits_what_outgrows_its_limit() -> None:
    triangle = [[0, 1], [0, 2], [1, 2]]
    other = [[node + 3 for node in pair] for pair in triangle]
    old = Hierarchy([0], [-1], [[0, 1, 2, 3]])
    grown = graft(
        old, torch.tensor([*triangle, *other, [2, 3]]), torch.ones(7), ReTAGSettings(max_community=5, min_component=2)
    )
    assert grown.members == [[0, 1, 2, 3, 4, 5], [0, 1, 2], [3, 4, 5]]
    assert (grown.level, grown.parent) == ([0, 1, 1], [-1, 0, 0])
