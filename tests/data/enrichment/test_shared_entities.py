"""Conceptual edges of a bounded number."""

import itertools
import math
import random
from collections import Counter

import pytest

from graphrerank.data.enrichment import shared_entities
from graphrerank.data.enrichment.shared_entities import choose_neighbours, shared_weight
from graphrerank.graphs import EntityIncidence


def weighted_edges(rows: list[set[str]]) -> dict[tuple[int, ...], float]:
    pairs, total = choose_neighbours(EntityIncidence.from_names(rows, max_share=1))
    return {
        (min(pair), max(pair)): weight
        for pair, weight in zip(pairs.tolist(), shared_weight(total, len(rows)).tolist(), strict=True)
    }


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
    monkeypatch.setattr(shared_entities, "MAX_NEIGHBOURS", max_neighbours)
    assert weighted_edges(rows) == pytest.approx(naive(rows, max_neighbours))


@pytest.mark.parametrize("rows", [[], [[]], [["a"], ["b"]]])
def test_nothing_shared(rows: list[list[str]]) -> None:
    pairs, total = choose_neighbours(EntityIncidence.from_names(rows))
    assert (pairs.shape, total.shape) == ((0, 2), (0,))


def test_two_passages_with_one_entity_weigh_a_half() -> None:
    assert weighted_edges([{"a"}, {"a"}]) == {(0, 1): 0.5}
