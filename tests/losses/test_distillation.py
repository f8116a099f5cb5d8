"""Distillation losses against naive loops, and laws of both."""

import math
from collections.abc import Callable
from functools import partial
from itertools import combinations

import pytest
import torch
from torch import Tensor

from graphrerank.losses import kl_divergence, margin_mse

Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
LOSSES: dict[str, Loss] = {
    "kl": kl_divergence,
    "kl@3": partial(kl_divergence, temperature=3.0),
    "margin_mse": margin_mse,
    "margin_mse judged": partial(margin_mse, pairs="judged"),
}
every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
every_seed = pytest.mark.parametrize("seed", range(4))


def taught_batch(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Make a float64 batch with padding anywhere, unscored candidates, and rows with 0 and 1 scored candidates."""
    generator = torch.Generator().manual_seed(seed)
    shape = (6, 8)
    scores = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    teacher_scores = 5 * torch.randn(shape, generator=generator, dtype=torch.float64)
    relevance = (torch.rand(shape, generator=generator) > 0.6).double()
    mask = torch.rand(shape, generator=generator) > 0.2
    teacher_scores[torch.rand(shape, generator=generator) > 0.8] = torch.nan
    teacher_scores[0] = torch.nan
    teacher_scores[1, 1:] = torch.nan
    relevance[2] = 0
    return scores, relevance, mask, teacher_scores


def naive_kl(scores: list[float], _gains: list[float], teacher: list[float], *, temperature: float = 1.0) -> float:
    ours = [math.exp(score / temperature) for score in scores]
    theirs = [math.exp(score / temperature) for score in teacher]
    shares = [(q / sum(ours), p / sum(theirs)) for q, p in zip(ours, theirs, strict=True)]
    return temperature**2 * sum(p * math.log(p / q) for q, p in shares)


def naive_margin_mse(scores: list[float], _gains: list[float], teacher: list[float]) -> float:
    errors = [
        ((scores[i] - scores[j]) - (teacher[i] - teacher[j])) ** 2 for i, j in combinations(range(len(scores)), 2)
    ]
    return sum(errors) / len(errors)


def naive_judged_margin_mse(scores: list[float], gains: list[float], teacher: list[float]) -> float | None:
    """Return the loss of Hofstätter et al. (2020) over all pairs of a relevant and an irrelevant passage."""
    errors = [
        ((scores[i] - scores[j]) - (teacher[i] - teacher[j])) ** 2
        for i in range(len(scores))
        for j in range(len(scores))
        if gains[i] > 0 and gains[j] == 0
    ]
    return sum(errors) / len(errors) if errors else None


NAIVE: dict[str, Callable[..., float | None]] = {
    "kl": naive_kl,
    "kl@3": partial(naive_kl, temperature=3.0),
    "margin_mse": naive_margin_mse,
    "margin_mse judged": naive_judged_margin_mse,
}


@every_seed
@pytest.mark.parametrize("name", LOSSES)
def test_against_naive_loop(name: str, seed: int) -> None:
    scores, relevance, mask, teacher_scores = taught_batch(seed)
    expected = []
    for row in range(len(scores)):
        scored = mask[row] & ~teacher_scores[row].isnan()
        if scored.sum() > 1:
            columns = (scores[row][scored], relevance[row][scored], teacher_scores[row][scored])
            one = NAIVE[name](*(column.tolist() for column in columns))
            expected += [] if one is None else [one]
    loss = LOSSES[name](scores, relevance, mask, teacher_scores)
    assert float(loss) == pytest.approx(sum(expected) / len(expected))


@every_seed
def test_kl_against_torch(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores, teacher_scores = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64)
    loss = kl_divergence(scores, torch.zeros(3, 5), torch.ones(3, 5, dtype=torch.bool), teacher_scores)
    expected = torch.nn.functional.kl_div(
        scores.log_softmax(1), teacher_scores.log_softmax(1), log_target=True, reduction="batchmean"
    )
    torch.testing.assert_close(loss, expected)


@every_loss
@every_seed
def test_the_scores_of_the_teacher_are_the_minimum(loss: Loss, seed: int) -> None:
    _, relevance, mask, teacher_scores = taught_batch(seed)
    scores = (teacher_scores.nan_to_num() + 3.0).requires_grad_()  # a constant changes nothing
    value = loss(scores, relevance, mask, teacher_scores)
    value.backward()
    assert float(value.detach()) == pytest.approx(0.0, abs=1e-9)
    assert scores.grad is not None
    assert scores.grad.abs().max() < 1e-9


@every_loss
@every_seed
def test_padding_and_unscored_candidates_have_no_gradient(loss: Loss, seed: int) -> None:
    scores, relevance, mask, teacher_scores = taught_batch(seed)
    ignored = ~mask | teacher_scores.isnan()
    ours = torch.where(~mask, torch.nan, scores).requires_grad_()
    value = loss(ours, relevance, mask, torch.where(~mask, torch.inf, teacher_scores))
    value.backward()
    assert float(value.detach()) == pytest.approx(float(loss(scores, relevance, mask, teacher_scores)))
    assert ours.grad is not None
    assert torch.equal(ours.grad[ignored], torch.zeros(int(ignored.sum()), dtype=torch.float64))
    assert ours.grad[~ignored].abs().sum() > 0


@every_loss
def test_a_batch_without_teacher_scores_has_a_loss_of_zero(loss: Loss) -> None:
    scores, relevance, mask, _ = taught_batch(0)
    scores.requires_grad_()
    value = loss(scores, relevance, mask, torch.full_like(scores, torch.nan).detach())
    value.backward()
    assert float(value.detach()) == 0
    assert scores.grad is not None
    assert float(scores.grad.abs().sum()) == 0


def test_the_gradient_of_kl_keeps_its_size_at_a_high_temperature() -> None:
    teacher_scores = torch.tensor([[3.0, 0.0, -1.0]], dtype=torch.float64)
    sizes = []
    for temperature in (50.0, 100.0):
        scores = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
        mask = torch.ones(1, 3, dtype=torch.bool)
        kl_divergence(scores, mask.double(), mask, teacher_scores, temperature=temperature).backward()
        assert scores.grad is not None
        sizes.append(float(scores.grad.norm()))
    assert sizes[0] == pytest.approx(sizes[1], rel=0.05)


@every_loss
def test_refuses_teacher_scores_of_another_shape(loss: Loss) -> None:
    scores, relevance, mask, teacher_scores = taught_batch(0)
    with pytest.raises(ValueError, match=r"`teacher_scores` must have the shape of `mask`, \[6, 8\], got \[6, 7\]"):
        loss(scores, relevance, mask, teacher_scores[:, 1:])


def test_refuses_unknown_pairs() -> None:
    with pytest.raises(ValueError, match=r"`pairs` must be one of \['all', 'judged'\], got 'some'"):
        margin_mse(*taught_batch(0), pairs="some")
