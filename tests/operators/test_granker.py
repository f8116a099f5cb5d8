import pytest
import torch
from torch import Tensor

from graphrerank.corpus import CorpusGraph, candidate_edges
from graphrerank.operators.granker import smooth_vectors
from tests.operators.corpora import corpus_of, random_edges


def naive_granker(vectors: Tensor, retrieved: list[int], edges: set[tuple[int, int]], smoothing: float) -> Tensor:
    """Algorithm 2, lines 2 to 6, node by node; ``edges`` holds both directions of each."""
    n = len(retrieved)
    A = [[float((retrieved[i], retrieved[j]) in edges) for j in range(n)] for i in range(n)]
    D = [sum(a == node for a, _ in edges) for node in retrieved]  # over the whole corpus graph
    W = [[A[i][j] / D[j] if A[i][j] else 0.0 for j in range(n)] for i in range(n)]
    smoothed = torch.empty_like(vectors)
    for i in range(n):
        total = sum(W[i])
        if total == 0:
            smoothed[i] = vectors[i]
            continue
        context = sum(W[i][j] / total * vectors[j] for j in range(n))
        smoothed[i] = (1 - smoothing) * vectors[i] + smoothing * context
    return smoothed


def random_corpus(seed: int, *, num_nodes: int = 40, num_edges: int = 50) -> tuple[CorpusGraph, set[tuple[int, int]]]:
    generator = torch.Generator().manual_seed(seed)
    pairs = random_edges(num_nodes - 5, num_edges, generator)  # the last five are isolated
    both = {(a, b) for a, b in pairs.tolist()}
    return corpus_of([""] * num_nodes, edges=pairs), both | {(b, a) for a, b in both}


def smooth(graph: CorpusGraph, nodes: Tensor, vectors: Tensor, smoothing: float) -> Tensor:
    edge_index, _, _, _ = candidate_edges(graph, nodes)
    return smooth_vectors(vectors, edge_index, graph.num_neighbours[nodes[nodes >= 0]], smoothing)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("smoothing", [0.0, 0.2, 1.0])
def test_against_naive_algorithm_2(seed: int, smoothing: float) -> None:
    graph, edges = random_corpus(seed, num_edges=10 * seed)
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randperm(40, generator=generator)[: 1 + seed * 2]
    vectors = torch.randint(3, (len(nodes), 4), generator=generator).double()  # ties too
    expected = naive_granker(vectors, nodes.tolist(), edges, smoothing)
    torch.testing.assert_close(smooth(graph, nodes[None], vectors, smoothing), expected)


def test_a_batch_equals_its_parts() -> None:
    graph, _ = random_corpus(3, num_edges=90)
    generator = torch.Generator().manual_seed(0)
    nodes = torch.stack([torch.randperm(40, generator=generator)[:12] for _ in range(3)])
    nodes[1, 5:] = -1
    vectors = torch.randn(int((nodes >= 0).sum()), 4, generator=generator)
    parts = vectors.split((nodes >= 0).sum(1).tolist())
    alone = [smooth(graph, row[None], part, 0.2) for row, part in zip(nodes, parts, strict=True)]
    assert torch.equal(smooth(graph, nodes, vectors, 0.2), torch.cat(alone))


def test_without_edges_vectors_stay_to_the_last_bit_and_neighbours_may_have_none() -> None:
    vectors = torch.randn(5, 4)
    none = torch.zeros(2, 0, dtype=torch.int64)
    assert torch.equal(smooth_vectors(vectors, none, torch.zeros(5, dtype=torch.int64), 0.7), vectors)
    assert smooth_vectors(vectors[:0], none, none[0], 0.7).shape == (0, 4)
    graph = CorpusGraph.from_edges(["a", "b"], ["", ""], torch.tensor([[0, 1]]), undirected=False)
    assert smooth(graph, torch.tensor([[0, 1]]), torch.tensor([[1.0], [3.0]]), 0.5).tolist() == [[2.0], [3.0]]
