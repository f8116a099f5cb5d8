"""There and back through PyTorch Geometric, and rerankers under its explainers."""

import pytest
import torch

pytest.importorskip("torch_geometric", reason="PyTorch Geometric is optional")
from torch_geometric.data import HeteroData
from torch_geometric.explain import Explainer, GNNExplainer

from graphrerank.artifacts.parity import random_graphs
from graphrerank.core import CandidateGraphs
from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_types import ENTITY, OTHER, REFERENCE
from graphrerank.integrations.pyg import (
    ExplainedModel,
    candidates_to_pyg,
    corpus_from_pyg,
    corpus_to_pyg,
    with_pyg_layers,
)
from graphrerank.models.checkpoint import load_primary
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.pyg_reranker import PyGReranker
from graphrerank.utils.checks import UserError
from tests.support.models import randomised


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
    with pytest.raises(
        ValueError, match=r"`texts` must map each node type \['film', 'person'\] to the texts of its nodes"
    ):
        corpus_from_pyg(data, {"film": ["x", "y"]})
    with pytest.raises(ValueError, match=r"`texts\['person'\]` must have one entry per node \(1\), got 2"):
        corpus_from_pyg(data, {**texts, "person": ["x", "y"]})


def test_candidate_graphs_are_a_batch_that_splits() -> None:
    edge_index = torch.tensor([[1, 0, 4, 3], [0, 2, 3, 4]])
    graphs = CandidateGraphs(
        torch.rand(5, 2), edge_index, torch.rand(4), torch.tensor([0, 3, 3, 5]), nodes=torch.tensor([7, 2, 9, 2, 4]),
        relevance=torch.tensor([0.0, 1, 0, 2, 0]), edge_type=torch.tensor([0, 1, 2, 0]),
        inputs={"query_vectors": torch.rand(3, 4), "node_vectors": torch.rand(5, 4)},
    )  # fmt: skip
    batch = candidates_to_pyg(graphs)
    assert batch.num_graphs == 3
    assert batch.batch.tolist() == [0, 0, 0, 2, 2]
    expected = {
        "x": graphs.x, "edge_index": edge_index, "edge_weight": graphs.edge_attr, "ptr": graphs.ptr,
        "edge_attr": graphs.edge_attr.unsqueeze(1), "edge_type": graphs.edge_type, "y": graphs.relevance,
        "nodes": graphs.nodes, **graphs.inputs,
    }  # fmt: skip
    for name, tensor in expected.items():
        assert torch.equal(batch[name], tensor), name
    first, empty, last = batch.to_data_list()
    assert first.edge_index.tolist() == [[1, 0], [0, 2]]
    assert last.edge_index.tolist() == [[1, 0], [0, 1]]
    assert (empty.num_nodes, empty.num_edges) == (0, 0)
    with pytest.raises(UserError, match="`graphs` must have at least one query, got none"):
        candidates_to_pyg(CandidateGraphs(torch.rand(0, 2), edge_index[:, :0], torch.rand(0), torch.tensor([0])))


def explain(model: PyGReranker, graphs: CandidateGraphs, index: int):
    torch.manual_seed(0)
    explainer = Explainer(
        ExplainedModel(model), GNNExplainer(epochs=30), explanation_type="model", node_mask_type="attributes",
        edge_mask_type="object", model_config={"mode": "regression", "task_level": "node", "return_type": "raw"},
    )  # fmt: skip
    batch = candidates_to_pyg(graphs)
    types = {} if graphs.edge_type is None else {"edge_type": batch.edge_type}
    return explainer(batch.x, batch.edge_index, edge_weight=batch.edge_weight, ptr=batch.ptr, index=index, **types)


@pytest.mark.parametrize("conv", ["SAGEConv", "GATv2Conv", "GCNConv"])
def test_an_explainer_finds_the_edges_that_the_score_uses(conv: str) -> None:
    model = randomised(PyGReranker(conv=conv, num_layers=1, hidden_channels=16), std=0.5)
    edge_index = torch.tensor([[1, 2, 3, 5], [0, 0, 4, 3]])  # two into node 0, two elsewhere
    graphs = CandidateGraphs(torch.rand(6, 3), edge_index, torch.ones(4), torch.tensor([0, 6]))
    found = explain(model, graphs, 0)
    assert found.edge_mask.shape == (4,)
    assert found.node_mask.shape == (6, 3)
    assert found.edge_mask[:2].min() > found.edge_mask[2:].max()
    assert (found.edge_mask[2:] == 0).all()


def test_a_shipped_checkpoint_has_the_same_scores_with_their_layers() -> None:
    checkpoint = load_primary("base")
    assert isinstance(checkpoint.model, GATv2Reranker)
    graphs = random_graphs(checkpoint.manifest, (8, 5), 30, torch.Generator().manual_seed(0))
    inside = graphs.edge_index[0] != graphs.edge_index[1]
    graphs = graphs.select_edges(inside)
    model = with_pyg_layers(checkpoint)
    read = graphs.model_inputs(model.inputs)
    torch.testing.assert_close(model(*read), checkpoint.model(*read), rtol=1e-4, atol=1e-5)
    found = explain(model, graphs, 0)
    assert found.edge_mask.shape == (graphs.edge_index.shape[1],)
    other_query = found.edge_index[1] >= 8
    assert (found.edge_mask[other_query] == 0).all()
    assert (found.edge_mask[~other_query] > 0).any()


def test_what_cannot_be_explained_is_named() -> None:
    with pytest.raises(UserError, match=r"`model` must be a PyGReranker, such as with_pyg_layers.*, got GATv2"):
        ExplainedModel(GATv2Reranker())  # type: ignore[arg-type]
    model = ExplainedModel(PyGReranker(conv="SAGEConv", features="paper", embedding_dim=4))
    edges = torch.zeros(2, 0, dtype=torch.int64)
    with pytest.raises(UserError, match="`query_vectors` and `node_vectors` must be tensors"):
        model(torch.rand(2, 3), edges, torch.rand(0), torch.tensor([0, 2]))
    typed = ExplainedModel(PyGReranker(conv="SAGEConv", num_edge_types=5))
    with pytest.raises(UserError, match="`edge_type` must be a tensor"):
        typed(torch.rand(2, 3), edges, torch.rand(0), torch.tensor([0, 2]))
