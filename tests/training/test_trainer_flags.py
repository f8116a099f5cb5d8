"""Every flag of ``lightning.Trainer`` that makes sense here, with the modules of all three trainings."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.profilers import SimpleProfiler

from graphrerank.core import CandidateGraphs
from graphrerank.core.model_inputs import PAIRS
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.datamodule import CandidateDataModule
from graphrerank.data.vector_cache import PairCache
from graphrerank.losses import listwise_softmax_cross_entropy
from graphrerank.models.granker import GRankerHead, head_arguments
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.training import AtomicCheckpoints, RerankerModule
from graphrerank.utils.checks import UserError
from graphrerank_papers.ea_graphrag.adapter_module import AdapterDataModule
from tests.papers.ea_graphrag.rows import module as adapter_module
from tests.papers.ea_graphrag.rows import planted
from tests.training.test_granker_training import encoder, letters  # noqa: F401  # fixtures
from tests.training.test_reranker_module import module as reranker_module

Pair = tuple[L.LightningModule, L.LightningDataModule]
QUIET = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
#: Settings of a trainer. Each flag is in one of them with a value that is not its default.
SETTINGS: dict[str, dict[str, Any]] = {
    "barebones": {"barebones": True, "logger": None, "enable_progress_bar": None, "enable_model_summary": None},
    "fast_dev_run": {"fast_dev_run": 2},
    "overfit_batches": {"overfit_batches": 1},
    "precision": {"precision": "64-true"},
    "limits": {
        "limit_train_batches": 0.5,
        "limit_val_batches": 1,
        "limit_test_batches": 1,
        "limit_predict_batches": 1,
        "val_check_interval": 1,
    },
    "max_steps": {"max_steps": 2, "max_epochs": -1, "accumulate_grad_batches": 2, "gradient_clip_val": 0.5},
    "epochs": {
        "max_epochs": 2,
        "min_epochs": 1,
        "min_steps": 1,
        "max_time": {"minutes": 10},
        "check_val_every_n_epoch": 2,
        "reload_dataloaders_every_n_epochs": 1,
        "gradient_clip_algorithm": "value",
        "gradient_clip_val": 0.5,
    },
    "machine": {
        "accelerator": "auto",
        "devices": 1,
        "num_nodes": 1,
        "strategy": "auto",
        "plugins": [AtomicCheckpoints()],
        "benchmark": True,
        "sync_batchnorm": True,
        "use_distributed_sampler": False,
    },
    "checks": {"deterministic": True, "detect_anomaly": True, "inference_mode": False, "num_sanity_val_steps": 1},
    "output": {
        "logger": True,
        "log_every_n_steps": 1,
        "enable_autolog_hparams": False,
        "enable_checkpointing": True,
        "enable_model_summary": True,
        "enable_progress_bar": True,
        "profiler": SimpleProfiler(),
        "callbacks": [L.Callback()],
    },
}
#: Flags that are not about a training: a registry of Lightning's cloud, and a folder that every test sets.
OTHERS = {"model_registry", "default_root_dir"}


@pytest.fixture
def pairs(
    toy: PreparedDataset,
    letters: PreparedDataset,  # noqa: F811
    encoder: CrossEncoder,  # noqa: F811
    tmp_path: Path,
) -> dict[str, Callable[[], Pair]]:
    """A module and a data module of each training, with few weights and few queries."""

    def reranker() -> Pair:
        return reranker_module(dropout=0.1), CandidateDataModule(toy, batch_size=8, test_split="val")

    def granker() -> Pair:
        model = GRankerHead(**head_arguments(encoder))
        model.start_from(encoder)
        prepared = replace(letters, pair_encoder=PairCache(encoder, tmp_path / "pairs"))
        splits = {"train_split": "train", "val_split": "train", "test_split": "train"}
        module = RerankerModule(model, listwise_softmax_cross_entropy, measures=["nDCG@10"], warmup_steps=1)
        return module, CandidateDataModule(prepared, batch_size=4, inputs=PAIRS, **splits)

    def adapter() -> Pair:
        rows = planted(48)
        return adapter_module(rows), AdapterDataModule(rows, planted(24, 1), batch_size=16, test=planted(24, 2))

    return {"reranker": reranker, "granker": granker, "adapter": adapter}


TRAININGS = ["reranker", "granker", "adapter"]


def test_every_flag_of_the_trainer_is_listed() -> None:
    listed = {flag for flags in SETTINGS.values() for flag in flags}
    assert set(inspect.signature(L.Trainer).parameters) == listed | OTHERS


def run_all(pair: Pair, folder: Path, **flags: Any) -> L.Trainer:
    """Fit, validate, test and predict with one trainer."""
    settings = {**QUIET, "max_epochs": 1, "enable_checkpointing": False, "default_root_dir": folder, **flags}
    trainer = L.Trainer(**settings)
    trainer.fit(*pair)
    trainer.validate(*pair, verbose=False)
    trainer.test(*pair, verbose=False)
    assert trainer.predict(*pair)
    return trainer


#: Settings that are tried by default; the others are slow in sum.
COMMON = {"fast_dev_run", "overfit_batches", "precision", "limits"}


@pytest.mark.filterwarnings("ignore")  # Lightning's tips about small data
@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in COMMON else pytest.mark.slow) for name in SETTINGS]
)
def test_flags_work(name: str, training: str, pairs: dict[str, Callable[[], Pair]], tmp_path: Path) -> None:
    if name == "barebones":
        L.Trainer(**SETTINGS[name], accelerator="cpu", max_epochs=1).fit(*pairs[training]())
        return
    module, data = pairs[training]()
    before = {name: weight.clone() for name, weight in module.named_parameters()}
    run_all((module, data), tmp_path, **SETTINGS[name])
    moved = [name for name, weight in module.named_parameters() if not torch.equal(weight, before[name].to(weight))]
    assert moved
    assert all(bool(weight.isfinite().all()) for weight in module.parameters())


@pytest.mark.parametrize("training", TRAININGS)
def test_float16_weights_are_refused(training: str, pairs: dict[str, Callable[[], Pair]], tmp_path: Path) -> None:
    trainer = L.Trainer(**QUIET, precision="16-true", enable_checkpointing=False, default_root_dir=tmp_path)
    with pytest.raises(UserError, match=r"`precision` must be 32-true, .* got 16-true"):
        trainer.fit(*pairs[training]())


def test_overfitting_sees_the_same_queries_in_every_epoch(toy: PreparedDataset, tmp_path: Path) -> None:
    seen: list[list[int]] = []
    module = reranker_module()
    step = module.training_step

    def recorded(graphs: CandidateGraphs, batch_idx: int) -> torch.Tensor:
        seen.append(graphs.query_index.tolist())
        return step(graphs, batch_idx)

    module.training_step = recorded
    trainer = L.Trainer(**QUIET, max_epochs=3, overfit_batches=2, enable_checkpointing=False, default_root_dir=tmp_path)
    trainer.fit(module, CandidateDataModule(toy, batch_size=8))
    assert seen == seen[:2] * 3
    assert seen[0] != seen[1]


def test_double_precision_scores_with_doubles(toy: PreparedDataset, tmp_path: Path) -> None:
    trainer = L.Trainer(**QUIET, precision="64-true", default_root_dir=tmp_path)
    module = reranker_module()
    types: list[torch.dtype] = []
    module.model.register_forward_hook(lambda _module, _inputs, scores: types.append(scores.dtype))
    trainer.validate(module, CandidateDataModule(toy, batch_size=8), verbose=False)
    assert set(types) == {torch.float64}


@pytest.mark.slow  # compiles
@pytest.mark.parametrize("training", TRAININGS)
def test_a_compiled_module_ends_as_an_eager_one(
    training: str, pairs: dict[str, Callable[[], Pair]], tmp_path: Path
) -> None:
    ends = []
    for compiled in (False, True):
        torch.manual_seed(0)
        module, data = pairs[training]()
        run_all((torch.compile(module, backend="eager") if compiled else module, data), tmp_path)
        ends.append(module.state_dict())
    for name, weight in ends[0].items():
        torch.testing.assert_close(ends[1][name], weight, atol=1e-5, rtol=1e-4)
