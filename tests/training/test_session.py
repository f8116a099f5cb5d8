from functools import partial
from pathlib import Path

import lightning as L
import pytest
from lightning.pytorch.callbacks import ModelCheckpoint, Timer

from graphrerank.training import EpochTable, LearningRate
from graphrerank.training.interruption import SaveOnSignal
from graphrerank.training.session import TrainingPlan, TrainingSession

CPU = {"accelerator": "cpu"}


def built(session: TrainingSession) -> L.Trainer:
    return session._build_trainer()


def names(trainer: L.Trainer) -> list[str]:
    return [type(callback).__name__ for callback in trainer.callbacks]


def test_arguments_replace_the_defaults(tmp_path: Path) -> None:
    trainer = built(TrainingSession(tmp_path, "mine", trainer={**CPU, "gradient_clip_val": 0.5}, max_epochs=7))
    assert (trainer.gradient_clip_val, trainer.max_epochs, trainer.log_every_n_steps) == (0.5, 7, 1)
    assert trainer.default_root_dir == str(tmp_path / "mine")


def test_a_partial_has_all_arguments(tmp_path: Path) -> None:
    complete = partial(L.Trainer, **CPU, max_epochs=2, default_root_dir=tmp_path)
    trainer = built(TrainingSession(tmp_path, "mine", trainer=complete))
    assert (trainer.gradient_clip_val, trainer.max_epochs, trainer.log_every_n_steps) == (None, 2, 50)


def test_callbacks_are_added_and_callbacks_by_name_replace(tmp_path: Path) -> None:
    added = names(built(TrainingSession(tmp_path, "mine", trainer=CPU, callbacks=[Timer()])))
    assert {"ModelCheckpoint", "EarlyStopping", "LearningCurves", "Timer", "EpochTable"} <= set(added)
    replaced = built(TrainingSession(tmp_path, "mine", trainer=CPU, callbacks={"rate": LearningRate()}))
    assert [name for name in names(replaced) if name != "ModelCheckpoint"] == [
        "LearningRate",
        "TrainingChecks",
        "EpochTable",
        "SaveOnSignal",
    ]


@pytest.mark.parametrize("complete", [False, True], ids=["changes", "partial"])
def test_a_silent_session_shows_nothing_and_keeps_the_best_epoch(complete: bool, tmp_path: Path) -> None:
    callbacks = {
        "best": ModelCheckpoint(tmp_path, monitor="val/loss"),
        "last": ModelCheckpoint(tmp_path),
        "curves": Timer(),
    }
    trainer = partial(L.Trainer, **CPU) if complete else CPU
    plan = TrainingPlan(settings=lambda _run_dir, _name: {"trainer": trainer, "callbacks": callbacks})
    silent = built(plan.silent_session(tmp_path, "mine"))
    assert [each for each in silent.callbacks if each in callbacks.values()] == [callbacks["best"]]
    assert not any(isinstance(each, EpochTable | SaveOnSignal) for each in silent.callbacks)
    assert any(isinstance(each, EpochTable) for each in built(plan.session(tmp_path, "mine")).callbacks)
