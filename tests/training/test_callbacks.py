"""What a training prints, draws and writes."""

import csv
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader

from graphrerank import training
from graphrerank.cli import schema
from graphrerank.cli.console import records_shown
from tests.support import CONF


def test_a_full_disk_leaves_the_older_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, save = tmp_path / "checkpoints" / "last.ckpt", torch.save
    training.AtomicCheckpoints().save_checkpoint({"epoch": 1}, path)

    def fills_the_disk(content: object, target: Path) -> None:
        assert target.parent == path.parent  # a rename on one file system, not a copy from the temporary folder
        save(content, target)
        target.write_bytes(target.read_bytes()[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", fills_the_disk)
    with pytest.raises(OSError, match="No space left"):
        training.AtomicCheckpoints().save_checkpoint({"epoch": 2}, str(path))
    with pytest.raises(ValueError, match="`storage_options` must be None"):
        training.AtomicCheckpoints().save_checkpoint({}, path, storage_options={"key": 1})
    assert torch.load(path, weights_only=True) == {"epoch": 1}
    assert [file.name for file in path.parent.iterdir()] == ["last.ckpt"]


@pytest.mark.parametrize("trainer", sorted(path.stem for path in (CONF / "trainer").glob("*.yaml")))
def test_every_trainer_writes_so(trainer: str) -> None:
    if trainer == "ray":
        pytest.importorskip("ray.train.lightning", reason="Ray Train is optional", exc_type=ImportError)
    schema.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        plugins = compose("train", overrides=[f"trainer={trainer}"]).trainer.plugins
    built = L.Trainer(accelerator="cpu", logger=False, plugins=[instantiate(plugin) for plugin in plugins])
    assert isinstance(built.strategy.checkpoint_io, training.AtomicCheckpoints)


class Line(L.LightningModule):
    """One weight that grows by one at each step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.validated: list[float] = []

    def training_step(self, *_: Any) -> Tensor:
        return -self.weight

    def validation_step(self, *_: Any) -> None:
        self.validated.append(float(self.weight))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD([self.weight], lr=1.0)


def test_the_tail_average_against_a_mean(tmp_path: Path) -> None:
    module, loader = Line(), DataLoader(range(2), batch_size=1)
    options: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = L.Trainer(
        max_epochs=4, accelerator="cpu", num_sanity_val_steps=0, callbacks=[training.TailAveraging(0.5)], **options
    )
    trainer.fit(module, loader, DataLoader(range(1)))
    # steps 1 to 4 are not averaged, then [5, 6] and [5, 6, 7, 8]
    assert module.validated == [2.0, 4.0, 5.5, 6.5]
    assert float(module.weight) == 6.5


@pytest.mark.parametrize("start", [-0.1, 1.0])
def test_an_average_of_nothing_is_refused(start: float) -> None:
    with pytest.raises(ValueError, match=rf"`start` must be in \[0, 1\), got {start}"):
        training.TailAveraging(start)


NUMBERS = {
    "train/loss_step": 2.5, "train/loss_epoch": 2.3829, "val/loss": 2.42, "val/pr@5": 0.343, "val/pr@10": 0.487,
    "val/r@10": 0.733, "val/ndcg@10": 0.6162,
}  # fmt: skip
NAMES = ["epoch", "train/loss", "val/loss", "val/ndcg@10", "val/pr@10", "val/pr@5", "val/r@10", "seconds"]


def shown(capsys: pytest.CaptureFixture[str], *epochs: dict[str, float]) -> list[str]:
    table = training.EpochTable()
    with records_shown():
        show_epochs(table, epochs)
    return capsys.readouterr().out.splitlines()


def show_epochs(table: training.EpochTable, epochs: Sequence[dict[str, float]]) -> None:
    for number, numbers in enumerate(epochs):
        metrics = {name: torch.tensor(found) for name, found in numbers.items()}
        counts = {"current_epoch": number, "max_epochs": 2, "num_training_batches": 1}
        trainer = SimpleNamespace(is_global_zero=True, progress_bar_metrics=metrics, **counts)
        table.on_train_epoch_start(trainer, None)
        table.on_train_batch_end(trainer)
        table.on_train_epoch_end(trainer, None)


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
    trainer = SimpleNamespace(is_global_zero=False, current_epoch=0, max_epochs=1, num_training_batches=1)
    training.EpochTable().on_train_epoch_end(trainer, None)
    assert not capsys.readouterr().out  # of another process


PANELS = [["train/loss", "val/loss"], ["val/pr@10"]]  # "val/loss" is never logged
PNG = b"\x89PNG\r\n\x1a\n"


def epoch(number: int, *, fast_dev_run: bool = False) -> Any:
    metrics = {"train/loss": torch.tensor(1.0 / (number + 1)), "val/pr@10": torch.tensor(0.1 * number)}
    return SimpleNamespace(
        current_epoch=number, callback_metrics=metrics, is_global_zero=True, fast_dev_run=fast_dev_run
    )


@pytest.fixture
def _blank_curves() -> None:
    """Draw learning curves, unlike the other tests of this folder."""


def test_every_epoch_is_drawn_also_after_a_resume(tmp_path: Path) -> None:
    training.LearningCurves(tmp_path / "dev.png", panels=PANELS).on_train_epoch_end(epoch(0, fast_dev_run=True), None)
    assert list(tmp_path.iterdir()) == []
    unbroken, broken, resumed = (training.LearningCurves(tmp_path / f"{name}.png", panels=PANELS) for name in "abb")
    drawn = set()
    for number in range(4):
        unbroken.on_train_epoch_end(epoch(number), None)
        drawn.add((tmp_path / "a.png").read_bytes())
        if number == 2:
            resumed.load_state_dict(broken.state_dict())
        (broken if number < 2 else resumed).on_train_epoch_end(epoch(number), None)
    assert len(drawn) == 4
    assert all(content.startswith(PNG) for content in drawn)
    assert resumed.history == unbroken.history
    assert [(row["epoch"], row["train/loss"]) for row in unbroken.history[:2]] == [(1.0, 1.0), (2.0, 0.5)]
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


class Regression(L.LightningModule):
    """A least-squares fit of one weight and one bias, in groups of parameters with the same or other rates."""

    def __init__(self, *rates: float) -> None:
        super().__init__()
        self.rates = rates
        self.linear = nn.Linear(1, 1)
        with torch.no_grad():
            self.linear.weight.fill_(2.0)
            self.linear.bias.fill_(1.0)

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return self.linear(batch).pow(2).mean()

    def configure_optimizers(self) -> dict[str, Any]:
        groups = [{"params": [part], "lr": rate} for part, rate in zip(self.parameters(), self.rates, strict=True)]
        optimizer = torch.optim.SGD(groups)
        halves = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": halves, "interval": "step"}}


def fitted(
    folder: Path, *callbacks: L.Callback, rates: tuple[float, float] = (0.1, 0.1), **settings: Any
) -> Regression:
    """Train on the inputs 1, 1, 1 with a step for each; the gradient is clipped to a norm of 0.1."""
    module = Regression(*rates)
    settings = {"logger": CSVLogger(folder, name=""), "log_every_n_steps": 1, **settings}
    trainer = L.Trainer(
        accelerator="cpu", max_epochs=1, gradient_clip_val=0.1, callbacks=list(callbacks), enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, default_root_dir=folder, **settings,
    )  # fmt: skip
    trainer.fit(module, DataLoader(torch.ones(3, 1)))
    return module


def logged_curves(folder: Path) -> list[dict[str, float]]:
    with next(folder.glob("version_0/metrics.csv")).open() as file:
        return [{key: float(number) for key, number in row.items() if number} for row in csv.DictReader(file)]


def test_rate_and_gradient_of_each_step_by_hand(tmp_path: Path) -> None:
    fitted(tmp_path, training.GradientNorm(), training.LearningRate())
    rows = logged_curves(tmp_path)
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert [row["train/lr"] for row in rows] == pytest.approx([0.1, 0.05, 0.025])
    moved, expected = 0.0, []  # both gradients are 2 (w + b); clipped, each parameter moves by 0.1 / sqrt(2) of a rate
    for rate in (0.1, 0.05, 0.025):
        expected.append(2 * (3 - 2 * moved) * 2**0.5)
        moved += rate * 0.1 / 2**0.5
    assert [row["train/grad_norm"] for row in rows] == pytest.approx(expected, rel=1e-4)


def test_a_group_with_another_rate_has_a_curve(tmp_path: Path) -> None:
    fitted(tmp_path, training.LearningRate(), rates=(0.1, 0.2))
    assert [row["train/lr_group_2"] for row in logged_curves(tmp_path)] == pytest.approx([0.2, 0.1, 0.05])


def test_a_step_of_several_batches_has_one_point(tmp_path: Path) -> None:
    fitted(tmp_path, training.GradientNorm(), training.LearningRate(), accumulate_grad_batches=3)
    assert [set(row) & {"train/lr", "train/grad_norm"} for row in logged_curves(tmp_path)] == [
        {"train/lr", "train/grad_norm"}
    ]


@pytest.mark.parametrize("logger", [False, True])
def test_curves_change_no_weight(logger: bool, tmp_path: Path) -> None:
    settings = {"logger": CSVLogger(tmp_path) if logger else False}
    plain = fitted(tmp_path, **settings)
    watched = fitted(tmp_path, training.GradientNorm(), training.LearningRate(), **settings)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), watched.parameters(), strict=True))


def test_curves_are_no_columns_of_the_epoch_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with records_shown():
        fitted(tmp_path, training.GradientNorm(), training.LearningRate(), training.EpochTable())
    header = capsys.readouterr().out.splitlines()[0]
    assert header.split() == ["epoch", "seconds"]
