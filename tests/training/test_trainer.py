"""The steps of a training, each alone."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.core.global_hydra import GlobalHydra

from graphrerank import Dataset, FitSettings, GraphReranker, RerankerTrainer
from graphrerank.config.components import ComponentFactory
from graphrerank.losses import listwise_softmax_cross_entropy
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.manifest import MANIFEST, parse_manifest, read_manifest
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.training import RerankerModule
from graphrerank.training.trainer import BuiltTraining
from tests.support.folders import write_dataset

CPU = {"enable_progress_bar": False, "accelerator": "cpu"}


@pytest.fixture
def parts(tmp_path: Path) -> ComponentFactory:
    return ComponentFactory(cache=tmp_path / "cache", device="cpu")


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Twenty pairs of passages: the answer is linked to the passage that shares the question's word."""
    numbers = range(20)
    folder = write_dataset(
        tmp_path / "pairs",
        corpus=[{"_id": f"a{n}", "title": "", "text": f"about word{n}"} for n in numbers]
        + [{"_id": f"b{n}", "title": "", "text": f"answer {n}"} for n in numbers],
        queries=[{"_id": f"q{n}", "text": f"what of word{n}?"} for n in numbers],
        edges=[(f"a{n}", f"b{n}", "link") for n in numbers],
        train=[(f"q{n}", f"b{n}", 1) for n in range(12)],
        val=[(f"q{n}", f"b{n}", 1) for n in range(12, 20)],
    )
    return Dataset.from_folder(folder, edges=["edges.tsv"])


@pytest.fixture
def make(dataset: Dataset, parts: ComponentFactory, tmp_path: Path) -> Any:
    def trainer(model: Any = "gatv2", *, data: Any = dataset, **arguments: Any) -> RerankerTrainer:
        settings = FitSettings(
            **{"max_epochs": 1, "restart_probs": {"gcs": 0.4, "ppr": 0.3}} | arguments.pop("fit", {})
        )
        usual: dict[str, Any] = {"retriever": "bm25", "encoder": None, "features": "scores", "trainer": CPU}
        return RerankerTrainer(
            model, settings, data, **usual | {"run_dir": tmp_path / "run", "parts": parts} | arguments
        )

    return trainer


def test_prepare_finds_candidates_once(make: Any) -> None:
    data = make().prepare()
    assert list(data.prepared) == ["pairs"]
    assert data.retriever.choice == "bm25"
    assert make(data=data).prepare() is data


def test_build_describes_the_training_and_depends_on_the_seed_alone(make: Any, tmp_path: Path) -> None:
    data = make().prepare()
    first, same, other = (make(data=data, fit={"seed": seed}).build(data) for seed in (3, 3, 4))
    assert isinstance(first, BuiltTraining)
    manifest = parse_manifest(first.manifest, tmp_path)
    assert (manifest.model.name, first.manifest["finished"]) == ("gatv2_reranker", False)
    assert first.manifest["operators"] == {"gcs": 0.4, "ppr": 0.3}
    weights = [training.network.state_dict() for training in (first, same, other)]
    equal = [all(torch.equal(part, state[name]) for name, part in weights[0].items()) for state in weights[1:]]
    assert equal == [True, False]


def test_initialize_freezes_what_is_not_trained(make: Any) -> None:
    trainer = make(fit={"train_only": ["lin_out"]})
    training = trainer.build(trainer.prepare())
    trainer.initialize(training)
    trained = {name.split(".")[0] for name, weight in training.network.named_parameters() if weight.requires_grad}
    assert trained == {"lin_out"}


def test_module_and_batches_have_the_settings(make: Any) -> None:
    trainer = make(
        fit={"learning_rate": 0.01, "warmup_steps": 2, "batch_size": 5, "seed": 6},
        measures=["MRR", "nDCG@10"],
        loss=listwise_softmax_cross_entropy,
        module=partial(RerankerModule, divergence=0.2, warmup_steps=4),
    )
    training = trainer.build(trainer.prepare())
    module, batches = trainer.build_module(training), trainer.build_batches(training)
    assert (module.learning_rate, module.divergence, module.seed) == (0.01, 0.2, 6)
    assert module.warmup_steps == 4  # a partial's arguments hold
    assert [measure.name for measure in module.measures] == ["MRR", "nDCG@10"]
    assert module.loss is listwise_softmax_cross_entropy
    assert (batches.batch_size, batches.inputs) == (5, training.network.inputs)


def test_optimize_calibrate_and_save_alone(make: Any, tmp_path: Path) -> None:
    trainer = make()
    training = trainer.optimize(trainer.build(trainer.prepare()))
    folder = tmp_path / "run" / "gatv2"
    assert training.manifest["finished"]
    assert training.manifest["validation"]["measure"] == "val/ndcg@10"
    assert "calibration" not in read_manifest(folder).content
    calibration = trainer.calibrate(training)
    assert calibration["calibration"]["fitted"]["datasets"] == ["pairs"]
    reranker = trainer.save(training, calibration)
    assert read_manifest(folder).content["calibration"] == reranker.checkpoint.manifest.content["calibration"]
    assert Path(reranker.source) == trainer.session.best


def test_a_finished_training_is_not_trained_again(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make().train()
    monkeypatch.setattr(RerankerModule, "training_step", lambda *_: pytest.fail("trained again"))
    again = make(resume=tmp_path / "run", run_dir=None).train()
    assert again.checkpoint.manifest.content["finished"]


def test_a_built_model_is_trained_as_a_named_one(make: Any) -> None:
    """A model that the caller builds with the same seed ends with the same weights."""
    named = make(name="named").train()
    torch.manual_seed(FitSettings().seed)
    arguments = named.checkpoint.manifest.model.arguments
    built = make(GATv2Reranker(**arguments), name="built").train()
    state = named.checkpoint.model.state_dict()
    assert all(torch.equal(part, state[name]) for name, part in built.checkpoint.model.state_dict().items())


def test_other_processes_return_the_reranker_too(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make().train()
    trainer = make()
    training = trainer.build(trainer.prepare())
    monkeypatch.setenv("RANK", "1")
    assert trainer.calibrate(training) == {}
    other = trainer.save(training, {})
    assert isinstance(other, GraphReranker)
    assert other.checkpoint.manifest.content["calibration"] == first.checkpoint.manifest.content["calibration"]


def test_other_processes_without_the_folder_raise(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make()
    training = trainer.build(trainer.prepare())
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ValueError, match="no such checkpoint"):
        trainer.save(training, {})
    assert not (tmp_path / "run" / "gatv2" / MANIFEST).exists()


def test_resume_must_be_a_run(make: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        make(resume=tmp_path / "nothing")


def test_built_parts_need_no_configuration_of_hydra(make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Data, model, loss, retriever, trainer and callbacks are plain Python: nothing of ``conf`` is composed."""

    def refuse() -> GlobalHydra:
        raise AssertionError("Hydra composed a configuration")

    monkeypatch.setattr(GlobalHydra, "instance", refuse)
    trainer = make(
        GATv2Reranker(features="scores", num_scores=2),
        fit={"restart_probs": None},
        features={},
        retriever=partial(BM25Retriever, top_k=40),
        loss=listwise_softmax_cross_entropy,
        trainer={"accelerator": "cpu"},
    )
    assert trainer.train().name == "GATv2Reranker"
    with pytest.raises(AssertionError, match="Hydra composed"):
        make(loss="bce").train()
