import pytest
import torch
import torch.nn.functional as F

from graphrerank.data.enrichment import knn
from graphrerank.data.enrichment.knn import nearest_neighbor_edges


@pytest.mark.parametrize("block", [1, 100, 1 << 24])
def test_against_naive_sort(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knn, "BLOCK_SCORES", block)
    vectors = F.normalize(torch.randn(40, 5, generator=torch.Generator().manual_seed(0)), dim=1)
    scores = (vectors @ vectors.T).double()
    near = []
    for i in range(40):
        others = sorted((j for j in range(40) if j != i), key=lambda j, i=i: (-scores[i, j].item(), j))[:4]
        near.append({j for j in others if scores[i, j] > 0})
    expected = [[i, j] for i in range(40) for j in range(i + 1, 40) if j in near[i] or i in near[j]]
    edges, weight = nearest_neighbor_edges(vectors, k=4)
    assert edges.tolist() == expected
    torch.testing.assert_close(weight.double(), scores[edges[:, 0], edges[:, 1]], atol=1e-6, rtol=0)


def test_ties_go_by_number_and_negative_pairs_are_left_out() -> None:
    same = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    assert nearest_neighbor_edges(same, k=1)[0].tolist() == [[0, 1], [0, 2]]
    assert nearest_neighbor_edges(same, k=9)[0].tolist() == [[0, 1], [0, 2], [1, 2]]


@pytest.mark.parametrize("num_nodes", [0, 1])
def test_too_small_a_corpus(num_nodes: int) -> None:
    edges, weight = nearest_neighbor_edges(torch.ones(num_nodes, 3), k=2)
    assert (edges.shape, weight.shape) == ((0, 2), (0,))
    with pytest.raises(ValueError, match=r"finite \[N, d\] matrix"):
        nearest_neighbor_edges(torch.tensor([[float("nan")]]), k=1)
