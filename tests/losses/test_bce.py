import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphrerank.losses import binary_cross_entropy

Batch = tuple[Tensor, Tensor, Tensor]


@pytest.mark.parametrize("seed", range(5))
def test_against_naive_loop(seed: int, ragged_batch: Callable[[int], Batch]) -> None:
    scores, relevance, mask = ragged_batch(seed)
    losses = []
    for s, y, m in zip(scores, relevance, mask, strict=True):
        terms = []
        for score, gain in zip(s[m].tolist(), y[m].tolist(), strict=True):
            probability = 1 / (1 + math.exp(-score))
            terms.append(-math.log(probability if gain > 0 else 1 - probability))
        if any(gain > 0 for gain in y[m].tolist()):
            losses.append(sum(terms) / len(terms))
    assert binary_cross_entropy(scores, relevance, mask).item() == pytest.approx(sum(losses) / len(losses))


def test_worked_by_hand() -> None:
    # sigmoid(log 3) = 3/4, sigmoid(0) = 1/2. Row 0: relevant 3/4, irrelevant 1/2, padding. Row 1: irrelevant at 3/4,
    # and relevant (gain 2) at 1/2 and 3/4. Row 2 has no relevant candidate.
    scores = torch.tensor([[math.log(3), 0.0, 7.0], [math.log(3), 0.0, math.log(3)], [9.0, 9.0, 9.0]])
    relevance = torch.tensor([[1, 0, 1], [0, 2, 1], [0, 0, 0]])
    mask = torch.tensor([[True, True, False], [True, True, True], [True, True, True]])
    first = (math.log(4 / 3) + math.log(2)) / 2
    second = (math.log(4) + math.log(2) + math.log(4 / 3)) / 3
    assert binary_cross_entropy(scores, relevance, mask).item() == pytest.approx((first + second) / 2, rel=1e-5)
