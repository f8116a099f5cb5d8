"""Training in plain Python."""

from functools import partial
from pathlib import Path

import lightning as L
import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from graphrerank import GraphReranker, fit
from graphrerank.config.components import ComponentFactory
from graphrerank.config.settings.train import TrainSettings
from graphrerank.core import ModelInputs
from graphrerank.data.dataset import Dataset
from graphrerank.models.manifest import MANIFEST, read_manifest, write_manifest
from graphrerank.models.registry import register_model
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.training import AtomicCheckpoints, RerankerModule, TrainingModule
from graphrerank.training.fit import built_trainer, module_factory
from graphrerank.training.settings import FitSettings
from tests.support import CONF
from tests.support.folders import write_dataset

QUIET = {"enable_progress_bar": False, "accelerator": "cpu"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A corpus of pairs: the answer lies next to the passage that shares the question's word."""
    words = [f"word{number}" for number in range(24)]
    corpus = [{"_id": f"a{n}", "title": "", "text": f"about {word}"} for n, word in enumerate(words)]
    corpus += [{"_id": f"b{n}", "title": "", "text": f"answer {n}"} for n, _ in enumerate(words)]
    split = {"train": range(16), "val": range(16, 20), "test": range(20, 24)}
    return write_dataset(
        tmp_path / "pairs",
        corpus=corpus,
        queries=[{"_id": f"q{n}", "text": f"what of {word}?"} for n, word in enumerate(words)],
        edges=[(f"a{n}", f"b{n}", "link") for n, _ in enumerate(words)],
        **{name: [(f"q{n}", f"b{n}", 1) for n in numbers] for name, numbers in split.items()},
    )


@pytest.fixture
def parts(tmp_path: Path) -> ComponentFactory:
    return ComponentFactory(cache=tmp_path / "cache", device="cpu")


def small(folder: Path, parts: ComponentFactory, **arguments):
    usual = {
        "retriever": "bm25", "encoder": None, "features": "scores", "max_epochs": 2, "trainer": QUIET,
        "run_dir": folder / "run",
    }  # fmt: skip
    return fit(Dataset.from_folder(folder, edges=["edges.tsv"]), parts=parts, **{**usual, **arguments})


def test_a_fitted_reranker_is_saved_and_loaded_by_every_command(
    folder: Path, parts: ComponentFactory, tmp_path: Path
) -> None:
    reranker = small(folder, parts)
    arguments = {"passages": ["about word1", "answer 1", "else"], "edges": [(0, 1)], "scores": [2.0, 0.0, 1.0]}
    scores = reranker.rerank("what of word1?", **arguments).scores
    for source in (reranker.source, folder / "run", reranker.save(tmp_path / "saved")):
        again = GraphReranker.from_pretrained(source)
        assert torch.equal(again.rerank("what of word1?", **arguments).scores, scores)
    manifest = read_manifest(folder / "run" / "gatv2")
    assert (manifest.content["finished"], manifest.content["data"]["choice"]) == (True, "pairs")
    assert manifest.content["retriever"]["choice"] == "bm25"


def test_one_seed_gives_one_result(folder: Path, parts: ComponentFactory) -> None:
    weights = [
        small(folder, parts, name=name, seed=seed, max_epochs=1).checkpoint.model.state_dict()
        for name, seed in (("first", 3), ("second", 3), ("third", 4))
    ]
    equal = [all(torch.equal(weights[0][name], other[name]) for name in weights[0]) for other in weights[1:]]
    assert equal == [True, False]


def test_optimizer_schedule_and_groups_are_parts(folder: Path, parts: ComponentFactory) -> None:
    arguments = {"max_epochs": 1, "calibration": None, "parameter_groups": {"lin_out": 1e-4}}
    small(folder, parts, optimizer=partial(torch.optim.SGD, momentum=0.9), scheduler="linear", **arguments)
    content = read_manifest(folder / "run" / "gatv2").content
    assert content["optimizer"] == {
        "name": "torch.optim.sgd.SGD",
        "arguments": {"momentum": 0.9},
        "parameter_groups": {"lin_out": 1e-4},
    }
    assert content["scheduler"] == {"name": "graphrerank.training.schedules.linear", "arguments": {}}
    assert content["parameters"]["all"] == content["parameters"]["trained"] > 1000
    state = torch.load(folder / "run" / "gatv2" / "checkpoints" / "last.ckpt", weights_only=True)
    assert [group["momentum"] for group in state["optimizer_states"][0]["param_groups"]] == [0.9] * 4


@pytest.mark.parametrize("name", ["ema", "swa"])
def test_the_average_is_saved_and_returned(name: str, folder: Path, parts: ComponentFactory) -> None:
    reranker = small(folder, parts, callbacks=name, calibration=None, scheduler="constant", batch_size=4)
    saved = torch.load(reranker.source, weights_only=True)
    returned = {f"model.{key}": weight for key, weight in reranker.checkpoint.model.state_dict().items()}
    assert all(torch.equal(saved["state_dict"][key], weight) for key, weight in returned.items())
    last = torch.load(Path(reranker.source).parent / "last.ckpt", weights_only=True)
    average, current = last["state_dict"], last["current_model_state"]
    assert any(not torch.equal(average[key], current[key]) for key in returned)


class Fixed(RerankerModule):
    """A module of a user whose constructor has no argument for the optimiser."""

    def __init__(self, model, loss, *, learning_rate, weight_decay, warmup_steps, seed, val_names) -> None:
        super().__init__(model, loss, learning_rate=learning_rate, seed=seed, val_names=val_names)


def test_a_module_without_an_argument_for_the_optimizer(folder: Path, parts: ComponentFactory) -> None:
    module = {"_target_": f"{Fixed.__module__}.Fixed"}
    small(folder, parts, module=module, max_epochs=1, calibration=None)
    assert read_manifest(folder / "run" / "gatv2").content["optimizer"]["name"] == "torch.optim.adamw.AdamW"
    with pytest.raises(ValueError, match="`optimizer` must be an argument of the module's constructor"):
        small(folder, parts, module=module, optimizer="sgd", name="other")


def test_a_resumed_run_has_the_optimizer_of_its_run(folder: Path, parts: ComponentFactory) -> None:
    small(folder, parts, max_epochs=1, optimizer="sgd")
    path = folder / "run" / "gatv2" / MANIFEST
    write_manifest(path.parent, read_manifest(path.parent).content | {"finished": False})  # as if it was interrupted
    with pytest.raises(ValueError, match=r"settings of its run, which has optimizer\."):
        small(folder, parts, max_epochs=1, resume=folder / "run")


class Neighbourly(nn.Module):
    """Adds to each score those of its neighbours."""

    inputs = ModelInputs(("base_features", "edge_index"))

    def __init__(self) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.zeros(1))

    def forward(self, base_features: Tensor, edge_index: Tensor) -> Tensor:
        base = base_features[:, 0]
        return base + self.share * torch.zeros_like(base).index_add(0, edge_index[1], base[edge_index[0]])


def margin(scores: Tensor, relevance: Tensor, mask: Tensor) -> Tensor:
    return -(scores * (relevance > 0))[mask].sum()


def test_parts_may_be_objects_that_nothing_registers(folder: Path, parts: ComponentFactory) -> None:
    model = Neighbourly()
    retriever = partial(BM25Retriever, top_k=48)
    reranker = small(folder, parts, model=model, loss=margin, retriever=retriever, calibration=None)
    assert float(model.share.detach()) > 0  # answers are neighbours of what BM25 finds
    assert reranker.checkpoint.model is model
    assert read_manifest(folder / "run" / "Neighbourly").model.name == register_model(Neighbourly)


class ScaledScores(nn.Module):
    """Scales a linear combination of the features."""

    inputs = ModelInputs(("base_features",))

    def __init__(self, *, num_scores: int, scale: float = 2.0) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(num_scores, 1), scale

    def forward(self, base_features: Tensor) -> Tensor:
        return self.scale * self.linear(base_features).squeeze(1)


def test_a_class_is_built_with_the_sizes_of_the_data(folder: Path, parts: ComponentFactory) -> None:
    reranker = small(folder, parts, model=ScaledScores, max_epochs=1, calibration=None)
    assert isinstance(reranker.checkpoint.model, ScaledScores)
    num_scores = reranker.checkpoint.model.linear.in_features
    assert read_manifest(folder / "run" / "ScaledScores").model.arguments == {"num_scores": num_scores}


def test_a_class_within_a_function_is_refused(folder: Path, parts: ComponentFactory) -> None:
    class Local(ScaledScores):
        """Cannot be imported."""

    with pytest.raises(ValueError, match="`model` must be a class at the top level of a module"):
        small(folder, parts, model=Local)


def test_several_data_sets_are_trained_on_together(folder: Path, parts: ComponentFactory) -> None:
    dataset = Dataset.from_folder(folder, edges=["edges.tsv"])
    fit(
        {"first": dataset, "second": dataset}, parts=parts, run_dir=folder / "run", retriever="bm25", encoder=None,
        features="scores", max_epochs=1, trainer=QUIET, shares={"first": 1, "second": 3},
    )  # fmt: skip
    manifest = read_manifest(folder / "run" / "gatv2")
    assert list(manifest.trained_on) == ["first", "second"]


def test_nothing_to_learn_is_refused_and_leaves_nothing_finished(folder: Path, parts: ComponentFactory) -> None:
    with pytest.raises(ValueError, match="no query of split 'train' has a relevant candidate"):
        small(folder, parts, retriever=partial(BM25Retriever, top_k=1))
    assert not (folder / "run" / "gatv2" / MANIFEST).exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "gatv3"}, "Could not find 'model/gatv3'|must be the name of a file of conf/model"),
        ({"calibration": "linear"}, "calibration"),
        ({"calibration": "start"}, "`start` must be a checkpoint"),
        ({"train_split": "dev"}, "must have the split 'dev', got the splits"),
        ({"features": "full"}, "`encoder` must be set"),
    ],
)
def test_what_does_not_fit_is_refused_before_training(
    folder: Path, parts: ComponentFactory, arguments, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        small(folder, parts, **arguments)


def test_defaults_are_those_of_the_command() -> None:
    command, module = TrainSettings(), OmegaConf.load(CONF / "module" / "reranker.yaml")
    settings = FitSettings()
    for name in ("learning_rate", "weight_decay", "warmup_steps"):
        assert getattr(settings, name) == float(module[name])
    given = command.batches.batch_size, command.seed, command.calibration
    assert (settings.batch_size, settings.seed, settings.calibration) == given


def test_arguments_change_the_settings_that_are_given(folder: Path, parts: ComponentFactory) -> None:
    reranker = small(folder, parts, settings=FitSettings(seed=5, calibration=None, max_epochs=9), max_epochs=1)
    content = reranker.checkpoint.manifest.content
    assert (content["config"]["seed"], "calibration" in content) == (5, False)
    epochs = torch.load(reranker.source, weights_only=True)["epoch"]
    assert epochs == 0  # the first and only one


def test_trainer_settings_of_conf_and_of_classes_are_built(tmp_path: Path) -> None:
    complete = built_trainer({"_target_": "lightning.Trainer", "max_epochs": 3, "default_root_dir": str(tmp_path)})
    assert isinstance(complete, partial)
    assert (complete.func, complete.keywords["max_epochs"]) == (L.Trainer, 3)
    changes = built_trainer({"plugins": [{"_target_": "graphrerank.training.AtomicCheckpoints"}], "devices": [0]})
    assert isinstance(changes, dict)
    assert [type(each) for each in changes["plugins"]] == [AtomicCheckpoints]
    assert changes["devices"] == [0]


def test_a_module_is_a_class_with_further_arguments() -> None:
    named = module_factory({"_target_": "graphrerank.training.TrainingModule", "seed": 3})
    assert (named.func, dict(named.keywords)) == (TrainingModule, {"seed": 3})
    assert module_factory({"divergence": 0.1}).func is RerankerModule
    assert dict(module_factory(None).keywords) == {}


def test_a_buffer_for_all_queries_gives_the_scores_of_a_training_in_memory(
    folder: Path, parts: ComponentFactory
) -> None:
    weights = []
    for buffer in (None, 100, 3):
        reranker = small(
            folder, parts, run_dir=folder / str(buffer), buffer=buffer, batch_size=4, features="scores_match"
        )
        weights.append(torch.cat([weight.flatten() for weight in reranker.checkpoint.model.parameters()]))
        assert len(list((parts.cache / "candidates").rglob("table.json"))) == (buffer is not None)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert read_manifest(folder / "3" / "gatv2").content["training"]["buffer"] == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"buffer": 0}, "`buffer` must be a positive integer, got 0"),
        ({"buffer": 5, "model": "granker_head", "pair_encoder": "cross_encoder"}, "`buffer` must be null for models"),
        (
            {"buffer": 5, "features": "scores_match_typed_cross_encoder", "pair_encoder": "cross_encoder"},
            "`buffer` must be null for models and features of a cross-encoder, got 5",
        ),
        (
            {"buffer": 5, "loss": "kl", "teacher": "cross_encoder", "pair_encoder": "cross_encoder"},
            "`buffer` must be null for a training with a teacher, got 5",
        ),
    ],
)
def test_a_buffer_is_refused_with_scores_for_all_queries(
    folder: Path, parts: ComponentFactory, changes: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        small(folder, parts, **changes)
