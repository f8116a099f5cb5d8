import sys

import networkx as nx
import pytest
import torch

from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, Relation
from graphrerank_papers.retag.entity_graph import Hierarchy, build_entity_graph, hierarchical_leiden
from graphrerank_papers.retag.index import ReTAGSettings

pytest.importorskip("graspologic_native", reason="communities need graspologic-native")


def told(*names: str, related: tuple[str, str] | None = None) -> Knowledge:
    relations = (Relation(related[0], "near", related[1], ""),) if related else ()
    return Knowledge(tuple(Entity(name, "", "") for name in names), relations)


PASSAGES = ["Metz fell. The King of Metz fled! So it was.", "Nancy rose. Trier rose.\n\nNancy saw the kings, and Metz."]
KNOWLEDGE = [told("Metz", "King of Metz"), told("Nancy", "Trier", "Metz", "the Kings men", related=("Trier", "Nancy"))]


def test_by_hand() -> None:
    graph = build_entity_graph(KNOWLEDGE, PASSAGES)
    assert graph.names == ["Metz", "King of Metz", "Nancy", "Trier", "the Kings men"]
    assert graph.sentences == [
        "Metz fell.", "The King of Metz fled!", "Nancy rose.", "Trier rose.", "Nancy saw the kings, and Metz.",
    ]  # fmt: skip
    assert graph.passage.tolist() == [0, 0, 1, 1, 1]
    assert graph.named.tolist() == [[0], [0, 1], [2], [3], [0, 2, 4]]  # "kings" is most alike to "kings men"
    assert graph.edges.tolist() == [[0, 1], [0, 2], [0, 4], [2, 3], [2, 4]]
    assert graph.weight.tolist() == [1, 1, 1, 1, 1]
    assert graph.together.tolist() == [[1], [4], [4], [], [4]]  # of [2, 3] there is a statement alone
    assert graph.naming == [[0, 1, 4], [1], [2, 4], [3], [4]]
    # a statement counts as well as its sentence
    knowledge = told("Metz", "Nancy", related=("Metz", "Nancy"))
    graph = build_entity_graph([knowledge, knowledge], ["Metz is near Nancy."] * 2)
    assert (graph.edges.tolist(), graph.weight.tolist(), graph.together.tolist()) == ([[0, 1]], [4], [[0, 1]])


def test_vectors_and_scores_over_sentences() -> None:
    graph = build_entity_graph(KNOWLEDGE, PASSAGES)
    assert graph.positions(graph.edges[[3, 0, 4]]).tolist() == [3, 0, 4]
    vectors = torch.nn.functional.normalize(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    means = torch.stack([vectors[sentences].mean(dim=0) for sentences in graph.naming])
    found = graph.entity_vectors(vectors)
    assert torch.allclose(found, torch.nn.functional.normalize(means, dim=1), atol=1e-6)
    scores = torch.tensor([[1.0, 9.0], [2.0, 8.0], [3.0, 7.0], [4.0, 6.0], [5.0, 5.0]])
    assert graph.entity_scores(scores).tolist() == [[5, 9], [2, 8], [5, 7], [4, 6], [5, 5]]
    assert graph.relation_scores(scores)[:3].tolist() == [[2, 8], [5, 5], [5, 5]]
    assert graph.relation_scores(scores)[3].tolist() == [-torch.inf, -torch.inf]


def test_an_entity_that_no_sentence_names_and_no_passage() -> None:
    graph = build_entity_graph([told("Paris")], ["Metz fell."])
    assert (graph.names, graph.sentences, graph.naming) == (["Paris"], [], [[]])
    assert graph.entity_vectors(torch.zeros(0, 3)).tolist() == [[0, 0, 0]]
    graph = build_entity_graph([], [])
    assert (graph.names, graph.sentences, graph.edges.shape) == ([], [], (0, 2))
    with pytest.raises(ValueError, match=r"`knowledge` must have one entry per passage \(2\), got 1"):
        build_entity_graph([told("Metz")], ["Metz.", "Nancy."])


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


def test_weights_count_and_small_components_are_left_out() -> None:
    square = torch.tensor([[0, 1], [0, 3], [1, 2], [2, 3]])
    assert leiden(square, torch.tensor([9.0, 1.0, 1.0, 9.0])).members == [[0, 1], [2, 3]]
    assert leiden(square, torch.tensor([1.0, 9.0, 9.0, 1.0])).members == [[0, 3], [1, 2]]
    found = leiden(edges := edges_of(nx.ring_of_cliques(6, 8)), torch.ones(len(edges)))
    assert found.members == [list(range(start, start + 8)) for start in range(0, 48, 8)]
    edges = torch.tensor([[0, 1], [2, 3], [3, 4], [2, 4]])
    assert leiden(edges, torch.ones(4), min_component=3).members == [[2, 3, 4]]
    assert len(leiden(edges, torch.ones(4), min_component=4)) == len(leiden(edges[:0], torch.ones(0))) == 0


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graspologic_native", None)
    with pytest.raises(ValueError, match=r"pip install 'graphrerank\[retag\]'"):
        leiden(torch.tensor([[0, 1]]), torch.ones(1))
