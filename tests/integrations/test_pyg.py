"""There and back through PyTorch Geometric, within its loader for RAG and under its explainers."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("torch_geometric", reason="PyTorch Geometric is optional")
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.llm import RAGQueryLoader

from graphrerank import GraphReranker
from graphrerank.graphs import CandidateGraphs, CorpusGraph
from graphrerank.graphs.edge_types import ENTITY, OTHER, REFERENCE
from graphrerank.integrations.pyg import ExplainedModel, candidates_to_pyg, corpus_from_pyg, corpus_to_pyg, keep_best
from graphrerank.models.pyg_reranker import PyGReranker
from tests.integrations.conftest import QUERY, TEXTS


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


def test_candidate_graphs_one_by_one() -> None:
    edge_index = torch.tensor([[1, 0, 4, 3], [0, 2, 3, 4]])
    graphs = CandidateGraphs(torch.rand(5, 2), edge_index, torch.rand(4), torch.tensor([0, 3, 5]))
    parts = candidates_to_pyg(graphs)
    starts = graphs.ptr.tolist()
    assert torch.cat([part.x for part in parts]).equal(graphs.x)
    rebuilt = torch.cat([part.edge_index + start for part, start in zip(parts, starts, strict=False)], dim=1)
    assert rebuilt.equal(graphs.edge_index)
    assert torch.cat([part.edge_weight for part in parts]).equal(graphs.edge_attr)


def test_in_their_loader(reranker: GraphReranker) -> None:
    data = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 2]]), num_nodes=4, place=torch.arange(4))
    features = SimpleNamespace(retrieve_seed_nodes=lambda query: ([0], None), load_subgraph=lambda sample: data)
    store = SimpleNamespace(
        edge_index=data.edge_index, register_feature_store=lambda own: None, sample_subgraph=lambda seeds: None
    )
    chosen = keep_best(reranker, 2, texts=lambda loaded: [TEXTS[place] for place in loaded.place.tolist()])
    found = RAGQueryLoader((features, store), subgraph_filter=chosen).query(QUERY)
    expected = reranker.rerank(QUERY, TEXTS, edges=[(0, 1), (1, 2)], top_n=2)
    assert found.place.tolist() == list(expected.ids)
    assert found.relevance.tolist() == pytest.approx(expected.probabilities.tolist())


def test_an_explainer_finds_the_edge_that_counts() -> None:
    torch.manual_seed(0)
    model = PyGReranker(conv="SAGEConv", num_layers=1, hidden_channels=16)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x = torch.rand(5, 3)
    graphs = CandidateGraphs(x, torch.tensor([[1, 2, 3], [0, 0, 4]]), torch.ones(3), torch.tensor([0, 5]))
    explainer = Explainer(
        ExplainedModel(model.eval()),
        GNNExplainer(epochs=5),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "regression", "task_level": "node", "return_type": "raw"},
    )
    found = explainer(graphs.x, graphs.edge_index, edge_weight=graphs.edge_attr, ptr=graphs.ptr, index=0)
    assert found.edge_mask.shape == (3,)
    assert float(found.edge_mask[2]) == 0  # leads elsewhere
    assert (found.edge_mask[:2] > 0).all()
