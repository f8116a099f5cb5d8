import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint
from torch.optim.lr_scheduler import StepLR

from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.datamodule import CandidateDataModule
from graphrerank.losses import (
    binary_cross_entropy,
    lambda_loss,
    listwise_softmax_cross_entropy,
    ranknet,
    smooth_perfect_recall,
)
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.training.callbacks import TailAveraging
from graphrerank.training.optimizers import MuonAdamW
from graphrerank.training.reranker_module import RerankerModule
from graphrerank.training.schedules import constant, linear, plateau
from tests.support.device import MadeUpStrategy, Traffic, made_up_device, traffic
from tests.support.stopping import StopAt
from tests.training.conftest import make_toy

LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "bce": binary_cross_entropy,
    "lambda_loss": lambda_loss,
    "listwise": listwise_softmax_cross_entropy,
    "ranknet": ranknet,
    "smooth_pr": partial(smooth_perfect_recall, top_k=2),
}
BATCH_SIZE, STEPS_PER_EPOCH = 8, 4  # 32 training queries


def module(*, dropout: float = 0.0, loss: str = "listwise", **arguments: Any) -> RerankerModule:
    torch.manual_seed(0)
    model = GATv2Reranker(hidden_channels=16, num_layers=2, heads=2, dropout=dropout)
    settings: dict[str, Any] = {"learning_rate": 1e-2, "warmup_steps": 3, "measures": ["PR@2", "nDCG@10"]} | arguments
    return RerankerModule(model, LOSSES[loss], **settings)


def trainer(folder: Path, *callbacks: L.Callback, max_epochs: int = 4, **arguments: Any) -> L.Trainer:
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return L.Trainer(
        accelerator=arguments.pop("accelerator", "cpu"),
        max_epochs=max_epochs,
        default_root_dir=folder,
        callbacks=list(callbacks),
        enable_checkpointing=any(isinstance(c, ModelCheckpoint) for c in callbacks),
        num_sanity_val_steps=0,
        **quiet,
        **arguments,
    )


class Recorder(L.Callback):
    """Keep the loss and the learning rate of each step."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.rates: list[float] = []

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, *_: Any) -> None:
        self.losses.append(float(outputs["loss"]))


@pytest.mark.parametrize("loss", LOSSES)
def test_overfits_a_toy_problem(loss: str, toy: PreparedDataset, tmp_path: Path) -> None:
    recorder, epochs = Recorder(), 40 if loss == "bce" else 20
    run = trainer(tmp_path, recorder, max_epochs=epochs, check_val_every_n_epoch=epochs)
    data = CandidateDataModule(toy, batch_size=BATCH_SIZE, val_split="train")
    made = module(loss=loss, learning_rate=1e-2 if loss == "bce" else 3e-2)
    before = float(run.validate(made, data, verbose=False)[0]["val/pr@2"])
    run.fit(made, data)
    assert before < 0.3
    assert run.callback_metrics["val/pr@2"] > 0.9
    assert sum(recorder.losses[-4:]) < 0.7 * sum(recorder.losses[:4])


def test_a_divergence_keeps_the_order_of_the_retriever(toy: PreparedDataset, tmp_path: Path) -> None:
    data = CandidateDataModule(toy, batch_size=BATCH_SIZE, val_split="train")
    best: dict[float, float] = {}
    for divergence in (0.3, 30.0):
        run = trainer(tmp_path, max_epochs=20, check_val_every_n_epoch=20)
        run.fit(module(divergence=divergence, learning_rate=3e-2), data)
        best[divergence] = float(run.callback_metrics["val/pr@2"])
    assert best[0.3] > 0.6
    assert best[30.0] < 0.3  # the retriever's; above 0.9 without a divergence: test_overfits_a_toy_problem


@pytest.mark.parametrize("warmup_steps", [0, 1, 2])
def test_learning_rate_against_formula(warmup_steps: int, toy: PreparedDataset, tmp_path: Path) -> None:
    recorder = Recorder()
    made = module(warmup_steps=warmup_steps, learning_rate=0.02)
    trainer(tmp_path, recorder, max_epochs=5).fit(made, CandidateDataModule(toy, batch_size=BATCH_SIZE))
    total = 5 * STEPS_PER_EPOCH
    expected = [
        0.02 * (step + 1) / warmup_steps
        if step < warmup_steps
        else 0.01 * (1 + math.cos(math.pi * (step - warmup_steps) / (total - warmup_steps)))
        for step in range(total)
    ]
    assert recorder.rates == pytest.approx(expected)
    assert max(recorder.rates) == pytest.approx(0.02)
    assert recorder.rates[-1] < 0.02 * 0.02  # one step before the zero


def weights(made: L.LightningModule) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in made.state_dict().items()}


PLATEAU = partial(plateau, monitor="val/loss", mode="max", patience=0)  # the loss falls: each epoch reduces the rate
OPTIMIZATIONS: dict[str, dict[str, Any]] = {
    "adamw-cosine": {},
    "sgd-plateau": {"optimizer": partial(torch.optim.SGD, momentum=0.9), "scheduler": PLATEAU},
    "adafactor-step": {"optimizer": torch.optim.Adafactor, "scheduler": partial(StepLR, step_size=1, gamma=0.5)},
    "muon-linear": {"optimizer": MuonAdamW, "scheduler": linear},
    "groups-constant": {"parameter_groups": {"lin_out": 1e-3}, "scheduler": constant},
}


AVERAGES: dict[str, Callable[[], L.Callback]] = {
    "ema": lambda: EMAWeightAveraging(decay=0.9),
    "swa": lambda: TailAveraging(start=0.3),
}


def trained_state(
    toy: PreparedDataset,
    folder: Path,
    optimization: str,
    average: str | None,
    *callbacks: L.Callback,
    draw: int,
    **resume: Any,
) -> dict[str, torch.Tensor]:
    """Train and return all that the training left: weights, metrics, moments and learning rates."""
    made = module(dropout=0.3, seed=5, **OPTIMIZATIONS[optimization])
    averaging = [AVERAGES[average]()] if average else []
    last = ModelCheckpoint(folder, save_last=True, save_on_train_epoch_end=True)
    fitted = trainer(folder, last, *averaging, *callbacks)
    torch.manual_seed(draw)  # another process starts from other randomness
    fitted.fit(made, CandidateDataModule(toy, batch_size=BATCH_SIZE, seed=7), **resume)
    moments = [part for state in fitted.optimizers[0].state.values() for part in state.values()]
    moments += [torch.tensor(group["lr"]) for group in fitted.optimizers[0].param_groups]
    return weights(made) | dict(fitted.callback_metrics) | {str(n): part for n, part in enumerate(moments)}


@pytest.fixture(scope="module")
def unbroken(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str, str | None], dict[str, torch.Tensor]]:
    """The state after an unbroken training, which two tests compare with."""

    @cache
    def trained(optimization: str, average: str | None) -> dict[str, torch.Tensor]:
        return trained_state(make_toy(), tmp_path_factory.mktemp("unbroken"), optimization, average, draw=0)

    return trained


@pytest.mark.parametrize(
    ("optimization", "average"),
    [
        *((name, None) for name in OPTIMIZATIONS),
        ("adamw-cosine", "ema"),
        ("adamw-cosine", "swa"),
        ("sgd-plateau", "swa"),
    ],
)
@pytest.mark.parametrize("stop_at", [2 * STEPS_PER_EPOCH, 2 * STEPS_PER_EPOCH + 3], ids=["between", "within an epoch"])
def test_resumed_run_equals_unbroken_run_bit_for_bit(
    stop_at: int,
    optimization: str,
    average: str | None,
    unbroken: Callable[[str, str | None], dict[str, torch.Tensor]],
    toy: PreparedDataset,
    tmp_path: Path,
) -> None:
    with pytest.raises(RuntimeError, match="power cut"):
        trained_state(toy, tmp_path, optimization, average, StopAt(stop_at), draw=1)
    recorder, last = Recorder(), tmp_path / "last.ckpt"
    resumed = trained_state(toy, tmp_path, optimization, average, recorder, draw=2, ckpt_path=last)
    assert len(recorder.losses) == 2 * STEPS_PER_EPOCH  # epochs 2 and 3 alone
    expected = unbroken(optimization, average)
    assert expected.keys() == resumed.keys()
    assert [name for name in expected if not torch.equal(expected[name], resumed[name])] == []


@pytest.mark.parametrize("accumulated", [1, 2, 4])
def test_no_batch_of_an_accumulated_step_draws_the_same_numbers(
    accumulated: int, toy: PreparedDataset, tmp_path: Path
) -> None:
    seen: list[int] = []
    made = module(seed=3)
    forward = made.training_step
    made.training_step = lambda *batch: (seen.append(torch.initial_seed()), forward(*batch))[1]
    fitted = trainer(tmp_path, max_epochs=1, accumulate_grad_batches=accumulated)
    fitted.fit(made, CandidateDataModule(toy, batch_size=BATCH_SIZE, seed=3))
    assert len(set(seen)) == len(seen) == STEPS_PER_EPOCH
    assert seen[0] == 3 * 1_000_003  # as without accumulation


def test_the_ckpt_and_the_logged_keys(toy: PreparedDataset, tmp_path: Path) -> None:
    made = module(measures=["PR@10", "PR@2/multi", "nDCG@10", "R@5", "MRR"])
    run = trainer(tmp_path, ModelCheckpoint(tmp_path, save_last=True), max_epochs=1)
    run.fit(made, CandidateDataModule(toy, batch_size=BATCH_SIZE))
    expected = {"val/pr@10", "val/pr@2/multi", "val/ndcg@10", "val/r@5", "val/mrr", "val/loss"}
    assert {key for key in run.callback_metrics if key.startswith("val/")} == expected
    assert "train/loss" in run.callback_metrics
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)["state_dict"]  # without running code
    assert all(torch.equal(state[f"model.{name}"], weight) for name, weight in made.model.state_dict().items())


def test_validation_against_naive_loop(toy: PreparedDataset, tmp_path: Path) -> None:
    data = CandidateDataModule(toy, batch_size=5)  # 16 queries: the last batch is smaller
    made = module(measures=["PR@2", "nDCG@10", "PR@2/multi"]).eval()
    torch.nn.init.normal_(made.model.lin_out.weight)
    found = trainer(tmp_path).validate(made, data, verbose=False)[0]
    qrels = toy.dataset.split("val")
    perfect = gain = 0.0
    for query in qrels.queries:
        graphs = toy.graphs(query[None], split="val")
        with torch.no_grad():
            scores = made(graphs).tolist()
        nodes = graphs.nodes.tolist()
        ranked = [nodes[i] for i in sorted(range(len(nodes)), key=lambda i: (-scores[i], nodes[i]))]
        relevant = set(qrels.node[qrels.query == query].tolist())
        perfect += relevant <= set(ranked[:2])
        gain += sum(1 / math.log2(rank + 2) for rank, node in enumerate(ranked[:10]) if node in relevant)
    assert found["val/pr@2"] == found["val/pr@2/multi"] == pytest.approx(perfect / 16)  # all have two
    assert found["val/ndcg@10"] == pytest.approx(gain / 16 / (1 + 1 / math.log2(3)), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("learning_rate", 0.0, "must be a finite number above 0, got 0.0"),
        ("weight_decay", -1.0, "must not be negative, got -1.0"),
        ("warmup_steps", -1, "must not be negative, got -1"),
        ("divergence", -0.1, "must not be negative, got -0.1"),
        ("measures", [], "must contain at least one measure and no duplicates"),
        ("measures", ["R@3", "R@3"], "must contain at least one measure and no duplicates"),
    ],
)
def test_arguments_out_of_range_are_refused(name: str, bad: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"`{name}.*{message}"):
        module(**{name: bad})


@pytest.mark.parametrize(
    "loss", [loss if not place else pytest.param(loss, marks=pytest.mark.slow) for place, loss in enumerate(LOSSES)]
)
def test_a_device_trains_as_the_cpu_does(loss: str, toy: PreparedDataset, tmp_path: Path) -> None:
    found, costs = [], list[Traffic]()

    def fit(batch_size: int, **where: Any) -> None:
        run, made = trainer(tmp_path, max_epochs=2, gradient_clip_val=1.0, **where), module(loss=loss)
        before = traffic.now()
        run.fit(made, CandidateDataModule(toy, batch_size=batch_size))
        costs.append(traffic - before)
        found.append((weights(made), {key: float(number) for key, number in run.callback_metrics.items()}))

    fit(8)
    with made_up_device():
        fit(8, accelerator="auto", strategy=MadeUpStrategy())
        fit(4, accelerator="auto", strategy=MadeUpStrategy())
    (here, here_logged), (there, there_logged), _ = found
    for name, expected in here.items():
        torch.testing.assert_close(there[name], expected)
    assert there_logged == pytest.approx(here_logged)
    assert costs[0] == Traffic()
    added = costs[2] - costs[1]  # by eight batches of training and four of validation, of half the size
    assert (added.to_host, added.to_device) <= (8 * 6 + 4 * 7, 8 * 8 + 4 * 10)


def test_validation_ranks_in_float32_whatever_the_precision(toy: PreparedDataset, tmp_path: Path) -> None:
    made, dtypes = module(), set[torch.dtype]()
    made.model.register_forward_hook(lambda _, __, scores: dtypes.add(scores.dtype))
    trainer(tmp_path, precision="bf16-mixed").validate(made, CandidateDataModule(toy), verbose=False)
    assert dtypes == {torch.float32}


@pytest.mark.skipif(torch.cuda.is_available(), reason="a forked process cannot use CUDA")
@pytest.mark.parametrize("loss", ["listwise", "bce"])
def test_two_processes_against_one(loss: str, toy: PreparedDataset, tmp_path: Path) -> None:
    """The last batch of an epoch is a single query, of which the second process has none."""
    found = []
    for devices in (1, 2):
        strategy = {"strategy": "ddp_fork", "use_distributed_sampler": False} if devices == 2 else {}
        run = trainer(tmp_path, devices=devices, max_epochs=3, gradient_clip_val=1.0, **strategy)
        made = module(loss=loss)
        run.fit(made, CandidateDataModule(toy, batch_size=31))
        matrices = {name: part for name, part in weights(made).items() if part.dim() > 1}
        found.append((matrices, {key: float(number) for key, number in run.callback_metrics.items()}))
    (alone, alone_logged), (shared, shared_logged) = found
    # by matrix, and not biases: where a gradient is next to nothing, Adam makes whole steps of its rounding
    for name, before in weights(module(loss=loss)).items():
        if before.dim() > 1:
            assert (shared[name] - alone[name]).norm() < 0.05 * (alone[name] - before).norm(), name
    assert shared_logged == pytest.approx(alone_logged, rel=1e-5)
    assert {"train/loss_epoch", "val/loss", "val/pr@2"} <= alone_logged.keys()


def test_the_loss_of_validation_does_not_depend_on_the_batches(toy: PreparedDataset, tmp_path: Path) -> None:
    """Of queries with a relevant candidate alone: the others have no loss."""
    nodes = toy.ranking.nodes.clone()
    nodes[32:40] = torch.arange(80).unsqueeze(0)[:, :12]
    lost = replace(toy, ranking=replace(toy.ranking, nodes=nodes))
    assert lost.ceiling("val") < 1
    made = module()
    losses = [
        trainer(tmp_path).validate(made, CandidateDataModule(lost, batch_size=size), verbose=False)[0]["val/loss"]
        for size in (1, 5, 16)
    ]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)
