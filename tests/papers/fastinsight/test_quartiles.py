import itertools
import json

import numpy as np
import pytest
import torch

from graphrerank_papers.fastinsight.quartiles import draw_quartiles, quartiles_table, topological_quartiles


def by_hand(start: list[float], scores: list[float]) -> list[float]:
    """Average scores in the groups between numpy's quartiles, in a loop."""
    bounds = [-np.inf, *np.quantile(start, [0.25, 0.5, 0.75]), np.inf]
    means = []
    for low, high in itertools.pairwise(bounds):
        inside = [score for near, score in zip(start, scores, strict=True) if low < near <= high]
        means.append(sum(inside) / len(inside) if inside else np.nan)
    return means


@pytest.mark.parametrize("seed", range(5))
def test_against_naive_loop(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    start, scores = drawn.integers(0, 5, 40) / 4, drawn.random(40)  # many questions of one Topological Recall
    found = topological_quartiles(torch.tensor(start), {"re2": torch.tensor(scores)})
    assert sum(found.sizes) == 40
    assert found.means["re2"] == pytest.approx(by_hand(start.tolist(), scores.tolist()), nan_ok=True)
    for size, (low, high), (below, above) in zip(found.sizes, found.ranges, found.intervals["re2"], strict=True):
        assert not size or (low <= high and below <= above)


def test_groups_in_order_and_an_empty_one() -> None:
    # half of the questions begin with all that is relevant: the median and the third quartile are 1
    start = torch.tensor([0.0, 0.5, 0.8, 1.0, 1.0, 1.0, 1.0, 1.0])
    found = topological_quartiles(start, {"a": start, "b": 1 - start})
    assert (found.sizes, found.ranges[:2]) == ([2, 6, 0, 0], [(0.0, 0.5), (pytest.approx(0.8), 1.0)])
    header, _, first, _ = quartiles_table(found).splitlines()
    assert header.split("|")[2:5] == [" Q1: TR 0 to 50, 2 questions ", " Q2: TR 80 to 100, 6 questions ", " Q3: none "]
    assert first.startswith("| a | 25.0 (0.0 to 50.0) | ")
    assert first.endswith("| - | - |")
    content = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert content["pipelines"]["a"]["mean"][2:] == [None, None]


def test_plot(tmp_path) -> None:
    start = torch.tensor([0.0, 0.5, 0.8, 1.0, 1.0])
    draw_quartiles(tmp_path / "q.png", topological_quartiles(start, {"a": start, "b": start}), title="ring")
    assert (tmp_path / "q.png").read_bytes().startswith(b"\x89PNG")
