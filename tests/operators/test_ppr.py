from collections.abc import Callable

import networkx as nx
import pytest
import torch
from torch import Tensor

from graphrerank.graphs import CandidateGraphs
from graphrerank.operators.gcs import num_smoothing_steps
from graphrerank.operators.ppr import PPR, personalized_pagerank

MakeGraphs = Callable[..., CandidateGraphs]
RESTARTS = [0.15, 0.5, 0.8]


def ours(graphs: CandidateGraphs, restart_prob: float, seeds: Tensor | None = None) -> Tensor:
    return personalized_pagerank(
        graphs.x[:, 0] if seeds is None else seeds,
        graphs.edge_index,
        graphs.edge_attr,
        graphs.ptr,
        restart_prob=restart_prob,
        num_steps=num_smoothing_steps(restart_prob, 1e-13),
    )


@pytest.mark.parametrize("restart_prob", RESTARTS)
@pytest.mark.parametrize("seed", range(4))
def test_against_networkx(seed: int, restart_prob: float, random_graphs: MakeGraphs) -> None:
    graphs = random_graphs(seed, sizes=(14,))
    peer = nx.DiGraph()
    peer.add_nodes_from(range(14))
    for (source, target), weight in zip(graphs.edge_index.T.tolist(), graphs.edge_attr.tolist(), strict=True):
        peer.add_edge(source, target, weight=weight)
    assert any(degree == 0 for _, degree in peer.out_degree())  # dangling nodes are put to the test
    seeds = dict(enumerate(graphs.x[:, 0].tolist()))
    expected = nx.pagerank(peer, alpha=1 - restart_prob, personalization=seeds, tol=1e-14, max_iter=1000)
    torch.testing.assert_close(
        ours(graphs, restart_prob), torch.tensor([expected[i] for i in range(14)], dtype=torch.float64)
    )


def test_four_nodes_worked_by_hand() -> None:
    # A path 0 - 1 - 2 and an isolated node 3; seeds (3, 0, 0, 1), so r = (3/4, 0, 0, 1/4); c = 0.5. Columns of P sum
    # to 1: P10 = 1, P01 = P21 = 1/2, P12 = 1; node 3 dangles, its mass goes back to r.
    #   p0 = 3/8 + p1/4 + 3/8 p3,  p1 = p0/2 + p2/2,  p2 = p1/4,  p3 = 1/8 + p3/8
    #   p3 = 1/7;  p1 = p0/2 + p1/8  =>  p1 = 4/7 p0;  p0 = 3/8 + p0/7 + 3/56  =>  6/7 p0 = 3/7  =>  p0 = 1/2
    #   p1 = 2/7,  p2 = 1/14;  the sum is 1/2 + 2/7 + 1/14 + 1/7 = 1
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    graphs = CandidateGraphs(
        torch.tensor([[3.0], [0.0], [0.0], [1.0]], dtype=torch.float64),
        edge_index,
        torch.ones(4, dtype=torch.float64),
        torch.tensor([0, 4]),
    )
    torch.testing.assert_close(ours(graphs, 0.5), torch.tensor([1 / 2, 2 / 7, 1 / 14, 1 / 7], dtype=torch.float64))


def test_number_of_steps_bounds_the_distance(random_graphs: MakeGraphs) -> None:
    for restart_prob in RESTARTS:
        graphs = random_graphs(7, sizes=(20,))
        found = PPR(restart_prob=restart_prob).score(graphs)
        assert (found - ours(graphs, restart_prob)).abs().sum() <= 2e-6


def test_seeds_that_are_all_zero_seed_evenly(random_graphs: MakeGraphs) -> None:
    graphs = random_graphs(2)
    nothing, even = torch.zeros(graphs.num_nodes).double(), torch.ones(graphs.num_nodes).double()
    torch.testing.assert_close(ours(graphs, 0.5, nothing), ours(graphs, 0.5, even))
    assert ours(graphs, 0.5, nothing).isfinite().all()


def test_batch_equals_single_graphs(random_graphs: MakeGraphs) -> None:
    graphs = random_graphs(3)
    together = ours(graphs, 0.4)
    for start, stop in zip(graphs.ptr[:-1].tolist(), graphs.ptr[1:].tolist(), strict=True):
        inside = (graphs.edge_index[1] >= start) & (graphs.edge_index[1] < stop)
        alone = CandidateGraphs(
            graphs.x[start:stop],
            graphs.edge_index[:, inside] - start,
            graphs.edge_attr[inside],
            torch.tensor([0, stop - start]),
        )
        torch.testing.assert_close(ours(alone, 0.4), together[start:stop])


def test_relabelling_nodes_permutes_scores(random_graphs: MakeGraphs) -> None:
    graphs = random_graphs(4, sizes=(15,))
    order = torch.randperm(15, generator=torch.Generator().manual_seed(0))
    moved = CandidateGraphs(graphs.x[order], torch.argsort(order)[graphs.edge_index], graphs.edge_attr, graphs.ptr)
    torch.testing.assert_close(ours(moved, 0.3), ours(graphs, 0.3)[order])


def test_graphs_without_edges_or_nodes_keep_their_seeds() -> None:
    graphs = CandidateGraphs(
        torch.tensor([[3.0], [1.0], [2.0]]),
        torch.zeros(2, 0, dtype=torch.int64),
        torch.zeros(0),
        torch.tensor([0, 2, 2, 3]),
    )
    torch.testing.assert_close(ours(graphs, 0.5), torch.tensor([0.75, 0.25, 1.0]))


def test_negative_base_scores_seed_nothing(random_graphs: MakeGraphs) -> None:
    graphs = random_graphs(5, sizes=(10,))
    shifted = CandidateGraphs(graphs.x - 0.5, graphs.edge_index, graphs.edge_attr, graphs.ptr)
    expected = ours(graphs, 0.5, (graphs.x[:, 0] - 0.5).clamp(min=0))
    torch.testing.assert_close(PPR().score(shifted), expected, atol=2e-6, rtol=0)


def test_negative_seed_is_refused(random_graphs: MakeGraphs) -> None:
    with pytest.raises(ValueError, match=r"`seed` must not be negative, got -0\.5"):
        ours(random_graphs(0, sizes=(3,)), 0.5, torch.tensor([0.1, -0.5, 0.2]))


@pytest.mark.parametrize("restart_prob", [0.0, -0.1, 1.1, float("nan")])
def test_restart_prob_out_of_range_is_refused(restart_prob: float) -> None:
    with pytest.raises(ValueError, match=r"`restart_prob` must lie in \(0, 1\], got"):
        PPR(restart_prob=restart_prob)
