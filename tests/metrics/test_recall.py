import pytest
import torch

from graphrerank.metrics import capped_recall, recall


@pytest.mark.parametrize(
    ("ranked_relevance", "qrels", "top_k", "expected", "expected_capped"),
    [
        ([1, 0, 1, 0], [1, 1], 2, 1 / 2, 1 / 2),
        ([1, 0, 1, 0], [1, 1], 3, 1, 1),
        ([1, 0, 1, 0], [1, 1, 1, 1], 3, 2 / 4, 2 / 3),
        ([1, 1, 1, 0], [1, 1, 1], 2, 2 / 3, 1),
        ([2, 0, 1, 0], [0, 2, 0, 1, 3], 99, 2 / 3, 2 / 3),  # the gain does not matter, the padding neither
        ([0, 0, 0, 0], [1], 4, 0, 0),
        ([], [1], 1, 0, 0),
    ],
)
def test_worked_by_hand(
    ranked_relevance: list[int], qrels: list[int], top_k: int, expected: float, expected_capped: float
) -> None:
    arguments = torch.tensor([ranked_relevance]), torch.tensor([qrels])
    assert recall(*arguments, top_k=top_k).tolist() == pytest.approx([expected])
    assert capped_recall(*arguments, top_k=top_k).tolist() == pytest.approx([expected_capped])
    assert recall(*arguments, top_k=top_k).dtype == torch.float64
    assert capped_recall(*arguments, top_k=top_k).dtype == torch.float64
