import math

import pytest
import torch

from graphrerank.metrics import capped_recall, ndcg, perfect_recall, recall, reciprocal_rank


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
def test_mrr_worked_by_hand(ranked_relevance: list[int], qrels: list[int], top_k: int | None, expected: float) -> None:
    actual = reciprocal_rank(torch.tensor([ranked_relevance]), torch.tensor([qrels]), top_k=top_k)
    assert actual.tolist() == pytest.approx([expected])
    assert actual.dtype == torch.float64


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
def test_recall_worked_by_hand(
    ranked_relevance: list[int], qrels: list[int], top_k: int, expected: float, expected_capped: float
) -> None:
    arguments = torch.tensor([ranked_relevance]), torch.tensor([qrels])
    assert recall(*arguments, top_k=top_k).tolist() == pytest.approx([expected])
    assert capped_recall(*arguments, top_k=top_k).tolist() == pytest.approx([expected_capped])
    assert recall(*arguments, top_k=top_k).dtype == torch.float64
    assert capped_recall(*arguments, top_k=top_k).dtype == torch.float64


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
def test_perfect_recall_worked_by_hand(
    ranked_relevance: list[int], qrels: list[int], top_k: int, expected: int
) -> None:
    actual = perfect_recall(torch.tensor([ranked_relevance]), torch.tensor([qrels]), top_k=top_k)
    assert actual.tolist() == [expected]
    assert actual.dtype == torch.float64
