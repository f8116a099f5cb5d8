"""Checks of a running training, with a model of one weight on the toy data set."""

from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import Tensor, nn

from graphrerank.core import ModelInputs
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.datamodule import CandidateDataModule
from graphrerank.losses import listwise_softmax_cross_entropy
from graphrerank.training import RerankerModule, TrainingChecks
from graphrerank.training.schedules import constant, plateau
from graphrerank.training.session import TrainingSession
from graphrerank.training.training_checks import check_modes, count_varied, higher_is_better

KEY = "val/ndcg@10"


class Mixture(nn.Module):
    """Mixes the base score with the third score, which tells the relevant candidates."""

    inputs = ModelInputs(("base_features",))

    def __init__(self, weights: tuple[float, float] = (1.0, 0.0)) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor(weights))

    def forward(self, base_features: Tensor) -> Tensor:
        return base_features[:, [0, 2]] @ self.weights


def train(
    toy: PreparedDataset,
    folder: Path,
    *,
    model: nn.Module | None = None,
    loss: Any = listwise_softmax_cross_entropy,
    callbacks: Any = (),
    module: dict[str, Any] | None = None,
    max_epochs: int = 2,
    **trainer: Any,
) -> tuple[TrainingSession, dict[str, Any]]:
    session = TrainingSession(
        folder, "mine", max_epochs=max_epochs, callbacks=callbacks,
        trainer={"accelerator": "cpu", "enable_progress_bar": False, **trainer},
    )  # fmt: skip
    made = RerankerModule(model or Mixture(), loss, **{"learning_rate": 0.1, "warmup_steps": 0, **(module or {})})
    return session, session.train(made, CandidateDataModule(toy, batch_size=8), {"finished": False})


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("val/ndcg@10", True), ("val/pr@5/multi", True), ("val/towns/r_cap@10", True), ("val/mrr", True),
        ("val/auc", True), ("val/loss", False), ("val/towns/loss", False), ("train/loss_epoch", False),
        ("train/lr", None), ("val/rest", None), ("epoch", None),
    ],
)  # fmt: skip
def test_the_direction_of_a_log_key(key: str, expected: bool | None) -> None:
    assert higher_is_better(key) is expected


def test_a_mode_that_keeps_the_worst_epoch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`ModelCheckpoint.mode` must be max for monitor=val/ndcg@10.*got min"):
        TrainingSession(tmp_path, "mine", callbacks=[ModelCheckpoint(monitor=KEY)])
    with pytest.raises(ValueError, match=r"`callbacks.stop.mode` must be min for monitor=val/loss.*got max"):
        check_modes({"stop": EarlyStopping(monitor="val/loss", mode="max")})
    check_modes([ModelCheckpoint(monitor="my_measure"), ModelCheckpoint()])


@pytest.mark.parametrize(
    ("monitor", "advice"),
    [
        ("val/ndgc@10", "Did you mean 'val/ndcg@10'"),
        ("vall/ndcg@10", "Did you mean"),
        ("val/diversity", "The measures are"),
    ],
)
def test_a_mistyped_measure_is_refused_before_the_first_epoch(
    monitor: str, advice: str, toy: PreparedDataset, tmp_path: Path
) -> None:
    model = Mixture()
    callbacks = [EarlyStopping(monitor=monitor, mode="max")]
    with pytest.raises(
        ValueError, match=rf"`EarlyStopping.monitor` must be a logged measure, got '{monitor}'. {advice}"
    ):
        train(toy, tmp_path, model=model, callbacks=callbacks)
    assert model.weights.tolist() == [1.0, 0.0]


def test_the_measure_of_a_schedule_is_checked(toy: PreparedDataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`ReduceLROnPlateau.monitor` must be a logged measure, got 'val/los'"):
        train(toy, tmp_path, module={"scheduler": partial(plateau, monitor="val/los", mode="min")})
    with pytest.raises(ValueError, match=r"`ReduceLROnPlateau.mode` must be max for monitor=val/ndcg@10"):
        train(toy, tmp_path / "other", module={"scheduler": partial(plateau, monitor=KEY, mode="min")})


def test_a_training_measure_that_is_never_logged_is_an_error(toy: PreparedDataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"monitor='train/los'\)` could not find the monitored key"):
        train(toy, tmp_path, callbacks=[ModelCheckpoint(monitor="train/los")])


def nan_from(step: int) -> Any:
    calls = []

    def loss(scores: Tensor, relevance: Tensor, mask: Tensor) -> Tensor:
        calls.append(1)
        scale = torch.nan if torch.is_grad_enabled() and sum(calls) > step else 1.0
        return scale * listwise_softmax_cross_entropy(scores, relevance, mask)

    return loss


def test_a_loss_that_is_nan_stops_the_training(toy: PreparedDataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"loss is NaN or infinite at step \d \(epoch 1\). Try a lower learning rate"):
        train(toy, tmp_path, loss=nan_from(4))


def test_weights_that_are_not_finite_stop_the_training(toy: PreparedDataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the weights are NaN or infinite at step 4.*learning rate \(now 1e\+30\)"):
        train(
            toy,
            tmp_path,
            loss=lambda scores, _, __: scores.sum(),
            module={"learning_rate": 1e30, "scheduler": lambda o: []},
        )


class Constant(Mixture):
    """Scores every candidate equally after the first step."""

    def forward(self, base_features: Tensor) -> Tensor:
        return super().forward(base_features) * (self.weights[0] == 1)


def test_equal_scores_stop_the_training(toy: PreparedDataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="all candidates of each validation query have equal scores after epoch 1"):
        train(toy, tmp_path, model=Constant())
    train(toy, tmp_path / "other", model=Constant(), callbacks=[TrainingChecks(stop_at_equal_scores=False)])


def test_queries_with_different_scores_are_counted(toy: PreparedDataset) -> None:
    graphs = toy.graphs(torch.arange(3), split="train")
    scores = torch.zeros(graphs.num_nodes)
    assert count_varied(graphs, scores) == (3, 0)
    scores[graphs.ptr[1]] = 1.0
    assert count_varied(graphs, scores) == (3, 1)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "graphrerank.training.training_checks"]


def test_a_training_that_succeeds_warns_of_nothing(
    toy: PreparedDataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, manifest = train(toy, tmp_path, max_epochs=4)
    assert warnings_of(caplog) == []
    validation = manifest["validation"]
    assert validation["score"] > validation["initial"] == pytest.approx(validation["retriever"])


def test_the_references_against_a_validation(toy: PreparedDataset, tmp_path: Path) -> None:
    _, manifest = train(toy, tmp_path, model=Mixture((0.0, 1.0)), max_epochs=1)
    options: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    measured = {}
    for name, weights in (("initial", (0.0, 1.0)), ("retriever", (1.0, 0.0))):
        module = RerankerModule(Mixture(weights), listwise_softmax_cross_entropy)
        trainer = L.Trainer(accelerator="cpu", **options)
        measured[name] = trainer.validate(module, CandidateDataModule(toy, batch_size=5), verbose=False)[0][KEY]
    assert {name: manifest["validation"][name] for name in measured} == pytest.approx(measured)


def test_a_resumed_training_keeps_the_references_of_its_start(toy: PreparedDataset, tmp_path: Path) -> None:
    def run(max_epochs: int, **resume: Any) -> tuple[dict[str, dict[str, float]], list[float]]:
        checks = TrainingChecks()
        last = ModelCheckpoint(tmp_path, filename="last", enable_version_counter=False, save_on_train_epoch_end=True)
        trainer = L.Trainer(
            max_epochs=max_epochs, accelerator="cpu", num_sanity_val_steps=-1, callbacks=[checks, last], logger=False,
            enable_progress_bar=False,
        )  # fmt: skip
        module = RerankerModule(Mixture(), listwise_softmax_cross_entropy, learning_rate=0.1, scheduler=constant)
        trainer.fit(module, CandidateDataModule(toy, batch_size=8), **resume)
        return checks.references, module.model.weights.tolist()

    first, _ = run(1)
    resumed, weights = run(3, ckpt_path=tmp_path / "last.ckpt", weights_only=True)
    assert resumed == first
    (tmp_path / "last.ckpt").unlink()
    assert (resumed, weights) == run(3)


def test_a_training_that_makes_the_ranking_worse_is_named(
    toy: PreparedDataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def reversed_loss(scores: Tensor, relevance: Tensor, mask: Tensor) -> Tensor:
        return listwise_softmax_cross_entropy(-scores, relevance, mask)

    train(toy, tmp_path, model=Mixture((0.0, 1.0)), loss=reversed_loss, module={"learning_rate": 10.0})
    (start, retriever) = warnings_of(caplog)
    assert start.startswith("val/ndcg@10 of the best epoch is 0.")
    assert "of the initial model 1.0000. The training made the ranking worse. Try a lower learning rate" in start
    assert "of the retriever 0." in retriever


@pytest.mark.parametrize(("max_epochs", "period"), [(2, "epoch"), (1, "half of the epoch")])
def test_a_loss_that_does_not_fall_is_named(
    max_epochs: int, period: str, toy: PreparedDataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def constant(scores: Tensor, *_: Tensor) -> Tensor:
        return 2.0 + 0.0 * scores.sum()

    train(toy, tmp_path, loss=constant, max_epochs=max_epochs)
    (line,) = warnings_of(caplog)
    assert line.startswith(f"the training loss did not fall: it is 2.0000 in the first {period} and 2.0000 in the last")
    assert line.endswith("Try a higher learning rate, more epochs, or another loss")
