"""Losses against naive loops, and what holds for every loss."""

import math
from collections.abc import Callable
from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor

from graphrerank.losses import ranking
from graphrerank.metrics import perfect_recall

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]

LOSSES: dict[str, Loss] = {
    "binary_cross_entropy": ranking.binary_cross_entropy,
    "lambda_loss": ranking.lambda_loss,
    "lambda_loss@2": partial(ranking.lambda_loss, top_k=2),
    "listwise": partial(ranking.listwise_softmax_cross_entropy, temperature=0.7),
    "ranknet": ranking.ranknet,
    "smooth_perfect_recall@1": partial(ranking.smooth_perfect_recall, top_k=1),
    "smooth_perfect_recall@3": partial(ranking.smooth_perfect_recall, top_k=3, temperature=0.5),
    "smooth_perfect_recall@99": partial(ranking.smooth_perfect_recall, top_k=99),
}
every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
every_seed = pytest.mark.parametrize("seed", range(5))


def ragged_batch(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Make a float64 batch with distinct scores, lists of 1 to 9 candidates and gains of 0 to 2; row 0 has no gain."""
    generator = torch.Generator().manual_seed(seed)
    num_queries, width = 6, 9
    scores = 2 * torch.randn(num_queries, width, generator=generator, dtype=torch.float64)
    relevance = (torch.rand(num_queries, width, generator=generator) * 4 - 2).ceil().clamp(min=0).double()
    relevance[0] = 0
    lengths = torch.randint(1, width + 1, (num_queries, 1), generator=generator)
    lengths[1] = width
    order = torch.rand(num_queries, width, generator=generator).argsort(dim=1)
    return scores, relevance, order < lengths  # padding lies anywhere, not only at the end


def naive_bce(scores: list[float], gains: list[float]) -> float:
    p = [1 / (1 + math.exp(-score)) for score in scores]
    return sum(-math.log(q if gain > 0 else 1 - q) for q, gain in zip(p, gains, strict=True)) / len(p)


def naive_listwise(scores: list[float], gains: list[float], *, temperature: float = 1.0) -> float:
    exps = [math.exp(score / temperature) for score in scores]
    return -sum(g / sum(gains) * math.log(e / sum(exps)) for g, e in zip(gains, exps, strict=True))


def naive_ranknet(scores: list[float], gains: list[float], *, sigma: float = 1.0) -> float:
    candidates = list(zip(scores, gains, strict=True))
    pairs = [
        math.log(1 + math.exp(-sigma * (better - worse)))
        for better, gain in candidates
        for worse, other_gain in candidates
        if gain > other_gain
    ]
    return sum(pairs) / len(pairs) if pairs else 0.0


def naive_lambda(
    scores: list[float], gains: list[float], *, sigma: float = 1.0, mu: float = 10.0, top_k: int | None = None
) -> float:
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


def naive_perfect(scores: list[float], gains: list[float], *, top_k: int, temperature: float) -> float:
    relevant = [s for s, g in zip(scores, gains, strict=True) if g > 0]
    irrelevant = sorted((s for s, g in zip(scores, gains, strict=True) if g == 0), reverse=True)
    position = max(top_k - len(relevant), 0)  # how many irrelevant candidates the top K has room for
    if position >= len(irrelevant):
        return 0.0
    margins = [s - irrelevant[position] for s in relevant]
    softmin = -temperature * math.log(sum(math.exp(-m / temperature) for m in margins))
    return math.log(1 + math.exp(-softmin / temperature))


NAIVE = [
    (ranking.binary_cross_entropy, naive_bce, {}),
    *((ranking.listwise_softmax_cross_entropy, naive_listwise, {"temperature": t}) for t in (0.5, 1.0, 3.0)),
    *((ranking.ranknet, naive_ranknet, {"sigma": sigma}) for sigma in (0.5, 2.0)),
    *(
        (ranking.lambda_loss, naive_lambda, {"sigma": sigma, "mu": mu, "top_k": top_k})
        for (sigma, mu), top_k in product([(1.0, 10.0), (0.5, 0.0), (2.0, 1.0)], [None, 1, 3, 50])
    ),
    *(
        (ranking.smooth_perfect_recall, naive_perfect, {"top_k": top_k, "temperature": t})
        for top_k, t in product([1, 2, 3, 5, 9, 50], [0.3, 1.0])
    ),
]


@every_seed
@pytest.mark.parametrize(("loss", "naive", "settings"), NAIVE)
def test_against_naive_loop(loss: Loss, naive: Callable[..., float], settings: dict[str, float], seed: int) -> None:
    scores, relevance, mask = ragged_batch(seed)
    losses = [
        naive(s[m].tolist(), y[m].tolist(), **settings)
        for s, y, m in zip(scores, relevance, mask, strict=True)
        if (y[m] > 0).any()
    ]
    assert loss(scores, relevance, mask, **settings).item() == pytest.approx(sum(losses) / len(losses))


@pytest.mark.parametrize("top_k", [1, 2, 3, 4, 5])
def test_against_perfect_recall_on_every_ranking_of_five(top_k: int) -> None:
    # As the temperature falls, the loss of a query tends to 0 where PR@K = 1 and grows without bound where PR@K = 0.
    rankings = torch.tensor([y for y in product([0, 1], repeat=5) if 0 < sum(y) <= top_k])  # gains in rank order
    expected = perfect_recall(rankings, rankings, top_k=top_k)
    scores = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0]])
    for relevance, pr in zip(rankings, expected, strict=True):
        loss = ranking.smooth_perfect_recall(
            scores, relevance[None], torch.ones(1, 5, dtype=torch.bool), top_k=top_k, temperature=0.02
        )
        assert (loss < 1e-6) == (pr == 1)
        assert loss / math.log(2) >= 1 - pr


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_never_pushes_a_relevant_candidate_down(seed: int, top_k: int) -> None:
    scores, relevance, mask = ragged_batch(seed)
    scores.requires_grad_()
    (gradient,) = torch.autograd.grad(ranking.smooth_perfect_recall(scores, relevance, mask, top_k=top_k), scores)
    assert gradient.any()
    assert (gradient[relevance > 0] <= 0).all()
    assert (gradient[relevance == 0] >= 0).all()
    # With "the K-th best of the others" as rival, level candidates would be each other's rival: no gradient at all.
    relevance, mask, scores = torch.tensor([[0, 1, 1, 0]]), torch.ones(1, 4).bool(), torch.zeros(1, 4).requires_grad_()
    (gradient,) = torch.autograd.grad(ranking.smooth_perfect_recall(scores, relevance, mask, top_k=2), scores)
    assert gradient[0, 1:3].max() < 0 <= gradient[0, [0, 3]].min()


def loss_and_gradient(loss: Loss, scores: Tensor, relevance: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    scores = scores.clone().requires_grad_()
    total = loss(scores, relevance, mask)
    (gradient,) = torch.autograd.grad(total, scores)
    return total.detach(), gradient


@every_seed
@pytest.mark.parametrize("garbage", [0.0, 1e30, torch.nan, torch.inf, -torch.inf])
@every_loss
def test_padding_has_no_effect(loss: Loss, garbage: float, seed: int) -> None:
    scores, relevance, mask = ragged_batch(seed)
    expected, expected_gradient = loss_and_gradient(loss, scores, relevance, mask)
    actual, gradient = loss_and_gradient(
        loss, scores.masked_fill(~mask, garbage), relevance.masked_fill(~mask, garbage), mask
    )
    assert torch.equal(actual, expected)
    assert torch.equal(gradient, expected_gradient)
    assert torch.equal(gradient[~mask], torch.zeros_like(gradient[~mask]))
    assert gradient.isfinite().all()


@every_seed
@every_loss
def test_permuting_candidates_permutes_the_gradient(loss: Loss, seed: int) -> None:
    scores, relevance, mask = ragged_batch(seed)
    order = torch.randperm(scores.shape[1], generator=torch.Generator().manual_seed(seed))
    expected, expected_gradient = loss_and_gradient(loss, scores, relevance, mask)
    actual, gradient = loss_and_gradient(loss, scores[:, order], relevance[:, order], mask[:, order])
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(gradient, expected_gradient[:, order])


@every_seed
@every_loss
def test_only_bce_sees_a_constant_added_to_all_scores(loss: Loss, seed: int) -> None:
    scores, relevance, mask = ragged_batch(seed)
    expected, shifted = loss(scores, relevance, mask), loss(scores + 3.0, relevance, mask)
    if loss is ranking.binary_cross_entropy:
        assert (shifted - expected).abs() > 0.1
    else:
        torch.testing.assert_close(shifted, expected)


@every_seed
@every_loss
def test_gradient_against_finite_differences(loss: Loss, seed: int) -> None:
    scores, relevance, mask = ragged_batch(seed)
    assert torch.autograd.gradcheck(lambda s: loss(s, relevance, mask), scores.requires_grad_())


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@every_loss
def test_no_relevant_candidate_gives_zero_that_backpropagates(loss: Loss) -> None:
    relevance = torch.tensor([[0.0, 0.0, 5.0], [0.0, 5.0, 5.0], [5.0, 5.0, 5.0]])  # gains only in the padding
    mask = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])
    with torch.autograd.detect_anomaly():  # no NaN on the way either
        total, gradient = loss_and_gradient(loss, torch.randn(3, 3), relevance, mask)
    assert total == 0
    assert torch.equal(gradient, torch.zeros(3, 3))


@every_loss
def test_empty_batches_give_zero_and_extreme_scores_stay_finite(loss: Loss) -> None:
    for shape in [(0, 3), (2, 0), (0, 0)]:
        total, gradient = loss_and_gradient(loss, torch.zeros(shape), torch.zeros(shape), torch.ones(shape).bool())
        assert (total, gradient.shape) == (0, shape)
    scores = torch.tensor([[-1e4, 1e4, 0.0, 1.0, 2.0], [1e4, -1e4, 0.0, 1.0, 2.0]])
    relevance = torch.tensor([[1.0, 0, 0, 0, 0]] * 2)
    total, gradient = loss_and_gradient(loss, scores, relevance, torch.ones(2, 5, dtype=torch.bool))
    assert total.isfinite()
    assert gradient.isfinite().all()


@every_loss
def test_half_precision_is_summed_in_float32_and_relevance_of_any_dtype(loss: Loss) -> None:
    scores, relevance, mask = ragged_batch(0)
    for dtype in (torch.int64, torch.float32, torch.bool):
        binary = (relevance > 0).to(dtype)
        torch.testing.assert_close(loss(scores, binary, mask), loss(scores, binary.double(), mask))
    half = scores.to(torch.bfloat16)
    total, gradient = loss_and_gradient(loss, half, relevance, mask)
    torch.testing.assert_close(total, loss(half.float(), relevance, mask))
    assert total.dtype == torch.float32
    assert gradient.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("scores", "relevance", "mask", "match"),
    [
        (torch.zeros(3), torch.zeros(3), torch.ones(3).bool(), r"`scores` must be .* got torch.float32 of shape \[3\]"),
        (torch.zeros(1, 3), torch.zeros(1, 2), torch.ones(1, 3).bool(), r"`relevance` .*\[1, 3\].* got \[1, 2\]"),
        (torch.zeros(1, 3), torch.zeros(1, 3), torch.ones(1, 3), r"`mask` must be boolean .* got torch.float32"),
    ],
)
@every_loss
def test_misfit_tensors_are_refused(loss: Loss, scores: Tensor, relevance: Tensor, mask: Tensor, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        loss(scores, relevance, mask)


@pytest.mark.parametrize(
    ("loss", "match"),
    [
        (partial(ranking.listwise_softmax_cross_entropy, temperature=0.0), "`temperature` must be .* above 0, got 0.0"),
        (partial(ranking.smooth_perfect_recall, temperature=torch.nan), "`temperature` must be .* above 0, got nan"),
        (partial(ranking.smooth_perfect_recall, top_k=0), "`top_k` must be a positive integer, got 0"),
        (partial(ranking.lambda_loss, top_k=-1), "`top_k` must be a positive integer, got -1"),
        (partial(ranking.lambda_loss, mu=-0.5), "`mu` must not be negative, got -0.5"),
        (partial(ranking.ranknet, sigma=torch.inf), "`sigma` must be .* above 0, got inf"),
    ],
)
def test_numbers_out_of_range_are_refused(loss: Loss, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        loss(torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool))


@every_seed
def test_divergence_from_the_retriever(seed: int) -> None:
    scores, relevance, mask = ragged_batch(seed)
    base = torch.randn(scores.shape, generator=torch.Generator().manual_seed(seed + 100), dtype=torch.float64)
    losses = []
    for s, b, y, m in zip(scores, base, relevance, mask, strict=True):
        if (y[m] > 0).any():
            standard = (b[m] - b[m].mean()) / (b[m].std(correction=0) if m.sum() > 1 else 1.0)
            p, q = torch.softmax(2 * standard, 0), torch.softmax(s[m], 0)
            losses.append(float((p * (p / q).log()).sum()))
    loss = ranking.divergence_from_retriever(scores, base, relevance, mask, sharpness=2.0)
    assert loss.item() == pytest.approx(sum(losses) / len(losses))
    assert torch.allclose(
        loss, ranking.divergence_from_retriever(scores + 3, 5 * base - 7, relevance, mask, sharpness=2.0)
    )
    equal = ranking.divergence_from_retriever(
        torch.zeros(1, 3), torch.ones(1, 3), torch.ones(1, 3), torch.ones(1, 3) > 0
    )
    assert equal == 0
