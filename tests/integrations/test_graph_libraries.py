"""There and back through networkx, igraph and SciPy."""

import pytest
import torch

from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.edge_types import ENTITY, REFERENCE
from graphrerank.integrations.graph_libraries import (
    corpus_from_igraph,
    corpus_from_networkx,
    corpus_from_scipy,
    corpus_to_igraph,
    corpus_to_networkx,
    corpus_to_scipy,
)


@pytest.fixture
def graph() -> CorpusGraph:
    edges = torch.tensor([[0, 1], [0, 1], [2, 0], [3, 2]])
    weight, types = torch.tensor([2.0, 0.5, 1.0, 3.0]), torch.tensor([REFERENCE, ENTITY, ENTITY, REFERENCE])
    return CorpusGraph.from_edges(list("abcde"), list("ABCDE"), edges, weight, edge_type=types, undirected=False)


def assert_same(found: CorpusGraph, expected: CorpusGraph) -> None:
    assert (list(found.node_ids), list(found.texts)) == (list(expected.node_ids), list(expected.texts))
    for name in ("indptr", "indices", "weight", "weight_by_type"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name


def test_networkx(graph: CorpusGraph) -> None:
    networkx = pytest.importorskip("networkx")
    assert_same(corpus_from_networkx(corpus_to_networkx(graph)), graph)
    plain = networkx.Graph([(1, 2), (2, 2)])
    networkx.set_node_attributes(plain, {1: "one", 2: "two"}, "body")
    found = corpus_from_networkx(plain, text="body")
    assert (list(found.node_ids), found.indices.tolist()) == (["1", "2"], [1, 0])
    with pytest.raises(ValueError, match="every node must have the text 'text', 1 has None"):
        corpus_from_networkx(plain)


def test_a_users_names_of_types(graph: CorpusGraph) -> None:
    networkx = pytest.importorskip("networkx")
    drawn = networkx.DiGraph()
    drawn.add_nodes_from(["a", "b"], text="x")
    drawn.add_edge("a", "b", type="likes", weight=0.5)
    found = corpus_from_networkx(drawn, edge_meanings={"likes": "entity"})
    assert found.typed_edges()[2].tolist() == [ENTITY]
    assert found.weight.tolist() == [0.5]


def test_igraph(graph: CorpusGraph) -> None:
    igraph = pytest.importorskip("igraph")
    assert_same(corpus_from_igraph(corpus_to_igraph(graph)), graph)
    plain = igraph.Graph(2, [(0, 1)], vertex_attrs={"text": ["x", "y"]})
    assert corpus_from_igraph(plain).node_ids == ["0", "1"]
    assert corpus_from_igraph(plain).num_edges == 2


def test_scipy(graph: CorpusGraph) -> None:
    matrix = corpus_to_scipy(graph)
    found = corpus_from_scipy(graph.node_ids, graph.texts, matrix)
    assert torch.equal(found.indices, graph.indices)
    assert torch.equal(found.weight, graph.weight)
    with pytest.raises(ValueError, match=r"`adjacency` must be \[4, 4\], got \[5, 5\]"):
        corpus_from_scipy(graph.node_ids[:4], graph.texts[:4], matrix)
