"""A row an epoch, in which neither a name nor a number is cut."""

from types import SimpleNamespace

import pytest
import torch

from graphrerank.training.epoch_table import EpochTable

NUMBERS = {
    "train/loss_step": 2.5, "train/loss_epoch": 2.3829, "val/loss": 2.42, "val/pr@5": 0.343, "val/pr@10": 0.487,
    "val/r@10": 0.733, "val/ndcg@10": 0.6162,
}  # fmt: skip
NAMES = ["epoch", "train/loss", "val/loss", "val/ndcg@10", "val/pr@10", "val/pr@5", "val/r@10", "seconds"]


def shown(capsys: pytest.CaptureFixture[str], *epochs: dict[str, float]) -> list[str]:
    table = EpochTable()
    for number, numbers in enumerate(epochs):
        metrics = {name: torch.tensor(found) for name, found in numbers.items()}
        trainer = SimpleNamespace(
            is_global_zero=True,
            current_epoch=number,
            max_epochs=2,
            num_training_batches=1,
            progress_bar_metrics=metrics,
        )
        table.on_train_epoch_start(trainer, None)
        table.on_train_batch_end(trainer)
        table.on_train_epoch_end(trainer, None)
    return capsys.readouterr().out.splitlines()


def test_one_table_of_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    header, *rows = shown(capsys, NUMBERS, NUMBERS)
    assert header.split() == NAMES
    assert [row.split()[:-1] for row in rows] == [
        [epoch, "2.3829", "2.4200", "0.6162", "0.4870", "0.3430", "0.7330"] for epoch in "12"
    ]
    assert {len(line) for line in (header, *rows)} == {len(header)}  # right-aligned under the names
    assert len(header) <= 80


def test_a_row_that_does_not_fit_names_each_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    (line,) = shown(capsys, NUMBERS)
    pairs = [pair.split() for pair in line.split(",")]
    assert [name for name, _ in pairs] == NAMES
    assert pairs[3] == ["val/ndcg@10", "0.6162"]


def test_only_the_first_process_prints(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = SimpleNamespace(is_global_zero=False, current_epoch=0, max_epochs=1, num_training_batches=1)
    table = EpochTable()
    table.on_train_epoch_start(trainer, None)
    table.on_train_epoch_end(trainer, None)
    assert not capsys.readouterr().out
