"""There and back through networkx and igraph."""

import pytest
import torch

from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_types import ENTITY, REFERENCE
from graphrerank.integrations.graph_libraries import (
    corpus_from_networkx,
    corpus_to_networkx,
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
    with pytest.raises(ValueError, match="attribute 'text' of every node must be a string, got None at node 1"):
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
    drawn = igraph.Graph.from_networkx(corpus_to_networkx(graph), vertex_attr_hashable="name")
    assert_same(corpus_from_networkx(drawn.to_networkx(vertex_attr_hashable="name")), graph)
