import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphrerank.losses import lambda_loss
from graphrerank.metrics import ndcg

Batch = tuple[Tensor, Tensor, Tensor]


def naive_query(scores: list[float], gains: list[float], *, sigma: float, mu: float, top_k: int | None) -> float:
    cutoff = len(scores) if top_k is None else top_k
    rank = {i: r for r, i in enumerate(sorted(range(len(scores)), key=lambda i: -scores[i]), start=1)}
    max_dcg = sum(g / math.log2(1 + r) for r, g in enumerate(sorted(gains, reverse=True)[:cutoff], start=1))
    total = 0.0
    for i, gain in enumerate(gains):
        for j, other in enumerate(gains):
            if gain <= other or min(rank[i], rank[j]) > cutoff:
                continue
            discount_i, discount_j = (1 / math.log2(1 + rank[x]) if rank[x] <= cutoff else 0.0 for x in (i, j))
            distance = abs(rank[i] - rank[j])
            delta = 1 / math.log2(1 + distance) - 1 / math.log2(2 + distance)
            weight = (abs(discount_i - discount_j) + mu * delta) * (gain - other) / max_dcg
            total += weight * math.log2(1 + math.exp(-sigma * (scores[i] - scores[j])))
    return total


@pytest.mark.parametrize(("sigma", "mu"), [(1.0, 10.0), (0.5, 0.0), (2.0, 1.0)])
@pytest.mark.parametrize("top_k", [None, 1, 3, 50])
@pytest.mark.parametrize("seed", range(5))
def test_against_naive_loop(
    seed: int, top_k: int | None, sigma: float, mu: float, ragged_batch: Callable[[int], Batch]
) -> None:
    scores, relevance, mask = ragged_batch(seed)
    losses = [
        naive_query(s[m].tolist(), y[m].tolist(), sigma=sigma, mu=mu, top_k=top_k)
        for s, y, m in zip(scores, relevance, mask, strict=True)
        if (y[m] > 0).any()
    ]
    actual = lambda_loss(scores, relevance, mask, sigma=sigma, mu=mu, top_k=top_k)
    assert actual.item() == pytest.approx(sum(losses) / len(losses))


def test_worked_by_hand() -> None:
    # Ranks: candidate 0 is 3rd, 1 is 1st, 2 is 2nd; the relevant one is 0, and maxDCG = 1.
    # 1/D of ranks 1, 2, 3: 1, 0.63093, 0.5. Pair (0, 1): rho 0.5, distance 2, delta 0.63093 - 0.5 = 0.13093, s -2.
    # Pair (0, 2): rho 0.13093, distance 1, delta 1 - 0.63093 = 0.36907, s -1.
    scores = torch.tensor([[0.0, 2.0, 1.0]])
    expected = (0.5 + 10 * 0.13093) * math.log2(1 + math.exp(2)) + (0.13093 + 10 * 0.36907) * math.log2(1 + math.e)
    actual = lambda_loss(scores, torch.tensor([[1, 0, 0]]), torch.ones(1, 3, dtype=torch.bool))
    assert actual.item() == pytest.approx(expected, rel=1e-4)


def test_lambdarank_weight_is_the_ndcg_lost_by_a_swap() -> None:
    # One pair, level scores, mu = 0: the loss is rho * |G_i - G_j| * log2(2), that is, what the swap does to nDCG@K.
    for top_k in (1, 2):
        scores, relevance = torch.tensor([[1e-6, 0.0]], dtype=torch.float64), torch.tensor([[2, 1]])
        actual = lambda_loss(scores, relevance, torch.ones(1, 2, dtype=torch.bool), mu=0.0, top_k=top_k)
        lost = ndcg(relevance, relevance, top_k=top_k) - ndcg(relevance.flip(1), relevance, top_k=top_k)
        assert actual.item() == pytest.approx(lost.item(), rel=1e-5)


def test_top_k_ignores_order_far_below() -> None:
    scores = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0]]).requires_grad_()
    relevance, mask = torch.tensor([[1, 0, 0, 0, 1]]), torch.ones(1, 5, dtype=torch.bool)
    (gradient,) = torch.autograd.grad(lambda_loss(scores, relevance, mask, top_k=2), scores)
    # Candidate 4 (rank 5) is compared with candidate 1 (rank 2), but not with 2 and 3 (ranks 3 and 4).
    without_1 = torch.tensor([[True, False, True, True, True]])
    only_4_relevant = torch.tensor([[0, 0, 0, 0, 1]])
    assert gradient[0, 4] < 0
    assert gradient[0, 1] > 0
    # Take away the relevant candidate on top: all pairs of 4 with 2, 3 lie below rank 1.
    below = lambda_loss(scores, only_4_relevant, without_1, top_k=1)
    (gradient,) = torch.autograd.grad(below, scores)
    assert gradient[0, 2] == 0
    assert gradient[0, 3] == 0
    assert gradient[0, 0] > 0
