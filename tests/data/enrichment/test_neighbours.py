import itertools
import math
import random
from collections import Counter

import pytest
import torch
import torch.nn.functional as F

from graphrerank.corpus import EntityIncidence
from graphrerank.data.enrichment import neighbours
from graphrerank.data.enrichment.neighbours import (
    choose_neighbours,
    nearest_neighbor_edges,
    random_edges,
    shared_weight,
)


@pytest.mark.parametrize("block", [1, 100, 1 << 24])
def test_nearest_against_naive_sort(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "BLOCK_SCORES", block)
    vectors = F.normalize(torch.randn(40, 5, generator=torch.Generator().manual_seed(0)), dim=1)
    scores = (vectors @ vectors.T).double()
    near = []
    for i in range(40):
        others = sorted((j for j in range(40) if j != i), key=lambda j, i=i: (-scores[i, j].item(), j))[:4]
        near.append({j for j in others if scores[i, j] > 0})
    expected = [[i, j] for i in range(40) for j in range(i + 1, 40) if j in near[i] or i in near[j]]
    edges, weight = nearest_neighbor_edges(vectors, k=4)
    assert edges.tolist() == expected
    torch.testing.assert_close(weight.double(), scores[edges[:, 0], edges[:, 1]], atol=1e-6, rtol=0)


def test_ties_go_by_number_and_negative_pairs_are_left_out() -> None:
    same = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    assert nearest_neighbor_edges(same, k=1)[0].tolist() == [[0, 1], [0, 2]]
    assert nearest_neighbor_edges(same, k=9)[0].tolist() == [[0, 1], [0, 2], [1, 2]]


@pytest.mark.parametrize("num_nodes", [0, 1])
def test_too_small_a_corpus(num_nodes: int) -> None:
    edges, weight = nearest_neighbor_edges(torch.ones(num_nodes, 3), k=2)
    assert (edges.shape, weight.shape) == ((0, 2), (0,))
    with pytest.raises(ValueError, match=r"finite \[N, d\] matrix"):
        nearest_neighbor_edges(torch.tensor([[float("nan")]]), k=1)


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
def test_shared_entities_against_naive_loop(max_neighbours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "BLOCK_NODES", 7)
    draw = random.Random(0)
    rows = [{f"e{int(draw.expovariate(0.2))}" for _ in range(draw.randrange(4))} for _ in range(40)]
    monkeypatch.setattr(neighbours, "MAX_NEIGHBOURS", max_neighbours)
    assert weighted_edges(rows) == pytest.approx(naive(rows, max_neighbours))


@pytest.mark.parametrize("rows", [[], [[]], [["a"], ["b"]]])
def test_nothing_shared(rows: list[list[str]]) -> None:
    pairs, total = choose_neighbours(EntityIncidence.from_names(rows))
    assert (pairs.shape, total.shape) == ((0, 2), (0,))


def test_two_passages_with_one_entity_weigh_a_half() -> None:
    assert weighted_edges([{"a"}, {"a"}]) == {(0, 1): 0.5}


JOINED = [(3, 0), (0, 3), (1, 2), (4, 4)]
FREE = set(itertools.combinations(range(6), 2)) - {(0, 3), (1, 2)}


def drawn(count: int, seed: int = 0) -> list[tuple[int, ...]]:
    pairs = random_edges(torch.tensor(JOINED), count, num_nodes=6, seed=seed)
    return list(map(tuple, pairs.tolist()))


@pytest.mark.parametrize("count", [0, 1, 5, 13, 99])
def test_pairs_are_free_and_different(count: int) -> None:
    found = drawn(count)
    assert len(set(found)) == len(found) == min(count, len(FREE))
    assert set(found) <= FREE
    assert drawn(count) == found


def test_every_free_pair_is_as_likely() -> None:
    counts = Counter(pair for seed in range(2600) for pair in drawn(2, seed))
    expected = 2 * 2600 / len(FREE)
    assert set(counts) == FREE
    # chi-squared with 12 degrees of freedom, p = 0.0001
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 39.1
