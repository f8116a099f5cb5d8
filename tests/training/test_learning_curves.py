from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from graphrerank.training.learning_curves import LearningCurves

PANELS = [["train/loss", "val/loss"], ["val/pr@10"]]
PNG = b"\x89PNG\r\n\x1a\n"


def epoch(number: int, *, fast_dev_run: bool = False) -> Any:
    metrics = {"train/loss": torch.tensor(1.0 / (number + 1)), "val/pr@10": torch.tensor(0.1 * number)}
    return SimpleNamespace(
        current_epoch=number, callback_metrics=metrics, is_global_zero=True, fast_dev_run=fast_dev_run
    )


def test_every_epoch_is_kept_and_drawn(tmp_path: Path) -> None:
    curves = LearningCurves(tmp_path / "curves.png", panels=PANELS)  # "val/loss" is never logged
    sizes = []
    for number in range(3):
        curves.on_train_epoch_end(epoch(number), None)
        content = (tmp_path / "curves.png").read_bytes()
        assert content.startswith(PNG)
        sizes.append(content)
    assert len(set(sizes)) == 3
    assert [row["epoch"] for row in curves.history] == [1.0, 2.0, 3.0]
    assert curves.history[1]["train/loss"] == 0.5


def test_history_travels_in_the_checkpoint(tmp_path: Path) -> None:
    unbroken = LearningCurves(tmp_path / "a.png", panels=PANELS)
    broken = LearningCurves(tmp_path / "b.png", panels=PANELS)
    resumed = LearningCurves(tmp_path / "b.png", panels=PANELS)
    for number in range(4):
        unbroken.on_train_epoch_end(epoch(number), None)
        if number == 2:
            resumed.load_state_dict(broken.state_dict())
        (broken if number < 2 else resumed).on_train_epoch_end(epoch(number), None)
    assert resumed.history == unbroken.history
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_fast_dev_run_draws_nothing(tmp_path: Path) -> None:
    curves = LearningCurves(tmp_path / "curves.png", panels=PANELS)
    curves.on_train_epoch_end(epoch(0, fast_dev_run=True), None)
    assert list(tmp_path.iterdir()) == []
