"""Trainings that are interrupted by a signal, resumed, or trained further after their end."""

import logging
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from graphrerank.models.manifest import read_manifest
from graphrerank.training.schedules import SchedulerFactory, constant, plateau
from graphrerank.training.session import TrainingSession
from graphrerank.utils.checks import UserError
from tests.support.manifests import make_manifest
from tests.training.test_granker_training import encoder, letters  # noqa: F401  # fixtures
from tests.training.test_trainer import dataset, make, parts  # noqa: F401  # fixtures
from tests.training.test_trainer_flags import TRAININGS, Pair, pairs  # noqa: F401  # fixtures

CPU = {"accelerator": "cpu", "enable_progress_bar": False}
MANIFEST = {**make_manifest("gatv2_reranker", {}), "finished": False, "name": "mine"}


class Signal(L.Callback):
    """Send a signal before a step of an epoch, or in its validation."""

    def __init__(self, number: int, epoch: int, *, in_validation: bool = False) -> None:
        self.number, self.epoch, self.in_validation = number, epoch, in_validation
        self.is_sent = False

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if not self.in_validation and (trainer.current_epoch, batch_idx) == (self.epoch, 1):
            signal.raise_signal(self.number)

    def on_validation_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        if self.in_validation and trainer.current_epoch == self.epoch and not self.is_sent:
            self.is_sent = True
            signal.raise_signal(self.number)


@pytest.fixture
def make_pair(pairs: dict[str, Callable[[], Pair]]) -> Callable[[], Pair]:  # noqa: F811
    """Builder of the module and the data module of a reranker."""
    return pairs["reranker"]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Messages of the library, including informative ones."""
    caplog.set_level(logging.INFO, logger="graphrerank")
    return caplog


def session(folder: Path, *added: L.Callback, resume: bool = False, **arguments: Any) -> TrainingSession:
    """Return a session that saves the last epoch."""
    last = ModelCheckpoint(
        folder / "mine" / "checkpoints", filename="last", save_on_train_epoch_end=True, enable_version_counter=False
    )
    callbacks = {"last": last} | {str(number): callback for number, callback in enumerate(added)}
    usual = {"trainer": CPU, "max_epochs": 3, "callbacks": callbacks, "resume": folder if resume else None}
    return TrainingSession(folder, "mine", **usual | arguments)


def train(made: TrainingSession, pair: Pair) -> dict[str, torch.Tensor]:
    """Train a module, and return the weights of its last epoch. Nothing if the training is not continued."""
    if made.earlier_results(MANIFEST, []):
        return {}
    made.train(*pair, MANIFEST)
    return dict(torch.load(made.folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"])


def seeded(build: Callable[[], Pair]) -> Pair:
    torch.manual_seed(0)
    return build()


def assert_same(expected: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> None:
    assert expected.keys() == found.keys()
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("where", ["step", "validation"])
def test_ctrl_c_saves_the_state_and_a_resumed_run_equals_an_unbroken_one(
    where: str,
    training: str,
    pairs: dict[str, Callable[[], Pair]],  # noqa: F811
    tmp_path: Path,
) -> None:
    unbroken = train(session(tmp_path / "unbroken"), seeded(pairs[training]))
    stop = Signal(signal.SIGINT, 1, in_validation=where == "validation")
    with pytest.raises(KeyboardInterrupt) as stopped:
        train(session(tmp_path / "broken", stop), seeded(pairs[training]))
    assert stopped.value.__notes__ == [
        f"resume={str(tmp_path / 'broken')!r} continues the training; all other arguments must be the same"
    ]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    saved = torch.load(tmp_path / "broken" / "mine" / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["epoch"] == 1
    assert not read_manifest(tmp_path / "broken" / "mine").content["finished"]
    resumed = train(session(tmp_path / "broken", resume=True), seeded(pairs[training]))
    assert_same(unbroken, resumed)


def test_sigterm_saves_the_state_and_reaches_the_handler_of_the_caller(
    make_pair: Callable[[], Pair], tmp_path: Path
) -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: received.append(number))
    try:
        with pytest.raises(SystemExit) as stopped:
            train(session(tmp_path, Signal(signal.SIGTERM, 1)), make_pair())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (received, stopped.value.code) == ([signal.SIGTERM], 128 + signal.SIGTERM)
    saved = torch.load(tmp_path / "mine" / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] == 4 + 2  # the step that the signal interrupted was finished


def test_a_second_signal_stops_at_once(make_pair: Callable[[], Pair], tmp_path: Path) -> None:
    twice = [Signal(signal.SIGINT, 0), Signal(signal.SIGINT, 0)]
    with pytest.raises(KeyboardInterrupt):
        train(session(tmp_path, *twice), make_pair())
    assert not (tmp_path / "mine" / "checkpoints" / "last.ckpt").exists()


@pytest.mark.parametrize(
    ("training", "schedule"),
    [*((training, constant) for training in TRAININGS), ("reranker", partial(plateau, patience=0, threshold=0.5))],
)
def test_a_finished_training_with_more_epochs_equals_an_unbroken_one(
    training: str,
    schedule: SchedulerFactory,
    pairs: dict[str, Callable[[], Pair]],  # noqa: F811
    tmp_path: Path,
) -> None:
    def build() -> Pair:
        module, data = seeded(pairs[training])
        module.scheduler = schedule
        module.warmup_steps = 0
        return module, data

    unbroken = train(session(tmp_path / "unbroken"), build())
    train(session(tmp_path / "mine", max_epochs=1), build())
    assert read_manifest(tmp_path / "mine" / "mine").content["trained"]["epochs"] == 1
    continued = train(session(tmp_path / "mine", resume=True), build())
    assert_same(unbroken, continued)
    assert read_manifest(tmp_path / "mine" / "mine").content["trained"]["epochs"] == 3


class StopAfter(L.Callback):
    """Stop after an epoch, as early stopping does."""

    def __init__(self, num_epochs: int) -> None:
        self.num_epochs = num_epochs

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        trainer.should_stop = trainer.current_epoch + 1 == self.num_epochs


class Rates(L.Callback):
    """Record the learning rate of each step."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])


def test_more_epochs_follow_the_schedule_of_the_longer_training(
    make_pair: Callable[[], Pair], tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    unbroken, continued = Rates(), Rates()
    train(session(tmp_path / "unbroken", unbroken), make_pair())
    train(session(tmp_path / "mine", max_epochs=1), make_pair())
    train(session(tmp_path / "mine", continued, resume=True), make_pair())
    assert continued.rates == unbroken.rates[4:]
    assert "mine continues after epoch 1 with epochs up to 3. The learning rate follows the schedule" in log.text


def test_a_finished_training_without_more_epochs_says_so(
    make_pair: Callable[[], Pair], tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    train(session(tmp_path), make_pair())
    assert train(session(tmp_path, resume=True), make_pair()) == {}
    assert "mine is finished after 3 epochs. A larger trainer.max_epochs trains on" in log.text


def test_a_training_that_stopped_early_stays_finished(
    make_pair: Callable[[], Pair], tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    train(session(tmp_path, StopAfter(2), max_epochs=9), make_pair())
    assert read_manifest(tmp_path / "mine").content["trained"]["epochs"] == 2
    assert train(session(tmp_path, resume=True, max_epochs=20), make_pair()) == {}
    assert "mine stopped early after epoch 2" in log.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "bce"}, r"loss\.name=listwise_softmax_cross_entropy, got binary_cross_entropy"),
        ({"fit": {"batch_size": 4}}, r"batch_size=32, got 4"),
        ({"fit": {"seed": 2}}, r"seed=1, got 2"),
        ({"fit": {"learning_rate": 1.0}}, r"learning_rate=0\.003, got 1\.0"),
        ({"scheduler": "constant"}, r"scheduler\.name="),
    ],
)
def test_other_settings_are_refused_by_name(
    change: dict[str, Any],
    message: str,
    make: Any,  # noqa: F811
    tmp_path: Path,
) -> None:
    make().train()
    change = {**change, "fit": {"max_epochs": 3, **change.get("fit", {})}}
    with pytest.raises(UserError, match=f"`ckpt_path` must be used with the settings of its run, which has {message}"):
        make(resume=tmp_path / "run", run_dir=None, **change).train()


def test_fit_trains_a_finished_run_further(make: Any, tmp_path: Path) -> None:  # noqa: F811
    make().train()
    reranker = make(resume=tmp_path / "run", run_dir=None, fit={"max_epochs": 3}).train()
    content = reranker.checkpoint.manifest.content
    assert (content["finished"], content["trained"]["epochs"]) == (True, 3)


def test_a_named_set_of_callbacks_writes_a_run_after_the_training(make: Any, tmp_path: Path) -> None:  # noqa: F811
    make(callbacks="trec_run", fit={"test_split": "val"}).train()
    lines = (tmp_path / "run" / "gatv2" / "predictions.trec").read_text().splitlines()
    assert {line.split()[0] for line in lines} == {f"q{number}" for number in range(12, 20)}
