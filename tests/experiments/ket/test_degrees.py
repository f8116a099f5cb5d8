import math

import networkx as nx
import pytest
import torch

from graphrerank.experiments.ket.degrees import count_degrees, degrees_table, draw_degrees


@pytest.mark.parametrize("seed", range(3))
def test_against_networkx(seed: int) -> None:
    graph = nx.barabasi_albert_graph(300, 1, seed=seed)
    found = count_degrees(torch.tensor(list(graph.edges)), 300, chunk_tokens=150)
    histogram = nx.degree_histogram(graph)
    assert found.counts == {degree: count for degree, count in enumerate(histogram) if count}
    assert found.mean == pytest.approx(2 * 299 / 300)
    most = sorted(dict(graph.degree).values(), reverse=True)[:3]
    assert found.central_share == pytest.approx(sum(most) / (2 * 299))


def test_table_and_plot(tmp_path) -> None:
    star = count_degrees(torch.tensor([[0, 1], [0, 2], [0, 3]]), 5, chunk_tokens=1200)
    assert "| 1,200 | 5 | 1.20 | 3 | 50.0% |" in degrees_table([star])
    draw_degrees(tmp_path / "d.png", [star, star])
    assert (tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")


def test_no_edges_and_no_chunks() -> None:
    lonely = count_degrees(torch.zeros(0, 2, dtype=torch.int64), 2, chunk_tokens=150)
    assert (lonely.counts, lonely.mean, lonely.central_share) == ({0: 2}, 0.0, 0.0)
    assert math.isnan(count_degrees(torch.zeros(0, 2, dtype=torch.int64), 0, chunk_tokens=150).mean)
