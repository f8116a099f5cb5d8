import math
from collections import Counter

import networkx as nx
import pytest
import torch
from scipy import stats

from graphrerank_papers.ket.degrees import count_degrees, fit_power_law


@pytest.mark.parametrize("seed", range(3))
def test_against_networkx(seed: int) -> None:
    graph = nx.barabasi_albert_graph(300, 1, seed=seed)
    found = count_degrees(torch.tensor(list(graph.edges)), 300)
    histogram = nx.degree_histogram(graph)
    assert found["counts"] == {degree: count for degree, count in enumerate(histogram) if count}
    assert (found["chunks"], found["greatest"]) == (300, len(histogram) - 1)
    assert found["mean"] == pytest.approx(2 * 299 / 300)
    most = sorted(dict(graph.degree).values(), reverse=True)[:3]
    assert found["central_share"] == pytest.approx(sum(most) / (2 * 299))


def test_no_edges_and_no_chunks() -> None:
    lonely = count_degrees(torch.zeros(0, 2, dtype=torch.int64), 2)
    assert (lonely["counts"], lonely["mean"], lonely["central_share"]) == ({0: 2}, 0.0, 0.0)
    assert math.isnan(count_degrees(torch.zeros(0, 2, dtype=torch.int64), 0)["mean"])


def test_against_scipy_draws() -> None:
    """Draws of both distributions: the exponent comes back, and the right one fits better."""
    law = Counter((stats.zipf.rvs(2.5, size=40_000, random_state=0)).tolist())
    exponent, gain = fit_power_law(law)
    assert exponent == pytest.approx(2.5, abs=0.05)
    assert gain > 1000
    geometric = Counter(
        (1 + stats.geom.rvs(0.4, size=4_000, random_state=0)).tolist()
    )  # from 2 on, as nearest chunks have
    exponent, gain = fit_power_law(geometric)
    assert gain < -100
    degrees = [degree for degree, count in geometric.items() for _ in range(count)]
    powers = stats.zipfian(exponent, 10**7).logpmf(degrees) - math.log(stats.zipfian(exponent, 10**7).sf(1))
    likeliest = stats.geom(1 / (sum(degrees) / len(degrees) - 1)).logpmf([degree - 1 for degree in degrees])
    assert gain == pytest.approx(float(powers.sum() - likeliest.sum()), rel=1e-3)


def test_equal_degrees_have_no_power_law() -> None:
    assert all(math.isnan(number) for counts in ({}, {3: 10}) for number in fit_power_law(counts))
