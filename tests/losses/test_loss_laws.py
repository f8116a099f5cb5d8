"""What holds for every loss, whatever it computes."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from graphrerank.losses import (
    binary_cross_entropy,
    lambda_loss,
    listwise_softmax_cross_entropy,
    ranknet,
    smooth_perfect_recall,
)

Batch = tuple[Tensor, Tensor, Tensor]
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]

LOSSES: dict[str, Loss] = {
    "binary_cross_entropy": binary_cross_entropy,
    "lambda_loss": lambda_loss,
    "lambda_loss@2": partial(lambda_loss, top_k=2),
    "listwise": partial(listwise_softmax_cross_entropy, temperature=0.7),
    "ranknet": ranknet,
    "smooth_perfect_recall@1": partial(smooth_perfect_recall, top_k=1),
    "smooth_perfect_recall@3": partial(smooth_perfect_recall, top_k=3, temperature=0.5),
    "smooth_perfect_recall@99": partial(smooth_perfect_recall, top_k=99),
}
SEEDS = range(5)
every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
every_seed = pytest.mark.parametrize("seed", SEEDS)


def loss_and_gradient(loss: Loss, scores: Tensor, relevance: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    scores = scores.clone().requires_grad_()
    total = loss(scores, relevance, mask)
    (gradient,) = torch.autograd.grad(total, scores)
    return total.detach(), gradient


@every_seed
@pytest.mark.parametrize("garbage", [0.0, 1e30, torch.nan, torch.inf, -torch.inf])
@every_loss
def test_padding_has_no_effect(loss: Loss, garbage: float, seed: int, ragged_batch: Callable[[int], Batch]) -> None:
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
def test_batch_equals_mean_of_single_queries_without_padding(
    loss: Loss, seed: int, ragged_batch: Callable[[int], Batch]
) -> None:
    scores, relevance, mask = ragged_batch(seed)
    singles = [
        loss(s[m][None], y[m][None], torch.ones(1, int(m.sum()), dtype=torch.bool))
        for s, y, m in zip(scores, relevance, mask, strict=True)
        if (y[m] > 0).any()
    ]
    assert 0 < len(singles) < len(scores)
    torch.testing.assert_close(loss(scores, relevance, mask), torch.stack(singles).mean())


@every_seed
@every_loss
def test_permuting_candidates_permutes_the_gradient(
    loss: Loss, seed: int, ragged_batch: Callable[[int], Batch]
) -> None:
    scores, relevance, mask = ragged_batch(seed)
    order = torch.randperm(scores.shape[1], generator=torch.Generator().manual_seed(seed))
    expected, expected_gradient = loss_and_gradient(loss, scores, relevance, mask)
    actual, gradient = loss_and_gradient(loss, scores[:, order], relevance[:, order], mask[:, order])
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(gradient, expected_gradient[:, order])


@every_seed
@every_loss
def test_only_bce_sees_a_constant_added_to_all_scores(
    loss: Loss, seed: int, ragged_batch: Callable[[int], Batch]
) -> None:
    scores, relevance, mask = ragged_batch(seed)
    expected, shifted = loss(scores, relevance, mask), loss(scores + 3.0, relevance, mask)
    if loss is binary_cross_entropy:
        assert (shifted - expected).abs() > 0.1
    else:
        torch.testing.assert_close(shifted, expected)


@every_seed
@every_loss
def test_gradient_against_finite_differences(loss: Loss, seed: int, ragged_batch: Callable[[int], Batch]) -> None:
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


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
@every_loss
def test_empty_batch_gives_zero_that_backpropagates(loss: Loss, shape: tuple[int, int]) -> None:
    total, gradient = loss_and_gradient(loss, torch.zeros(shape), torch.zeros(shape), torch.ones(shape).bool())
    assert total == 0
    assert gradient.shape == shape


@every_loss
def test_extreme_scores_stay_finite(loss: Loss) -> None:
    scores = torch.tensor([[-1e4, 1e4, 0.0, 1.0, 2.0], [1e4, -1e4, 0.0, 1.0, 2.0]])
    total, gradient = loss_and_gradient(
        loss, scores, torch.tensor([[1.0, 0, 0, 0, 0]] * 2), torch.ones(2, 5, dtype=torch.bool)
    )
    assert total.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool])
@every_loss
def test_relevance_of_any_dtype(loss: Loss, dtype: torch.dtype, ragged_batch: Callable[[int], Batch]) -> None:
    scores, relevance, mask = ragged_batch(0)
    binary = (relevance > 0).double()
    torch.testing.assert_close(loss(scores, binary.to(dtype), mask), loss(scores, binary, mask))


@every_loss
def test_half_precision_is_summed_in_float32(loss: Loss, ragged_batch: Callable[[int], Batch]) -> None:
    scores, relevance, mask = ragged_batch(0)
    half = scores.to(torch.bfloat16)
    total, gradient = loss_and_gradient(loss, half, relevance, mask)
    torch.testing.assert_close(total, loss(half.float(), relevance, mask))
    assert total.dtype == torch.float32
    assert gradient.dtype == torch.bfloat16


@every_loss
def test_gradient_step_lowers_the_loss(loss: Loss, ragged_batch: Callable[[int], Batch]) -> None:
    scores, relevance, mask = ragged_batch(1)
    before, gradient = loss_and_gradient(loss, scores, relevance, mask)
    after = loss(scores - 1e-3 * gradient, relevance, mask)
    assert after < before or not gradient.any()


@pytest.mark.parametrize(
    ("scores", "relevance", "mask", "match"),
    [
        (torch.zeros(3), torch.zeros(3), torch.ones(3).bool(), r"`scores` must have shape .* got \(3,\)"),
        (torch.zeros(1, 3).long(), torch.zeros(1, 3), torch.ones(1, 3).bool(), r"`scores` must be floating .*int64"),
        (torch.zeros(1, 3), torch.zeros(1, 2), torch.ones(1, 3).bool(), r"`relevance` .*\(1, 3\), got \(1, 2\)"),
        (torch.zeros(1, 3), torch.zeros(1, 3), torch.ones(2, 3).bool(), r"`mask` .*\(1, 3\), got \(2, 3\)"),
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
        (partial(listwise_softmax_cross_entropy, temperature=0.0), "`temperature` must be .* above 0, got 0.0"),
        (partial(smooth_perfect_recall, temperature=-1.0), "`temperature` must be .* above 0, got -1.0"),
        (partial(smooth_perfect_recall, temperature=torch.nan), "`temperature` must be .* above 0, got nan"),
        (partial(smooth_perfect_recall, top_k=0), "`top_k` must be a positive integer, got 0"),
        (partial(smooth_perfect_recall, top_k=True), "`top_k` must be a positive integer, got True"),
        (partial(lambda_loss, top_k=-1), "`top_k` must be a positive integer, got -1"),
        (partial(lambda_loss, sigma=0.0), "`sigma` must be .* above 0, got 0.0"),
        (partial(lambda_loss, mu=-0.5), "`mu` must be .* at least 0, got -0.5"),
        (partial(ranknet, sigma=torch.inf), "`sigma` must be .* above 0, got inf"),
    ],
)
def test_numbers_out_of_range_are_refused(loss: Loss, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        loss(torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool))
