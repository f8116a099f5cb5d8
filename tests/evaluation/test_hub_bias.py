import math

import pytest
import torch
from scipy import stats

from graphrerank.evaluation.hub_bias import hub_bias, mean_spearman
from graphrerank.graphs import CorpusGraph, Ranking


def star(num_leaves: int = 19) -> CorpusGraph:
    """Node 0 is joined with all others; 1 and 2 with each other."""
    edges = [[0, leaf] for leaf in range(1, num_leaves + 1)] + [[1, 2]]
    return CorpusGraph.from_edges(
        [f"n{i}" for i in range(num_leaves + 1)], [""] * (num_leaves + 1), torch.tensor(edges)
    )


def test_against_scipy() -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randint(0, 5, (20, 12), generator=generator).double()
    b = torch.randint(0, 5, (20, 12), generator=generator).double()
    a[3], b[3] = math.nan, math.nan
    a[4, 6:], b[4, 6:] = math.nan, math.nan
    a[5] = 1.0
    expected = [
        stats.spearmanr(*(row[~row.isnan()] for row in pair)).statistic
        for place, pair in enumerate(zip(a, b, strict=True))
        if place not in (3, 5)
    ]
    assert mean_spearman(a, b) == pytest.approx(sum(expected) / len(expected))
    assert math.isnan(mean_spearman(a[5:6], b[5:6]))


def test_a_system_that_ranks_by_degree() -> None:
    graph = star()
    nodes = torch.tensor([[0, 1, 2, 3], [0, 2, 5, -1]])
    ranking = Ranking(nodes, graph.degree[nodes.clamp(min=0)].float().masked_fill(nodes < 0, -math.inf))
    found = hub_bias(graph, ranking, torch.tensor([[3, -1], [5, 6]]), system="degree")
    assert found is not None
    assert found.correlation == pytest.approx(1.0)
    assert found.hub_degree == 2  # the top tenth of 20 nodes: the centre, and the two of the next degree
    assert found.lift == pytest.approx((5 / 7) / (3 / 20))
    assert found.relevant_lift == 0.0
    assert found.relevant_correlation < 0


def test_no_hub_where_all_degrees_are_equal() -> None:
    ring = CorpusGraph.from_edges(list("abc"), [""] * 3, torch.tensor([[0, 1], [1, 2], [2, 0]]))
    ranking = Ranking(torch.tensor([[0, 1]]), torch.tensor([[2.0, 1.0]]))
    assert hub_bias(ring, ranking, torch.tensor([[0]]), system="x") is None
    assert hub_bias(ring.without_edges(), ranking, torch.tensor([[0]]), system="x") is None
