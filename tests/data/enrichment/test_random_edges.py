"""Random edges: the oracle is the list of all pairs that are not joined."""

from collections import Counter
from itertools import combinations

import pytest
import torch

from graphrerank.data.enrichment.random_edges import random_edges

JOINED = [(3, 0), (0, 3), (1, 2), (4, 4)]
FREE = set(combinations(range(6), 2)) - {(0, 3), (1, 2)}


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
