"""Weighted sums of losses by name, by import path and by object."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from graphrerank.losses import kl_divergence, lambda_loss, listwise_softmax_cross_entropy, margin_mse, ranknet
from graphrerank.training.weighted_loss import WeightedLoss, reads_teacher

SCORES = torch.tensor([[0.3, -1.0, 2.0], [1.0, 0.5, 0.0]])
RELEVANCE = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
MASK = torch.tensor([[True, True, True], [True, True, True]])
TEACHER = torch.tensor([[4.0, 1.0, 0.0], [0.0, torch.nan, 1.0]])


class LearnedTemperature(nn.Module):
    """Listwise loss with a temperature that is trained with the model."""

    def __init__(self, start: float = 1.0) -> None:
        super().__init__()
        self.log_temperature = nn.Parameter(torch.tensor(math.log(start)))

    def forward(self, scores: Tensor, relevance: Tensor, mask: Tensor) -> Tensor:
        return listwise_softmax_cross_entropy(scores / self.log_temperature.exp(), relevance, mask)


def top_score(scores: Tensor, relevance: Tensor, mask: Tensor, *, factor: float = 1.0) -> Tensor:
    return -factor * scores[relevance > 0].mean()


def test_names_settings_paths_and_objects_are_summed_by_weight() -> None:
    module = LearnedTemperature(2.0)
    ranks = partial(ranknet, sigma=2.0)
    loss = WeightedLoss(
        {
            "lambdaloss": 1.0,
            "kl": {"weight": 0.5, "temperature": 2.0},
            f"{__name__}.top_score": {"weight": 0.3, "factor": 2.0},
            f"{__name__}.LearnedTemperature": 0.2,
            "mine": {"_target_": f"{__name__}.top_score", "_partial_": True, "weight": 0.1},
            margin_mse: 0.05,
            ranks: 2,
            module: 0.7,
        }
    )
    judged = (SCORES, RELEVANCE, MASK)
    expected = (
        lambda_loss(*judged)
        + 0.5 * kl_divergence(*judged, TEACHER, temperature=2.0)
        + 0.6 * top_score(*judged)
        + 0.2 * listwise_softmax_cross_entropy(*judged)
        + 0.1 * top_score(*judged)
        + 0.05 * margin_mse(*judged, TEACHER)
        + 2 * ranknet(*judged, sigma=2.0)
        + 0.7 * module(*judged)
    )
    torch.testing.assert_close(loss(*judged, teacher_scores=TEACHER), expected)
    assert [term.name for term in loss.terms[4:]] == ["mine", "margin_mse", "ranknet", "LearnedTemperature"]
    assert module.log_temperature in set(loss.parameters())
    assert len(list(loss.parameters())) == 2


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (ranknet, False),
        (kl_divergence, True),
        (partial(margin_mse, pairs="judged"), True),
        (LearnedTemperature(), False),
        (WeightedLoss({"listwise": 1}), False),
        (WeightedLoss({"listwise": 1, "margin_mse": 0.1}), True),
        (max, False),
    ],
)
def test_a_loss_reads_the_teacher_if_it_has_the_argument(loss, expected: bool) -> None:
    assert reads_teacher(loss) == expected


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        ({}, r"`losses` must map losses to weights, such as \{listwise: 1, kl: 0.5\}, got \{\}"),
        (["listwise"], r"`losses` must map losses to weights, .*, got \['listwise'\]"),
        ({"listwise": 0.0}, "`weight of listwise` must be a finite number above 0, got 0.0"),
        ({"listwise": "much"}, "`weight of listwise` must be a finite number above 0, got 'much'"),
        ({"listwize": 1.0}, "listwise"),
        ({"listwise": {"weight": 1.0, "temprature": 2.0}}, "temprature"),
        ({"no.such_loss": 1.0}, "`losses` must name an existing function or class, got 'no.such_loss'"),
        ({ranknet: {"sigma": 2.0}}, r"settings of the loss ranknet require its name, got an object and \['sigma'\]"),
        ({3: 1.0}, "`losses` must contain names, functions and modules, got 3"),
    ],
)
def test_refuses(losses, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WeightedLoss(losses)
