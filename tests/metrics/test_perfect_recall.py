import pytest
import torch

from graphrerank.metrics import perfect_recall


@pytest.mark.parametrize(
    ("ranked_relevance", "qrels", "top_k", "expected"),
    [
        ([1, 0, 1, 0], [1, 1], 2, 0),
        ([1, 0, 1, 0], [1, 1], 3, 1),
        ([1, 0, 1, 0], [1, 1], 99, 1),
        ([1, 0, 3, 0], [0, 3, 0, 1], 3, 1),  # padding of qrels anywhere, graded gains
        ([1, 0, 1, 0], [1, 1, 1], 99, 0),  # one relevant document was never retrieved
        ([1, 1, 1, 0], [1, 1, 1], 2, 0),  # more relevant documents than places
        ([0, 0, 0, 0], [1], 4, 0),
        ([1, 0, 0, 0], [1], 1, 1),
        ([], [1], 1, 0),
    ],
)
def test_worked_by_hand(ranked_relevance: list[int], qrels: list[int], top_k: int, expected: int) -> None:
    actual = perfect_recall(torch.tensor([ranked_relevance]), torch.tensor([qrels]), top_k=top_k)
    assert actual.tolist() == [expected]
    assert actual.dtype == torch.float64
