"""There and back through PyTorch Geometric."""

import pytest
import torch

pytest.importorskip("torch_geometric", reason="PyTorch Geometric is optional")
from torch_geometric.data import HeteroData

from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.edge_types import ENTITY, OTHER, REFERENCE
from graphrerank.integrations.pyg import corpus_from_pyg, corpus_to_pyg


def test_a_corpus_there_and_back() -> None:
    edges = torch.tensor([[0, 1], [0, 1], [2, 0]])
    types = torch.tensor([REFERENCE, ENTITY, OTHER])
    graph = CorpusGraph.from_edges(list("abc"), list("ABC"), edges, edge_type=types, undirected=False)
    data = corpus_to_pyg(graph)
    assert data.edge_index.tolist() == [[1, 1, 0], [0, 0, 2]]  # from the neighbour to the node
    back = corpus_from_pyg(data, data.texts, data.node_ids, undirected=False)
    for name in ("indptr", "indices", "weight", "weight_by_type"):
        assert torch.equal(getattr(back, name), getattr(graph, name)), name
    with pytest.raises(ValueError, match=r"`texts` must have one entry per node \(3\), got 1"):
        corpus_from_pyg(data, ["x"])


def test_a_graph_of_several_kinds_of_nodes() -> None:
    data = HeteroData()
    data["film"].num_nodes, data["person"].num_nodes = 2, 1
    data["film", "cites", "film"].edge_index = torch.tensor([[0], [1]])
    data["film", "made_by", "person"].edge_index = torch.tensor([[1], [0]])
    texts = {"film": ["Solaris", "Mirror"], "person": ["Tarkovsky"]}
    graph = corpus_from_pyg(data, texts, edge_meanings={"made_by": "entity"})
    assert graph.node_ids == ["film:0", "film:1", "person:0"]
    assert graph.texts == ["Solaris", "Mirror", "Tarkovsky"]
    edges, _, types = graph.typed_edges()
    found = dict(zip(map(tuple, edges.tolist()), types.tolist(), strict=True))
    assert found == {(0, 1): REFERENCE, (1, 0): REFERENCE, (1, 2): ENTITY, (2, 1): ENTITY}
    with pytest.raises(ValueError, match=r"`texts` must map each of \['film', 'person'\] to its texts"):
        corpus_from_pyg(data, {"film": ["x", "y"]})
    with pytest.raises(ValueError, match=r"`texts\['person'\]` must have one entry per node \(1\), got 2"):
        corpus_from_pyg(data, {**texts, "person": ["x", "y"]})
