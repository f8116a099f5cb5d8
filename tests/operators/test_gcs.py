from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphrerank.core import CandidateGraphs
from graphrerank.operators.gcs import GCS, graph_cohesive_smoothing, num_smoothing_steps

MakeGraphs = Callable[..., CandidateGraphs]
RESTARTS = [0.05, 0.3, 0.5, 0.9, 1.0]


def dense_weights(graphs: CandidateGraphs) -> Tensor:
    """Algorithm 1's ``W``: rows of ``A`` divided by their sums."""
    adjacency = torch.zeros(graphs.num_nodes, graphs.num_nodes, dtype=graphs.edge_attr.dtype)
    adjacency[graphs.edge_index[1], graphs.edge_index[0]] = graphs.edge_attr
    total = adjacency.sum(1, keepdim=True)
    return torch.where(total > 0, adjacency / total.clamp(min=1e-300), 0.0)


def exact(graphs: CandidateGraphs, restart_prob: float) -> Tensor:
    """Solve ``p = c s + (1 - c) W p``, then take the maximum with ``s``."""
    seeds = graphs.x[:, 0]
    system = torch.eye(graphs.num_nodes, dtype=seeds.dtype) - (1 - restart_prob) * dense_weights(graphs)
    return torch.maximum(restart_prob * torch.linalg.solve(system, seeds), seeds)


def algorithm_1(graphs: CandidateGraphs, restart_prob: float, tolerance: float) -> list[float]:
    """GraphER's Algorithm 1, line by line."""
    weights, seeds = dense_weights(graphs).tolist(), graphs.x[:, 0].tolist()
    scores, residual = seeds, tolerance
    while residual >= tolerance:
        following = [
            restart_prob * seed + (1 - restart_prob) * sum(w * p for w, p in zip(row, scores, strict=True))
            for seed, row in zip(seeds, weights, strict=True)
        ]
        residual = sum(abs(new - old) for new, old in zip(following, scores, strict=True))
        scores = following
    return [max(score, seed) for score, seed in zip(scores, seeds, strict=True)]


def test_four_nodes_worked_by_hand() -> None:
    # A path 0 - 1 - 2 and an isolated node 3; s = (0.8, 0.2, 0.4, 0.6), c = 0.5. Rows of W sum to 1:
    #   W01 = 1,  W10 = W12 = 1/2,  W21 = 1,  row 3 is zero. The fixed point p = s/2 + W p / 2:
    #   p0 = 0.4 + p1/2,  p1 = 0.1 + (p0 + p2)/4,  p2 = 0.2 + p1/2,  p3 = 0.3
    #   p1 = 0.1 + (0.6 + p1)/4  =>  3/4 p1 = 1/4  =>  p1 = 1/3,  p0 = 0.4 + 1/6 = 17/30,  p2 = 0.2 + 1/6 = 11/30
    # The maximum with s: (0.8, 1/3, 0.4, 0.6): only the node below its neighbours rises, and the isolated one stays.
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    seeds = torch.tensor([0.8, 0.2, 0.4, 0.6], dtype=torch.float64)
    weight = torch.ones(4, dtype=torch.float64)
    found = graph_cohesive_smoothing(seeds, edge_index, weight, 0.5, 60)
    torch.testing.assert_close(found, torch.tensor([0.8, 1 / 3, 0.4, 0.6], dtype=torch.float64))
    # One step from p = s: p1 = 0.1 + (0.8 + 0.4)/4 = 0.4; the others stay below s.
    one_step = graph_cohesive_smoothing(seeds, edge_index, weight, 0.5, 1)
    torch.testing.assert_close(one_step, torch.tensor([0.8, 0.4, 0.4, 0.6], dtype=torch.float64))


@pytest.mark.parametrize("restart_prob", RESTARTS)
def test_against_naive_loop_of_algorithm_1(restart_prob: float, random_graphs: MakeGraphs) -> None:
    for seed in range(3):
        graphs = random_graphs(seed)
        expected = torch.tensor(algorithm_1(graphs, restart_prob, 1e-9), dtype=torch.float64)
        torch.testing.assert_close(GCS(restart_prob=restart_prob).score(graphs), expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize("restart_prob", RESTARTS)
@pytest.mark.parametrize("seed", range(5))
def test_number_of_steps_bounds_the_distance_to_the_exact_solve(
    seed: int, restart_prob: float, random_graphs: MakeGraphs
) -> None:
    for tolerance in (1e-2, 1e-6):
        for edges_per_node in (0.0, 0.7, 4.0):
            graphs = random_graphs(seed, edges_per_node=edges_per_node)
            steps = num_smoothing_steps(restart_prob, tolerance)
            found = graph_cohesive_smoothing(graphs.x[:, 0], graphs.edge_index, graphs.edge_attr, restart_prob, steps)
            distance = (found - exact(graphs, restart_prob)).abs().max()
            assert distance <= tolerance * graphs.x.max() + 1e-14


def test_result_never_falls_and_isolated_nodes_stay(random_graphs: MakeGraphs) -> None:
    graphs = random_graphs(0, edges_per_node=0.7)
    found, seeds = GCS().score(graphs), graphs.x[:, 0]
    assert (found >= seeds).all()
    assert (found > seeds).any()
    isolated = torch.bincount(graphs.edge_index[1], minlength=graphs.num_nodes) == 0
    assert isolated.any()
    assert torch.equal(found[isolated], seeds[isolated])
    none = torch.zeros(2, 0, dtype=torch.int64)
    for size in (0, 1):
        assert torch.equal(graph_cohesive_smoothing(seeds[:size], none, torch.zeros(0)), seeds[:size])
