import itertools
import math

import numpy as np
import pytest
import torch

from graphrerank_papers.fastinsight import gain_correlations, topological_quartiles

START = {"R@10": torch.tensor([0.0, 0.5, 0.5, 1.0]), "MissTR": torch.tensor([0.5, 0.25, 0.0, 0.0])}
END = {"R@20": torch.tensor([1.0, 1.0, 0.5, 1.0])}


def test_correlations_by_hand() -> None:
    # gains 1, .5, 0, 0 over recall 0, .5, .5, 1 and missed 0.5, 0.25, 0, 0
    found = gain_correlations(START, END, recall="R@20")
    gain = torch.tensor([1.0, 0.5, 0.0, 0.0])
    assert found["Recall"] == pytest.approx(float(torch.corrcoef(torch.stack([gain, START["R@10"]]))[0, 1]), abs=1e-6)
    assert found["MissTR"] == pytest.approx(1.0)
    nothing_gained = gain_correlations(START, {"R@20": START["R@10"]}, recall="R@20")
    assert all(math.isnan(number) for number in nothing_gained.values())  # a constant has no correlation


@pytest.mark.parametrize("seed", range(5))
def test_quartiles_against_naive_loop(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    start, scores = drawn.integers(0, 5, 40) / 4, drawn.random(40)  # many questions of one Topological Recall
    bounds = [-np.inf, *np.quantile(start, [0.25, 0.5, 0.75]), np.inf]
    groups = [(start > low) & (start <= high) for low, high in itertools.pairwise(bounds)]
    rows = topological_quartiles(torch.tensor(start), torch.tensor(scores))
    assert [row["questions"] for row in rows] == [int(inside.sum()) for inside in groups if inside.any()]
    assert [row["CR@10"] for row in rows] == pytest.approx([scores[inside].mean() for inside in groups if inside.any()])
    assert all(row["95% interval"][0] <= row["CR@10"] <= row["95% interval"][1] for row in rows)


def test_quartiles_in_order_without_the_empty_ones() -> None:
    # half of the questions begin with all that is relevant: the median and the third quartile are 1
    start = torch.tensor([0.0, 0.5, 0.8, 1.0, 1.0, 1.0, 1.0, 1.0])
    first, second = topological_quartiles(start, start)
    assert (first["quartile"], first["questions"], first["TR"]) == ("Q1", 2, [0.0, 0.5])
    assert (second["quartile"], second["questions"], second["TR"]) == ("Q2", 6, [pytest.approx(0.8), 1.0])
