"""What a training prints, draws and writes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from graphrerank.cli import schema
from graphrerank.training import AtomicCheckpoints, EpochTable, LearningCurves
from tests.support import CONF


def test_a_full_disk_leaves_the_older_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, save = tmp_path / "checkpoints" / "last.ckpt", torch.save
    AtomicCheckpoints().save_checkpoint({"epoch": 1}, path)

    def fills_the_disk(content: object, target: Path) -> None:
        assert target.parent == path.parent  # a rename on one file system, not a copy from the temporary folder
        save(content, target)
        target.write_bytes(target.read_bytes()[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", fills_the_disk)
    with pytest.raises(OSError, match="No space left"):
        AtomicCheckpoints().save_checkpoint({"epoch": 2}, str(path))
    with pytest.raises(ValueError, match="`storage_options` must be None"):
        AtomicCheckpoints().save_checkpoint({}, path, storage_options={"key": 1})
    assert torch.load(path, weights_only=True) == {"epoch": 1}
    assert [file.name for file in path.parent.iterdir()] == ["last.ckpt"]


@pytest.mark.parametrize("trainer", sorted(path.stem for path in (CONF / "trainer").glob("*.yaml")))
def test_every_trainer_writes_so(trainer: str) -> None:
    schema.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        plugins = compose("train", overrides=[f"trainer={trainer}"]).trainer.plugins
    built = L.Trainer(accelerator="cpu", logger=False, plugins=[instantiate(plugin) for plugin in plugins])
    assert isinstance(built.strategy.checkpoint_io, AtomicCheckpoints)


NUMBERS = {
    "train/loss_step": 2.5, "train/loss_epoch": 2.3829, "val/loss": 2.42, "val/pr@5": 0.343, "val/pr@10": 0.487,
    "val/r@10": 0.733, "val/ndcg@10": 0.6162,
}  # fmt: skip
NAMES = ["epoch", "train/loss", "val/loss", "val/ndcg@10", "val/pr@10", "val/pr@5", "val/r@10", "seconds"]


def shown(capsys: pytest.CaptureFixture[str], *epochs: dict[str, float]) -> list[str]:
    table = EpochTable()
    for number, numbers in enumerate(epochs):
        metrics = {name: torch.tensor(found) for name, found in numbers.items()}
        counts = {"current_epoch": number, "max_epochs": 2, "num_training_batches": 1}
        trainer = SimpleNamespace(is_global_zero=True, progress_bar_metrics=metrics, **counts)
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
    trainer = SimpleNamespace(is_global_zero=False, current_epoch=0, max_epochs=1, num_training_batches=1)
    EpochTable().on_train_epoch_end(trainer, None)
    assert not capsys.readouterr().out  # of another process


PANELS = [["train/loss", "val/loss"], ["val/pr@10"]]  # "val/loss" is never logged
PNG = b"\x89PNG\r\n\x1a\n"


def epoch(number: int, *, fast_dev_run: bool = False) -> Any:
    metrics = {"train/loss": torch.tensor(1.0 / (number + 1)), "val/pr@10": torch.tensor(0.1 * number)}
    return SimpleNamespace(
        current_epoch=number, callback_metrics=metrics, is_global_zero=True, fast_dev_run=fast_dev_run
    )


def test_every_epoch_is_drawn_also_after_a_resume(tmp_path: Path) -> None:
    LearningCurves(tmp_path / "dev.png", panels=PANELS).on_train_epoch_end(epoch(0, fast_dev_run=True), None)
    assert list(tmp_path.iterdir()) == []
    unbroken, broken, resumed = (LearningCurves(tmp_path / f"{name}.png", panels=PANELS) for name in "abb")
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
