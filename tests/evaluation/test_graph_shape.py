import networkx as nx
import pytest
import torch

from graphrerank.evaluation.graph_shape import graph_shape
from graphrerank.graphs import CorpusGraph, EntityIncidence
from graphrerank.graphs.edge_types import REFERENCE, SIMILARITY


@pytest.mark.parametrize("seed", range(3))
def test_against_networkx(seed: int) -> None:
    pairs = torch.randint(0, 40, (30, 2), generator=torch.Generator().manual_seed(seed))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    types = torch.tensor([REFERENCE, SIMILARITY])[torch.arange(len(pairs)) % 2]
    graph = CorpusGraph.from_edges([str(i) for i in range(40)], [""] * 40, pairs, edge_type=types)
    shape = graph_shape(graph)
    whole = nx.Graph()
    whole.add_nodes_from(range(40))
    whole.add_edges_from(pairs.tolist())
    parts = [len(part) for part in nx.connected_components(whole)]
    assert shape.num_components == sum(size > 1 for size in parts)
    assert shape.largest_component == pytest.approx(max(parts) / 40)
    assert shape.share_isolated == pytest.approx(len(list(nx.isolates(whole))) / 40)
    assert [entry.edges for entry in shape.types] == ["reference", "similarity"]
    for number, entry in enumerate(shape.types):
        own = nx.Graph(pairs[number::2].tolist())
        assert entry.pairs == own.number_of_edges()
        assert entry.mean_neighbours == pytest.approx(2 * own.number_of_edges() / 40)
        assert entry.share_joined == pytest.approx(own.number_of_nodes() / 40)


def test_entities_join_passages() -> None:
    names = [["a"], ["a", "b"], ["b"], ["c"], []]
    graph = CorpusGraph.from_edges(list("vwxyz"), [""] * 5, torch.tensor([[3, 4]]))
    shape = graph_shape(graph.with_entities(EntityIncidence.from_names(names, max_share=1.0)))
    assert [entry.edges for entry in shape.types] == ["entity", "other"]
    assert (shape.types[0].pairs, shape.types[0].share_joined) == (2, 0.6)
    assert (shape.num_components, shape.largest_component, shape.share_isolated) == (2, 0.6, 0.0)


def test_no_edge() -> None:
    shape = graph_shape(CorpusGraph.from_edges(list("ab"), ["", ""], torch.zeros(0, 2)))
    assert shape.types == ()
    assert (shape.num_components, shape.largest_component, shape.share_isolated) == (0, 0.0, 1.0)
