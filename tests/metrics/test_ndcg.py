import math

import pytest
import torch

from graphrerank.metrics import ndcg


@pytest.mark.parametrize(
    ("ranked_relevance", "qrels", "top_k", "expected"),
    [
        ([0, 1], [1], 2, 1 / math.log2(3)),
        ([0, 1], [1], 1, 0),
        ([3, 2, 1], [1, 2, 3], 3, 1),
        # linear gain: (1 + 3 / log2(3)) / (3 + 1 / log2(3))
        ([1, 3], [3, 1], 2, (1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3))),
        # the relevant document that was not retrieved is in the ideal ranking
        ([1, 0, 0], [0, 2, 1], 3, 1 / (2 + 1 / math.log2(3))),
        # the ideal ranking too is cut at K
        ([1, 1, 0], [1, 1, 1, 1], 2, 1),
        ([], [1], 1, 0),
    ],
)
def test_worked_by_hand(ranked_relevance: list[int], qrels: list[int], top_k: int, expected: float) -> None:
    actual = ndcg(torch.tensor([ranked_relevance]), torch.tensor([qrels]), top_k=top_k)
    assert actual.tolist() == pytest.approx([expected])
    assert actual.dtype == torch.float64
