import pytest
import torch
from torch_geometric.utils import add_self_loops, remove_self_loops

from graphrerank.core.graph_algebra import (
    column_normalize,
    graph_of_nodes,
    propagate,
    row_normalize,
    scatter_max,
    scatter_sum,
    with_self_loops,
)

NUM_NODES = 7
SEEDS = range(3)
# nodes and edges, among them parallel edges and loops
SIZES = [(0, 0), (NUM_NODES, 0), (1, 0), (1, 3), (NUM_NODES, 1), (NUM_NODES, 40)]


def random_edges(num_nodes: int, num_edges: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, max(1, num_nodes), (2, num_edges), generator=generator)
    return edge_index, torch.rand(num_edges, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_scatter_against_naive_loop(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    src = torch.randn(20, *shape, generator=generator, dtype=torch.float64) - 5  # a maximum with a hidden 0 would show
    index = torch.randint(0, NUM_NODES - 1, (20,), generator=generator)  # nothing points at the last row
    total = scatter_sum(src, index, NUM_NODES)
    for i in range(NUM_NODES):
        rows = src[index == i]
        torch.testing.assert_close(total[i], rows.sum(0))
        if len(shape) < 2:
            largest = scatter_max(src, index, NUM_NODES)[i]
            assert torch.equal(largest, rows.amax(0) if len(rows) else torch.zeros_like(largest))


def test_graph_of_nodes_against_naive_loop() -> None:
    ptr = torch.tensor([0, 0, 3, 3, 4, 9, 9])
    expected = [g for g in range(6) for _ in range(int(ptr[g]), int(ptr[g + 1]))]
    assert graph_of_nodes(ptr, 9).tolist() == expected
    assert graph_of_nodes(torch.tensor([0]), 0).tolist() == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("num_nodes", "num_edges"), SIZES)
def test_normalisation_against_dense_matrix(num_nodes: int, num_edges: int, seed: int) -> None:
    edge_index, weight = random_edges(num_nodes, num_edges, seed)
    weight[::5] = 0.0
    adjacency = torch.zeros(num_nodes, num_nodes, dtype=torch.float64)  # A[i, j]: weight of j -> i
    for (source, target), w in zip(edge_index.T, weight, strict=True):
        adjacency[target, source] += w
    for normalize, dim in ((row_normalize, 1), (column_normalize, 0)):
        total = adjacency.sum(dim, keepdim=True)
        expected = torch.where(total > 0, adjacency / total, 0.0)
        normalized = normalize(edge_index, weight, num_nodes)
        found = torch.zeros_like(adjacency).index_put((edge_index[1], edge_index[0]), normalized, accumulate=True)
        torch.testing.assert_close(found, expected)
    scores = torch.arange(1.0, num_nodes + 1, dtype=torch.float64)
    torch.testing.assert_close(propagate(scores, edge_index, weight), adjacency @ scores)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("edge_dim", [0, 1, 3])
@pytest.mark.parametrize(("num_nodes", "num_edges"), SIZES)
def test_with_self_loops_against_pyg_add_self_loops(num_nodes: int, num_edges: int, edge_dim: int, seed: int) -> None:
    edge_index, _ = random_edges(num_nodes, num_edges, seed)
    attr = torch.randn(num_edges, edge_dim, generator=torch.Generator().manual_seed(seed))
    kept_index, kept_attr = remove_self_loops(edge_index, attr)
    looped_index, looped_attr = add_self_loops(kept_index, kept_attr, fill_value="mean", num_nodes=num_nodes)
    order = torch.argsort(looped_index[1], stable=True)
    found_index, found_attr = with_self_loops(edge_index, attr, num_nodes)
    assert torch.equal(found_index, looped_index[:, order])
    assert torch.equal(found_attr, looped_attr[order])
