"""Conceptual edges of a bounded number."""

import itertools
import math
import random
from collections import Counter

import pytest
import torch

from graphrerank.data.enrichment import shared_entities
from graphrerank.data.enrichment.shared_entities import shared_entity_edges
from graphrerank.graphs import EntityIncidence


def naive(rows: list[set[str]], max_neighbours: int) -> dict[tuple[int, int], float]:
    num_nodes, held = len(rows), Counter(name for row in rows for name in row)
    total: dict[tuple[int, int], float] = {}
    for i, j in itertools.combinations(range(num_nodes), 2):
        if both := sorted(name for name in rows[i] & rows[j]):
            total[i, j] = sum(math.log(1 + num_nodes / held[name]) for name in both)
    chosen = set()
    for node in range(num_nodes):
        near = sorted((-round(s, 9), sum(pair) - node, pair) for pair, s in total.items() if node in pair)
        chosen |= {pair for _, _, pair in near[:max_neighbours]}
    return {pair: total[pair] / (total[pair] + math.log(1 + num_nodes / 2)) for pair in sorted(chosen)}


@pytest.mark.parametrize("max_neighbours", [1, 2, 50])
def test_against_naive_loop(max_neighbours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_entities, "BLOCK_NODES", 7)
    draw = random.Random(0)
    rows = [{f"e{int(draw.expovariate(0.2))}" for _ in range(draw.randrange(4))} for _ in range(40)]
    expected = naive(rows, max_neighbours)
    edges, weight = shared_entity_edges(EntityIncidence.from_names(rows, max_share=1), max_neighbours=max_neighbours)
    assert [tuple(pair) for pair in edges.tolist()] == list(expected)
    torch.testing.assert_close(weight, torch.tensor(list(expected.values())))


@pytest.mark.parametrize("rows", [[], [[]], [["a"], ["b"]]])
def test_nothing_shared(rows: list[list[str]]) -> None:
    edges, weight = shared_entity_edges(EntityIncidence.from_names(rows))
    assert edges.shape == (0, 2)
    assert weight.shape == (0,)


def test_two_passages_with_one_entity_weigh_a_half() -> None:
    edges, weight = shared_entity_edges(EntityIncidence.from_names([["a"], ["a"]]))
    assert (edges.tolist(), weight.tolist()) == ([[0, 1]], [0.5])


def test_number_of_neighbours_is_checked() -> None:
    with pytest.raises(ValueError, match="`max_neighbours` must be a positive integer"):
        shared_entity_edges(EntityIncidence.from_names([["a"]]), max_neighbours=0)
