import logging
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from sklearn.metrics import log_loss
from torch import Tensor

from graphrerank.metrics import area_under_roc
from graphrerank.training.learning_curves import LearningCurves
from graphrerank_papers.ea_graphrag.adapter_fit import (
    AdapterModule,
    AdapterSettings,
    fit_adapter,
    smoothed_cross_entropy,
)
from graphrerank_papers.ea_graphrag.adapter_rows import LabelledRows
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter

BUILD = partial(ComplexityAdapter, hidden_channels=[32, 32])
SETTINGS: dict[str, Any] = {"num_selected": 6, "max_epochs": 12, "learning_rate": 3e-3}


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)


def planted(num_rows: int, seed: int = 0, *, noise: float = 0.5) -> LabelledRows:
    """Ten raw features of very different sizes; two of them decide, one only through its absolute size."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows, 10, generator=generator)
    decides = 2 * x[:, 1] + 2 * (x[:, 6].abs() - 0.7) + noise * torch.randn(num_rows, generator=generator)
    scale, shift = torch.logspace(-3, 3, 10), torch.linspace(-50, 50, 10)
    return LabelledRows(x * scale + shift * scale, (decides > 0).long())


def test_a_planted_signal_is_learned() -> None:
    fitted = fit_adapter(BUILD, planted(240), planted(60, 1), AdapterSettings(**SETTINGS | {"max_epochs": 30}))
    held_out = planted(400, 2)
    with torch.inference_mode():
        scores = fitted.model(held_out.features)
    assert area_under_roc(scores, held_out.labels) > 0.93
    assert {1, 6} <= set(fitted.model.selected.tolist())
    assert not fitted.model.training
    assert len(fitted.model.selected) == 6


def test_same_rows_and_settings_give_the_same_weights() -> None:
    def weights(**arguments: Any) -> dict[str, Tensor]:
        torch.manual_seed(len(arguments) + int(torch.randint(1000, ())))  # what was drawn before must not matter
        settings = AdapterSettings(**SETTINGS | {"max_epochs": 3} | arguments)
        return dict(fit_adapter(BUILD, planted(60), planted(30, 1), settings).model.state_dict())

    first, second, other = weights(), weights(), weights(seed=1)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["lin_out.weight"], other["lin_out.weight"])


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    fit_adapter(BUILD, planted(40), planted(20, 1), AdapterSettings(**SETTINGS | {"max_epochs": 1}))
    assert torch.equal(before, torch.get_rng_state())


def test_features_and_z_scores_are_of_the_training_rows_alone() -> None:
    train, settings = planted(60), AdapterSettings(**SETTINGS | {"max_epochs": 1})
    validation = planted(30, 1)
    other = LabelledRows(1000 * validation.features, 1 - validation.labels)
    one, two = (fit_adapter(BUILD, train, held, settings).model for held in (validation, other))
    for name in ("selected", "mean", "std"):
        assert torch.equal(getattr(one, name), getattr(two, name))
    columns = train.features[:, one.selected].double()
    torch.testing.assert_close(one.mean.double(), columns.mean(0))
    torch.testing.assert_close(one.std.double(), columns.std(0, correction=0), rtol=1e-5, atol=0)


def test_stops_early_and_keeps_the_best_epoch() -> None:
    train = planted(60)
    noise = LabelledRows(train.features, train.labels[torch.randperm(60, generator=torch.Generator().manual_seed(0))])
    settings = AdapterSettings(**SETTINGS | {"max_epochs": 60, "patience": 3, "dropout": 0.0})
    fitted = fit_adapter(BUILD, noise, planted(40, 1), settings)
    losses = [row["val/loss"] for row in fitted.history]
    assert len(losses) == fitted.best_epoch + 3 < 60
    assert fitted.best_epoch == losses.index(min(losses)) + 1
    module = AdapterModule(fitted.model, settings, torch.ones(2))
    held = planted(40, 1)
    loss = module._loss(fitted.model.logits(held.features), held.labels).item()
    assert loss == pytest.approx(min(losses), abs=1e-5)


class Rates(L.Callback):
    def __init__(self) -> None:
        self.rates: list[float] = []

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])


def test_the_rate_falls_as_a_cosine_and_biases_do_not_decay(tmp_path: Path) -> None:
    rates = Rates()
    curves = LearningCurves(tmp_path / "curves.png", panels=[["train/loss", "val/loss"], ["val/auc"]])
    logger = CSVLogger(tmp_path, name="log", version="0")
    settings = AdapterSettings(**SETTINGS | {"batch_size": 20, "learning_rate": 0.01})
    best = ModelCheckpoint(tmp_path, filename="best", monitor="val/loss")
    trainer = L.Trainer(
        accelerator="cpu", max_epochs=4, logger=[logger], callbacks=[rates, curves, best], log_every_n_steps=1,
        enable_progress_bar=False, num_sanity_val_steps=0,
    )  # fmt: skip
    fitted = fit_adapter(BUILD, planted(60), planted(30, 1), settings, trainer=trainer)
    quiet = fit_adapter(BUILD, planted(60), planted(30, 1), replace(settings, max_epochs=4))
    assert all(torch.equal(quiet.model.state_dict()[name], part) for name, part in fitted.model.state_dict().items())
    written = torch.load(tmp_path / "best.ckpt", weights_only=True)
    assert written["epoch"] + 1 == fitted.best_epoch
    assert all(torch.equal(written["state_dict"][f"model.{n}"], part) for n, part in fitted.model.state_dict().items())
    expected = [0.005 * (1 + math.cos(math.pi * step / 12)) for step in range(1, 13)]
    assert rates.rates == pytest.approx(expected[: len(rates.rates)], abs=1e-9)
    assert len(rates.rates) == 3 * len(fitted.history) == 12
    assert [row["val/auc"] for row in curves.history] == [row["val/auc"] for row in fitted.history]
    assert (tmp_path / "curves.png").is_file()
    assert "val/auc" in (tmp_path / "log" / "0" / "metrics.csv").read_text()
    module = AdapterModule(fitted.model, settings, torch.ones(2))
    module.trainer = type("Trainer", (), {"estimated_stepping_batches": 12})()  # type: ignore[assignment]
    groups = module.configure_optimizers()["optimizer"].param_groups
    assert [group["weight_decay"] for group in groups] == [0.01, 0.0]
    assert all(p.dim() > 1 for p in groups[0]["params"])
    assert sum(len(group["params"]) for group in groups) == len(list(fitted.model.parameters()))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_loss_against_sklearn(smoothing: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = 3 * torch.randn(20, generator=generator).double(), torch.randint(0, 2, (20,), generator=generator)
    weight = torch.tensor([0.5, 2.0]).double()
    p, rows = torch.sigmoid(logits), weight[labels]
    kept = log_loss(labels.numpy(), p.numpy(), sample_weight=rows.numpy())
    flipped = log_loss(1 - labels.numpy(), p.numpy(), sample_weight=rows.numpy())
    expected = (1 - smoothing / 2) * kept + smoothing / 2 * flipped
    assert float(smoothed_cross_entropy(logits, labels, smoothing=smoothing, class_weight=weight)) == pytest.approx(
        expected
    )


def test_balanced_classes_move_the_scores_of_a_rare_class_up() -> None:
    made = planted(300)
    keep = (made.labels == 0) | (torch.arange(300) % 6 == 0)
    rare, held = made.take(keep.nonzero().squeeze(1)), planted(60, 1)
    plain, balanced = (
        fit_adapter(BUILD, rare, held, AdapterSettings(**SETTINGS | {"balanced": balanced})).model
        for balanced in (False, True)
    )
    with torch.inference_mode():
        assert float(balanced(held.features).mean()) > float(plain(held.features).mean()) + 0.05


@pytest.mark.parametrize(
    ("odd", "match"),
    [
        ({"learning_rate": 0}, "`learning_rate` must be a finite number above 0, got 0"),
        ({"patience": 0}, "`patience` must be a positive integer, got 0"),
        ({"smoothing": 1.0}, r"`smoothing` must lie in \[0, 1\), got 1.0"),
        ({"weight_decay": -1.0}, r"`weight_decay` must not be negative, got -1.0"),
    ],
)
def test_settings_are_checked(odd: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        AdapterSettings(**odd)


def test_rows_of_different_features_are_refused() -> None:
    narrow = LabelledRows(torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))
    with pytest.raises(ValueError, match="`validation` must have the features of `train`, 10, got 3"):
        fit_adapter(BUILD, planted(20), narrow, AdapterSettings())
