import pytest
import torch

from graphrerank.data import PreparedDataset, Qrels, RetrievalDataset
from graphrerank.graphs import CorpusGraph, Ranking


@pytest.fixture
def prepared() -> PreparedDataset:
    """Two triangles of passages, three queries with two relevant passages each; one of the last is no candidate."""
    edges = torch.tensor([[0, 1], [1, 2], [0, 2], [3, 4], [4, 5], [3, 5]])
    graph = CorpusGraph.from_edges(list("abcdef"), [""] * 6, edges).with_embedding(torch.eye(6))
    qrels = Qrels(torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([0, 1, 3, 4, 2, 5]), torch.ones(6))
    dataset = RetrievalDataset("toy", graph, ["x", "y", "z"], ["", "", ""], {"val": qrels})
    nodes = torch.tensor([[3, 0, 4, 1], [3, 0, 4, -1], [2, 0, 1, 3]])
    scores = torch.tensor([[0.9, 0.8, 0.7, 0.6], [0.9, 0.8, 0.7, -torch.inf], [0.9, 0.8, 0.7, 0.6]])
    features = scores.masked_fill(nodes < 0, 0.0).unsqueeze(-1)
    return PreparedDataset(dataset, torch.zeros(3, 6), Ranking(nodes, scores, features), ("base_score",), "fake", "f")
