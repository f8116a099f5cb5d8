import random

import pytest
import torch

from graphrerank.graphs.edge_lists import adjacency_edges


@pytest.mark.parametrize("reach", [1, 2, 5])
def test_against_naive_double_loop(reach: int) -> None:
    draw = random.Random(reach)
    places = [(doc, chunk) for doc in "abc" for chunk in draw.sample(range(12), 8)]
    draw.shuffle(places)
    expected = sorted(
        [i, j]
        for i, (doc, chunk) in enumerate(places)
        for j, (other, following) in enumerate(places)
        if doc == other and 0 < following - chunk <= reach
    )
    docs, chunks = zip(*places, strict=True)
    assert adjacency_edges(docs, chunks, reach=reach).tolist() == expected


def test_nothing_to_join() -> None:
    edges = adjacency_edges([], [])
    assert (edges.shape, edges.dtype) == ((0, 2), torch.int64)


def test_errors() -> None:
    with pytest.raises(ValueError, match="got 2 and 1"):
        adjacency_edges(["a", "b"], [0])
    with pytest.raises(ValueError, match="`reach` must be a positive integer, got 0"):
        adjacency_edges([], [], reach=0)
    with pytest.raises(ValueError, match="got 3 twice in 'a'"):
        adjacency_edges(["a", "a"], [3, 3])
