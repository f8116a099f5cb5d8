"""Arguments of a training that do not fit are refused in one line, before anything is computed."""

from collections.abc import Callable
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn

from graphrerank import FitSettings
from graphrerank.core import CandidateGraphs, ModelInputs
from graphrerank.losses import listwise_softmax_cross_entropy
from graphrerank.training import RerankerModule
from graphrerank.training.checks import (
    check_data,
    check_first_batch,
    check_logger,
    check_model,
    check_trainer_arguments,
)


class Linear(nn.Module):
    """Linear combination of the features, whose output and dropout can be changed."""

    inputs = ModelInputs(("base_features",))

    def __init__(self, num_scores: int = 2, output: Callable[[Tensor], Any] = lambda scores: scores[:, 0]) -> None:
        super().__init__()
        self.linear, self.dropout, self.output = nn.Linear(num_scores, 1), nn.Dropout(0.5), output

    def forward(self, base_features: Tensor) -> Any:
        return self.output(self.linear(self.dropout(base_features)))


def batch() -> CandidateGraphs:
    edges = torch.tensor([[0, 1], [1, 0]])
    relevance = torch.tensor([1.0, 0.0, 0.0])
    return CandidateGraphs(torch.rand(3, 2), edges, torch.ones(2), ptr=torch.tensor([0, 3]), relevance=relevance)


def check(model: nn.Module, loss: Any = listwise_softmax_cross_entropy) -> None:
    check_first_batch(RerankerModule(model, loss), batch(), ["base_score", "bm25_score"])


@pytest.mark.parametrize("data", ["attack", {"a": "attack"}])
def test_data_by_name_pass(data: Any) -> None:
    check_data(data)


@pytest.mark.parametrize(("data", "got"), [(None, "None"), ([], "list"), ((1, 2), "tuple")])
def test_what_is_no_data_is_refused(data: Any, got: str) -> None:
    with pytest.raises(ValueError, match=f"`data` must be a Dataset, .* got {got}"):
        check_data(data)


def test_a_model_without_inputs_is_refused() -> None:
    check_model(Linear())
    with pytest.raises(ValueError, match=r"`model` must have an attribute `inputs` .* got Linear without it"):
        check_model(nn.Linear(1, 1))


def test_loggers_are_objects(tmp_path: Any) -> None:
    for logger in (None, CSVLogger(tmp_path), [CSVLogger(tmp_path)], False):
        check_logger(logger)
    with pytest.raises(ValueError, match=r"`logger` must be a Lightning logger .* got 'wandb'"):
        check_logger("wandb")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_epochs": "abc"}, "`trainer.max_epochs`: .* valid integer, got 'abc'"),
        ({"max_epoch": 3}, "`trainer.max_epoch` is not an argument of lightning.Trainer, did you mean max_epochs?"),
        ({"zzz": 3}, "`trainer.zzz` is not an argument of lightning.Trainer. It has accelerator, "),
    ],
)
def test_wrong_arguments_of_the_trainer_are_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_trainer_arguments(arguments)


def test_the_arguments_of_lightnings_trainer_pass() -> None:
    arguments = {
        "max_epochs": 3,
        "precision": "bf16-mixed",
        "devices": 2,
        "accelerator": "cpu",
        "limit_val_batches": 0.5,
    }
    check_trainer_arguments({**arguments, "gradient_clip_val": 1.0, "strategy": "ddp", "_target_": "lightning.Trainer"})
    L.Trainer(max_epochs=3, precision="bf16-mixed", accelerator="cpu", logger=False)


def test_a_model_and_a_loss_that_fit_change_nothing() -> None:
    module = RerankerModule(Linear(), listwise_softmax_cross_entropy)
    state = torch.random.get_rng_state()
    check_first_batch(module, batch(), ["base_score", "bm25_score"])
    assert module.training
    assert module.model.linear.weight.grad is None
    torch.random.set_rng_state(state)
    expected = batch().x
    torch.random.set_rng_state(state)
    graphs = batch()
    check_first_batch(module, graphs, ["base_score", "bm25_score"])
    torch.random.set_rng_state(state)
    assert torch.equal(batch().x, expected)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Linear(1), r"Linear failed on the first batch: .* `base_features` has 2 columns: base_score, bm25_score"),
        (Linear(output=lambda scores: scores), r"shape \[3\], got \[3, 1\]. Remove the last dimension with squeeze"),
        (Linear(output=lambda scores: scores.mean()), r"one score per candidate, shape \[3\], got \[\]"),
        (Linear(output=lambda scores: None), r"one score per candidate, shape \[3\], got NoneType"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(model: nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(model)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (nn.CrossEntropyLoss(), "`loss` must be a function of .* but it failed on the first batch"),
        (lambda scores, relevance, mask: scores, r"that returns a scalar, got shape \[1, 3\]"),
    ],
)
def test_a_loss_that_does_not_fit_is_refused(loss: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(Linear(), loss)


def test_no_epochs_are_refused() -> None:
    assert FitSettings(max_epochs=-1).max_epochs == -1  # Lightning's sign for no limit
    with pytest.raises(ValueError, match="`max_epochs` must be a positive integer, got 0"):
        FitSettings(max_epochs=0)
