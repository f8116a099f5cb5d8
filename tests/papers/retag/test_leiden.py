import sys

import networkx as nx
import pytest
import torch

from graphrerank_papers.retag.leiden import hierarchical_leiden

pytest.importorskip("graspologic_native", reason="communities need graspologic-native")


def edges_of(graph: nx.Graph) -> torch.Tensor:
    return torch.tensor(sorted(tuple(sorted(pair)) for pair in graph.edges), dtype=torch.int64).reshape(-1, 2)


def test_against_networkx_modularity() -> None:
    graph = nx.gnm_random_graph(300, 900, seed=0)
    edges = edges_of(graph)
    found = hierarchical_leiden(edges, torch.ones(len(edges)))
    ours = [set(nodes) for nodes, level in zip(found.members, found.level, strict=True) if level == 0]
    lonely = [{node} for node in graph if graph.degree[node] == 0]
    theirs = nx.community.louvain_communities(graph, seed=0)
    assert nx.community.modularity(graph, ours + lonely) > nx.community.modularity(graph, theirs) - 0.01


def test_cliques_are_communities() -> None:
    edges = edges_of(nx.ring_of_cliques(6, 8))
    found = hierarchical_leiden(edges, torch.ones(len(edges)))
    assert found.members == [list(range(start, start + 8)) for start in range(0, 48, 8)]
    assert (list(found.level), list(found.parent)) == ([0] * 6, [-1] * 6)


def test_large_communities_are_split() -> None:
    edges = edges_of(nx.gnm_random_graph(300, 900, seed=0))
    found = hierarchical_leiden(edges, torch.ones(len(edges)), max_community=10)
    assert max(found.level) > 0
    for community, below in enumerate(found.children):
        if below:
            assert len(found.members[community]) >= 10
            assert sorted(node for child in below for node in found.members[child]) == found.members[community]
            assert {found.level[child] for child in below} == {found.level[community] + 1}
    order = [(level, members[0]) for level, members in zip(found.level, found.members, strict=True)]
    assert order == sorted(order)


def test_same_seed_same_communities() -> None:
    edges = edges_of(nx.gnm_random_graph(300, 900, seed=0))
    weight = torch.ones(len(edges))
    first, second, other = (hierarchical_leiden(edges, weight, seed=seed) for seed in (3, 3, 4))
    assert first == second
    assert first.members != other.members


def test_weights_count() -> None:
    square = torch.tensor([[0, 1], [0, 3], [1, 2], [2, 3]])
    assert hierarchical_leiden(square, torch.tensor([9.0, 1.0, 1.0, 9.0])).members == [[0, 1], [2, 3]]
    assert hierarchical_leiden(square, torch.tensor([1.0, 9.0, 9.0, 1.0])).members == [[0, 3], [1, 2]]


def test_small_components_are_left_out() -> None:
    edges = torch.tensor([[0, 1], [2, 3], [3, 4], [2, 4]])
    assert hierarchical_leiden(edges, torch.ones(4), min_component=3).members == [[2, 3, 4]]
    assert len(hierarchical_leiden(edges, torch.ones(4), min_component=4)) == 0
    assert len(hierarchical_leiden(edges[:0], torch.ones(0), min_component=2)) == 0


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graspologic_native", None)
    with pytest.raises(ValueError, match=r"pip install graphrerank\[retag\]"):
        hierarchical_leiden(torch.tensor([[0, 1]]), torch.ones(1))
