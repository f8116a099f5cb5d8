import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from graphrerank.losses import smooth_perfect_recall
from graphrerank.metrics import perfect_recall

Batch = tuple[Tensor, Tensor, Tensor]


def naive_query(scores: list[float], gains: list[float], *, top_k: int, temperature: float) -> float:
    relevant = [s for s, g in zip(scores, gains, strict=True) if g > 0]
    irrelevant = sorted((s for s, g in zip(scores, gains, strict=True) if g == 0), reverse=True)
    position = max(top_k - len(relevant), 0)  # how many irrelevant candidates the top K has room for
    if position >= len(irrelevant):
        return 0.0
    margins = [s - irrelevant[position] for s in relevant]
    softmin = -temperature * math.log(sum(math.exp(-m / temperature) for m in margins))
    return math.log(1 + math.exp(-softmin / temperature))


@pytest.mark.parametrize("temperature", [0.3, 1.0])
@pytest.mark.parametrize("top_k", [1, 2, 3, 5, 9, 50])
@pytest.mark.parametrize("seed", range(5))
def test_against_naive_loop(seed: int, top_k: int, temperature: float, ragged_batch: Callable[[int], Batch]) -> None:
    scores, relevance, mask = ragged_batch(seed)
    losses = [
        naive_query(s[m].tolist(), y[m].tolist(), top_k=top_k, temperature=temperature)
        for s, y, m in zip(scores, relevance, mask, strict=True)
        if (y[m] > 0).any()
    ]
    actual = smooth_perfect_recall(scores, relevance, mask, top_k=top_k, temperature=temperature)
    assert actual.item() == pytest.approx(sum(losses) / len(losses))


@pytest.mark.parametrize(
    ("relevance", "top_k", "temperature", "expected"),
    [
        # Scores 4 3 2 1 0. One relevant: the rival is the K-th of the others.
        ([1, 0, 0, 0, 0], 1, 1.0, math.log(1 + math.exp(-1))),  # 4 against 3
        ([1, 0, 0, 0, 0], 2, 1.0, math.log(1 + math.exp(-2))),  # 4 against 2: two may pass it
        ([0, 0, 1, 0, 0], 2, 1.0, math.log(1 + math.exp(1))),  # 2 against 3
        ([0, 0, 1, 0, 0], 2, 0.5, math.log(1 + math.exp(2))),
        # Two relevant, K = 2: no room for an irrelevant one; 4 and 2 against 3.
        ([1, 0, 1, 0, 0], 2, 1.0, math.log(1 + math.exp(-1) + math.exp(1))),
        # K = 3: room for one; 4 and 2 against 1.
        ([1, 0, 1, 0, 0], 3, 1.0, math.log(1 + math.exp(-3) + math.exp(-1))),
        # Three relevant, K = 2: as many as fit; against the best irrelevant, 4.
        ([0, 1, 1, 1, 0], 2, 1.0, math.log(1 + math.exp(1) + math.exp(2) + math.exp(3))),
        # Nothing can be pushed out.
        ([0, 0, 0, 0, 1], 5, 1.0, 0.0),
        ([1, 1, 1, 1, 1], 2, 1.0, 0.0),
    ],
)
def test_worked_by_hand(relevance: list[int], top_k: int, temperature: float, expected: float) -> None:
    actual = smooth_perfect_recall(
        torch.tensor([[4.0, 3.0, 2.0, 1.0, 0.0]]),
        torch.tensor([relevance]),
        torch.ones(1, 5, dtype=torch.bool),
        top_k=top_k,
        temperature=temperature,
    )
    assert actual.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("top_k", [1, 2, 3, 4, 5])
def test_against_perfect_recall_on_every_ranking_of_five(top_k: int) -> None:
    # As the temperature falls, the loss of a query tends to 0 where PR@K = 1 and grows without bound where PR@K = 0.
    rankings = torch.tensor([y for y in product([0, 1], repeat=5) if 0 < sum(y) <= top_k])  # gains in rank order
    expected = perfect_recall(rankings, rankings, top_k=top_k)
    scores = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0]])
    for relevance, pr in zip(rankings, expected, strict=True):
        loss = smooth_perfect_recall(
            scores, relevance[None], torch.ones(1, 5, dtype=torch.bool), top_k=top_k, temperature=0.02
        )
        assert (loss < 1e-6) == (pr == 1)
        assert loss / math.log(2) >= 1 - pr


def test_zero_loss_for_short_list_beside_a_long_one() -> None:
    # Row 0 has two candidates for K = 2, row 1 has three: only row 1 has a rival, and both count in the mean.
    scores = torch.tensor([[0.0, 1.0, 9.0], [0.0, 1.0, 2.0]]).requires_grad_()
    mask = torch.tensor([[True, True, False], [True, True, True]])
    loss = smooth_perfect_recall(scores, torch.tensor([[1, 0, 0], [1, 0, 0]]), mask, top_k=2)
    assert loss.item() == pytest.approx(math.log(1 + math.e) / 2)
    (gradient,) = torch.autograd.grad(loss, scores)
    assert torch.equal(gradient[0], torch.zeros(3))
    assert gradient[1].tolist() == pytest.approx([-0.5 / (1 + math.exp(-1)), 0.5 / (1 + math.exp(-1)), 0.0])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_never_pushes_a_relevant_candidate_down(seed: int, top_k: int, ragged_batch: Callable[[int], Batch]) -> None:
    scores, relevance, mask = ragged_batch(seed)
    scores.requires_grad_()
    (gradient,) = torch.autograd.grad(smooth_perfect_recall(scores, relevance, mask, top_k=top_k), scores)
    assert gradient.any()
    assert (gradient[relevance > 0] <= 0).all()
    assert (gradient[relevance == 0] >= 0).all()


@pytest.mark.parametrize("start", [[1.0, 0.0, 0.0, -1.0], [0.0, 0.0, 0.0, 0.0]])
def test_level_relevant_candidates_climb_together(start: list[float]) -> None:
    # With "the K-th best of the others" as rival, candidates 1 and 2 would be each other's rival: no gradient at all.
    scores = torch.tensor([start])
    relevance, mask = torch.tensor([[0, 1, 1, 0]]), torch.ones(1, 4, dtype=torch.bool)
    for _ in range(20):
        scores.requires_grad_()
        (gradient,) = torch.autograd.grad(smooth_perfect_recall(scores, relevance, mask, top_k=2), scores)
        scores = (scores - 0.5 * gradient).detach()
    assert scores[0, 1:3].min() > scores[0, [0, 3]].max() + 1
