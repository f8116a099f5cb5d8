"""Loading of batches in a training: worker processes, budgets, and Lightning's search for the batch size."""

from functools import partial
from pathlib import Path

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.tuner import Tuner
from torch import Tensor

from graphrerank.data.augmentation import CandidateAugmentation
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.datamodule import CandidateDataModule
from graphrerank.losses import listwise_softmax_cross_entropy
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.training import RerankerModule
from tests.support.stopping import StopAt

BUDGET = {"max_nodes": 60, "max_edges": 80}  # of graphs with 12 nodes


def network_module() -> RerankerModule:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = GATv2Reranker(features="scores", num_scores=3, dropout=0.2)
    return RerankerModule(network, listwise_softmax_cross_entropy, warmup_steps=2, seed=1)


def weights(module: L.LightningModule) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


trainer = partial(
    L.Trainer, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
    use_distributed_sampler=False, enable_checkpointing=False, max_epochs=2,
)  # fmt: skip


@pytest.mark.parametrize("budget", [{}, BUDGET])
def test_one_seed_gives_one_result_for_any_number_of_workers(toy: PreparedDataset, budget: dict[str, int]) -> None:
    results = []
    for num_workers in (0, 2):
        augmentation = CandidateAugmentation(toy.feature_names, score_dropout=0.5, edge_dropout=0.3)
        data = CandidateDataModule(toy, batch_size=5, augmentation=augmentation, num_workers=num_workers, **budget)
        module = network_module()
        trainer().fit(module, datamodule=data)
        results.append(weights(module))
    assert torch.equal(*results)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("buffer", [None, 7])
def test_a_run_with_a_budget_resumes_within_an_epoch(
    toy: PreparedDataset, tmp_path: Path, num_workers: int, buffer: int | None
) -> None:
    def run(*callbacks: L.Callback, resume: Path | None = None) -> Tensor:
        module, data = network_module(), CandidateDataModule(toy, num_workers=num_workers, buffer=buffer, **BUDGET)
        trainer(callbacks=list(callbacks), enable_checkpointing=bool(callbacks)).fit(
            module, datamodule=data, ckpt_path=resume, weights_only=True
        )
        return weights(module)

    whole = run()
    steps = 2 * len(CandidateDataModule(toy, buffer=buffer, **BUDGET).train_dataloader())
    stop = steps // 2 + 2  # in the second epoch
    with pytest.raises(RuntimeError, match="power cut"):
        run(ModelCheckpoint(tmp_path, save_last=True, every_n_train_steps=1), StopAt(stop))
    assert torch.equal(run(resume=tmp_path / "last.ckpt"), whole)


def test_scale_batch_size_of_lightning(toy: PreparedDataset, tmp_path: Path) -> None:
    """The search restores the weights, so the training equals one that starts with the batch size."""
    module, data = network_module(), CandidateDataModule(toy, batch_size=16)
    searching = trainer(default_root_dir=tmp_path)
    size = Tuner(searching).scale_batch_size(
        module, datamodule=data, mode="power", init_val=2, max_trials=2, steps_per_trial=2
    )
    assert size == data.batch_size == 4
    assert next(iter(data.train_dataloader())).num_graphs == 4
    searching.fit(module, datamodule=data)
    other = network_module()
    trainer().fit(other, datamodule=CandidateDataModule(toy, batch_size=4))
    assert torch.equal(weights(module), weights(other))


def test_the_batch_size_stops_at_the_number_of_queries(toy: PreparedDataset, tmp_path: Path) -> None:
    data = CandidateDataModule(toy)
    tuner = Tuner(trainer(default_root_dir=tmp_path))
    size = tuner.scale_batch_size(network_module(), datamodule=data, init_val=8, steps_per_trial=1)
    assert 32 <= size <= 64
