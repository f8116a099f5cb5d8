"""The adapter's module and data module in a plain ``lightning.Trainer``."""

import csv
import math
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import CSVLogger
from sklearn.metrics import log_loss
from torch import Tensor

from graphrerank.metrics import area_under_roc
from graphrerank_papers.ea_graphrag.adapter_module import (
    SMOOTHING,
    AdapterDataModule,
    AdapterModule,
    AdapterRows,
    smoothed_cross_entropy,
)
from tests.papers.ea_graphrag.rows import module, planted, trainer
from tests.support.stopping import StopInEpoch


def test_a_planted_signal_is_learned(tmp_path: Path) -> None:
    made = module(planted(240))
    trainer(tmp_path, max_epochs=30).fit(made, AdapterDataModule(planted(240), planted(60, 1)))
    features, labels = planted(400, 2)
    made.eval()
    assert area_under_roc(made(features).detach(), labels) > 0.93
    assert {1, 6} <= set(made.model.selected.tolist())


def test_smoothed_loss_against_numbers_by_hand() -> None:
    # targets .05 and .95; softplus(2) = 2.126928, softplus(-1) = 0.313262
    logits, labels = torch.tensor([2.0, -1.0]), torch.tensor([0, 1])
    expected = ((2.126928 - 0.05 * 2) + (0.313262 + 0.95 * 1)) / 2
    assert float(smoothed_cross_entropy(logits, labels)) == pytest.approx(expected, abs=1e-6)


def test_smoothed_loss_against_sklearn() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = 3 * torch.randn(20, generator=generator).double(), torch.randint(0, 2, (20,), generator=generator)
    p = torch.sigmoid(logits).numpy()
    expected = (1 - SMOOTHING / 2) * log_loss(labels, p) + SMOOTHING / 2 * log_loss(1 - labels, p)
    assert float(smoothed_cross_entropy(logits, labels)) == pytest.approx(expected)


def test_half_precision_is_computed_in_float32() -> None:
    logits, labels = torch.tensor([3.0, -2.0], dtype=torch.bfloat16), torch.tensor([1, 0])
    found = smoothed_cross_entropy(logits, labels)
    assert found.dtype == torch.float32
    assert torch.equal(found, smoothed_cross_entropy(logits.float(), labels))


class Recorder(L.Callback):
    """Record learning rates, groups of parameters, and each epoch's measures."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.groups: list[dict[str, Any]] = []
        self.epochs: list[dict[str, float]] = []

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        self.groups = trainer.optimizers[0].param_groups
        self.rates.append(self.groups[0]["lr"])

    def on_train_epoch_end(self, trainer: L.Trainer, *_: Any) -> None:
        self.epochs.append({name: float(number) for name, number in trainer.callback_metrics.items()})


@pytest.mark.parametrize("warmup_steps", [0, 1])
def test_the_rate_warms_up_and_falls_as_a_cosine_and_biases_do_not_decay(warmup_steps: int, tmp_path: Path) -> None:
    recorder = Recorder()
    made = module(planted(90), learning_rate=0.01, warmup_steps=warmup_steps)
    trainer(tmp_path, recorder, max_epochs=4).fit(made, AdapterDataModule(planted(90), planted(30, 1)))
    expected = [
        0.01 * (step + 1) / warmup_steps
        if step < warmup_steps
        else 0.005 * (1 + math.cos(math.pi * (step - warmup_steps) / (12 - warmup_steps)))
        for step in range(12)
    ]
    assert recorder.rates == pytest.approx(expected)
    assert [group["weight_decay"] for group in recorder.groups] == [0.01, 0.0]
    assert all(p.dim() > 1 for p in recorder.groups[0]["params"])
    assert sum(len(group["params"]) for group in recorder.groups) == len(list(made.model.parameters()))


def state(made: AdapterModule) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in made.state_dict().items()}


@pytest.mark.parametrize("epoch", [1, 4])
def test_resumed_run_equals_unbroken_run_bit_for_bit(epoch: int, tmp_path: Path) -> None:
    train, validation = planted(120), planted(40, 1)

    def run(name: str, *callbacks: L.Callback, **resume: Any) -> dict[str, Tensor]:
        made = module(train, seed=3)
        torch.manual_seed(len(name))  # another process starts from other randomness
        data = AdapterDataModule(train, validation, batch_size=16, seed=3)
        trainer(tmp_path / name, *callbacks).fit(made, data, **resume)
        return state(made)

    unbroken = run("unbroken")
    with pytest.raises(RuntimeError, match="power cut"):
        run("broken", StopInEpoch(epoch))
    recorder = Recorder()
    resumed = run("broken", recorder, ckpt_path=tmp_path / "broken" / "last.ckpt", weights_only=True)
    assert len(recorder.epochs) == 8 - epoch
    assert [name for name in unbroken if not torch.equal(unbroken[name], resumed[name])] == []
    kept = [
        torch.load(tmp_path / name / "best.ckpt", weights_only=True)["state_dict"] for name in ("unbroken", "broken")
    ]
    assert all(torch.equal(kept[0][name], kept[1][name]) for name in kept[0])


def test_stops_early_and_the_best_epoch_is_kept(tmp_path: Path) -> None:
    features, labels = planted(60)
    noisy = AdapterRows(features, labels[torch.randperm(60, generator=torch.Generator().manual_seed(0))])
    validation, recorder = planted(40, 1), Recorder()
    made = module(noisy, dropout=0.0)
    stopping = EarlyStopping("val/loss", patience=3)
    trainer(tmp_path, stopping, recorder, max_epochs=60).fit(made, AdapterDataModule(noisy, validation))
    losses = [epoch["val/loss"] for epoch in recorder.epochs]
    assert len(losses) == losses.index(min(losses)) + 1 + 3 < 60
    made.load_state_dict(torch.load(tmp_path / "best.ckpt", weights_only=True)["state_dict"])
    made.eval()
    found = smoothed_cross_entropy(made.model.logits(validation.features).detach(), validation.labels)
    assert float(found) == pytest.approx(min(losses), abs=1e-6)


def test_a_logger_receives_loss_and_auc_of_each_epoch(tmp_path: Path) -> None:
    validation = planted(30, 1)
    made = module(planted(60), label_smoothing=0.2)
    data = AdapterDataModule(planted(60), validation)
    trainer(tmp_path, max_epochs=3, logger=CSVLogger(tmp_path, name="", version="")).fit(made, data)
    rows = list(csv.DictReader((tmp_path / "metrics.csv").open()))
    for name in ("train/loss_epoch", "val/loss", "val/auc"):
        assert len([row for row in rows if row[name]]) == 3
    made.eval()
    logits = made.model.logits(validation.features).detach()
    last = [row for row in rows if row["val/auc"]][-1]
    assert float(last["val/auc"]) == pytest.approx(area_under_roc(logits, validation.labels))
    expected = smoothed_cross_entropy(logits, validation.labels, smoothing=0.2)
    assert float(last["val/loss"]) == pytest.approx(float(expected), abs=1e-6)


def test_mixed_precision_trains(tmp_path: Path) -> None:
    made = module(planted(60))
    run = trainer(tmp_path, max_epochs=2, precision="bf16-mixed")
    run.fit(made, AdapterDataModule(planted(60), planted(30, 1)))
    assert torch.isfinite(run.callback_metrics["train/loss"])
    assert all(tensor.dtype == torch.float32 for tensor in made.model.parameters())


def served(data: AdapterDataModule, epoch: int) -> list[list[float]]:
    loader = data.train_dataloader()
    loader.sampler.set_epoch(epoch)
    return [rows.features[:, 0].tolist() for rows in loader]


def test_the_order_depends_on_seed_and_epoch_and_serves_every_row_once() -> None:
    rows = AdapterRows(torch.arange(50.0).unsqueeze(1), torch.arange(50) % 2)
    first, same, other = (AdapterDataModule(rows, rows, batch_size=8, seed=seed) for seed in (1, 1, 2))
    assert served(first, 0) == served(same, 0)
    assert served(first, 0) != served(first, 1)
    assert served(first, 0) != served(other, 0)
    assert sorted(row for batch in served(first, 3) for row in batch) == list(range(50))
    (validated,) = first.val_dataloader()
    assert torch.equal(validated.features, rows.features)


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("label_smoothing", 1.0, r"`label_smoothing` must lie in \[0, 1\), got 1\.0"),
        ("learning_rate", 0.0, "`learning_rate` must be a finite number above 0, got 0"),
        ("warmup_steps", -1, "`warmup_steps` must not be negative, got -1"),
    ],
)
def test_arguments_out_of_range_are_refused(name: str, bad: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        module(planted(30), **{name: bad})
