import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphrerank.losses import listwise_softmax_cross_entropy

Batch = tuple[Tensor, Tensor, Tensor]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(5))
def test_against_naive_loop(seed: int, temperature: float, ragged_batch: Callable[[int], Batch]) -> None:
    scores, relevance, mask = ragged_batch(seed)
    losses = []
    for s, y, m in zip(scores, relevance, mask, strict=True):
        exps = [math.exp(v / temperature) for v in s[m].tolist()]
        gains = y[m].tolist()
        if sum(gains) > 0:
            losses.append(-sum(g / sum(gains) * math.log(e / sum(exps)) for g, e in zip(gains, exps, strict=True)))
    actual = listwise_softmax_cross_entropy(scores, relevance, mask, temperature=temperature)
    assert actual.item() == pytest.approx(sum(losses) / len(losses))


@pytest.mark.parametrize(
    ("scores", "relevance", "temperature", "expected"),
    [
        # softmax of (log 3, 0) = (3/4, 1/4)
        ([math.log(3), 0.0], [1, 0], 1.0, math.log(4 / 3)),
        ([math.log(3), 0.0], [0, 1], 1.0, math.log(4)),
        # target (3/4, 1/4)
        ([math.log(3), 0.0], [3, 1], 1.0, 0.75 * math.log(4 / 3) + 0.25 * math.log(4)),
        # at temperature 1/2: softmax of (log 9, 0) = (9/10, 1/10)
        ([math.log(3), 0.0], [1, 0], 0.5, math.log(10 / 9)),
        # all relevant and level: the entropy of the target
        ([1.0, 1.0, 1.0], [1, 1, 1], 1.0, math.log(3)),
    ],
)
def test_worked_by_hand(scores: list[float], relevance: list[int], temperature: float, expected: float) -> None:
    actual = listwise_softmax_cross_entropy(
        torch.tensor([scores]),
        torch.tensor([relevance]),
        torch.ones(1, len(scores), dtype=torch.bool),
        temperature=temperature,
    )
    assert actual.item() == pytest.approx(expected, rel=1e-5)


def test_against_torch_cross_entropy_with_one_relevant_candidate() -> None:
    scores = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    target = torch.arange(8) % 5
    actual = listwise_softmax_cross_entropy(
        scores, torch.nn.functional.one_hot(target, 5), torch.ones(8, 5, dtype=torch.bool)
    )
    torch.testing.assert_close(actual, torch.nn.functional.cross_entropy(scores, target))
