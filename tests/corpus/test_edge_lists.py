import random

import pytest
import torch

from graphrerank.corpus.edge_lists import adjacency_edges


@pytest.mark.parametrize("seed", range(3))
def test_against_naive_double_loop(seed: int) -> None:
    draw = random.Random(seed)
    places = [(doc, chunk) for doc in "abc" for chunk in draw.sample(range(12), 8)]
    draw.shuffle(places)
    expected = sorted(
        [i, j]
        for i, (doc, chunk) in enumerate(places)
        for j, (other, following) in enumerate(places)
        if doc == other and following - chunk == 1
    )
    docs, chunks = zip(*places, strict=True)
    assert adjacency_edges(docs, chunks).tolist() == expected


def test_no_chunks_and_errors() -> None:
    edges = adjacency_edges([], [])
    assert (edges.shape, edges.dtype) == ((0, 2), torch.int64)
    with pytest.raises(ValueError, match="got 2 and 1"):
        adjacency_edges(["a", "b"], [0])
    with pytest.raises(ValueError, match="got 3 twice in 'a'"):
        adjacency_edges(["a", "a"], [3, 3])
