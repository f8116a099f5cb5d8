import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphrerank.losses import ranknet

Batch = tuple[Tensor, Tensor, Tensor]


@pytest.mark.parametrize("sigma", [0.5, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_against_naive_loop(seed: int, sigma: float, ragged_batch: Callable[[int], Batch]) -> None:
    scores, relevance, mask = ragged_batch(seed)
    losses = []
    for s, y, m in zip(scores, relevance, mask, strict=True):
        candidates = list(zip(s[m].tolist(), y[m].tolist(), strict=True))
        pairs = [
            math.log(1 + math.exp(-sigma * (better - worse)))
            for better, gain in candidates
            for worse, other_gain in candidates
            if gain > other_gain
        ]
        if any(gain > 0 for _, gain in candidates):
            losses.append(sum(pairs) / len(pairs) if pairs else 0.0)
    assert ranknet(scores, relevance, mask, sigma=sigma).item() == pytest.approx(sum(losses) / len(losses))


def test_worked_by_hand() -> None:
    # Row 0, gains 2 > 1 > 0: differences log 3, log 3 and 2 log 3, so log 4/3, log 4/3, log 10/9.
    # Row 1, one pair the wrong way round by log 3: log 4. Row 2, no pair: 0.
    scores = torch.tensor([[2 * math.log(3), math.log(3), 0.0], [0.0, math.log(3), 5.0], [1.0, 2.0, 3.0]])
    relevance = torch.tensor([[2, 1, 0], [1, 0, 0], [1, 1, 1]])
    mask = torch.tensor([[True, True, True], [True, True, False], [True, True, True]])
    first = (2 * math.log(4 / 3) + math.log(10 / 9)) / 3
    assert ranknet(scores, relevance, mask).item() == pytest.approx((first + math.log(4) + 0) / 3, rel=1e-5)
