import pytest
import torch

from graphrerank.metrics import reciprocal_rank


@pytest.mark.parametrize(
    ("ranked_relevance", "qrels", "top_k", "expected"),
    [
        ([0, 0, 2, 1], [2, 1], None, 1 / 3),
        ([0, 0, 2, 1], [2, 1], 3, 1 / 3),
        ([0, 0, 2, 1], [2, 1], 2, 0),
        ([1, 0, 0, 0], [1], 1, 1),
        ([0, 0, 0, 0], [1], None, 0),
        ([], [1], None, 0),
    ],
)
def test_worked_by_hand(ranked_relevance: list[int], qrels: list[int], top_k: int | None, expected: float) -> None:
    actual = reciprocal_rank(torch.tensor([ranked_relevance]), torch.tensor([qrels]), top_k=top_k)
    assert actual.tolist() == pytest.approx([expected])
    assert actual.dtype == torch.float64
