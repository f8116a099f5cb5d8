"""Each entry of the manifest of a training, on two data sets of which one has vectors."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from graphrerank.config.components import ConfiguredComponent
from graphrerank.models.checkpoint import load_primary
from graphrerank.training import manifest
from graphrerank.training.settings import FitSettings
from graphrerank.training.training_data import TrainingData


def prepared(fingerprint: str, *, dim: int | None = 3) -> Any:
    embedding = None if dim is None else torch.zeros(2, dim)
    dataset = SimpleNamespace(fingerprint=fingerprint, graph=SimpleNamespace(embedding=embedding), drafted=False)
    return SimpleNamespace(
        dataset=dataset, encoder_name="tiny", encoder_fingerprint="e" * 8, feature_names=("base", "gcs"), top_k=7,
        pair_encoder=None,
    )  # fmt: skip


def component(choice: str | None = None, **settings: Any) -> ConfiguredComponent:
    return ConfiguredComponent(OmegaConf.create({"_target_": "builtins.dict", **settings}), choice)


def training_data(*, dim: int | None = 3) -> TrainingData:
    return TrainingData(
        prepared={"first": prepared("f1", dim=dim), "second": prepared("f2")},
        data={"first": component("attack", path="/somewhere", cache="/cache"), "second": component(edges="auto")},
        retriever=component("bm25", top_k=7),
        encoder=component("minilm", batch_size=4),
    )


def test_data_and_mix_leave_folders_of_this_machine_out() -> None:
    data = training_data()
    first = {"choice": "attack", "arguments": {"path": "/somewhere"}, "fingerprint": "f1"}
    assert manifest.data_entry(data) == first
    assert manifest.mix_entry(data) == {
        "second": {"arguments": {"data": "second", "edges": "auto"}, "fingerprint": "f2"}
    }


def test_the_encoder_is_that_of_the_first_data_set_and_none_without_vectors() -> None:
    entry = manifest.encoder_entry(training_data())
    named = {"choice": "minilm", "name": "tiny", "fingerprint": "e" * 8}
    assert entry == {**named, "arguments": {"batch_size": 4}, "dim": 3}
    assert manifest.encoder_entry(training_data(dim=None)) is None
    assert manifest.pair_encoder_entry(training_data()) is None


def test_the_retriever_has_the_features_of_its_candidates() -> None:
    expected = {"choice": "bm25", "arguments": {"top_k": 7}, "feature_names": ["base", "gcs"]}
    assert manifest.retriever_entry(training_data()) == expected


@pytest.mark.parametrize(("calibration", "kept"), [("start", True), ("logistic", False)])
def test_the_calibration_of_the_start_is_kept_if_asked(calibration: str, kept: bool) -> None:
    start = load_primary("base")
    entries = manifest.start_entries(start, FitSettings(start="base", calibration=calibration))
    assert entries["start"]["name"] == "base"
    assert ("calibration" in entries) == kept
    assert entries.get("calibration") == (start.manifest.content["calibration"] if kept else None)
    assert manifest.start_entries(None, FitSettings()) == {}


def test_settings_of_a_training_run_in_python_are_recorded() -> None:
    assert manifest.settings_entry(FitSettings(seed=3)) == {"seed": 3, "batches": {"val_split": "val"}}
    entry = manifest.settings_entry(FitSettings(learning_rate=0.1, val_split="dev"), "bce")
    assert entry == {
        "seed": 1,
        "batches": {"val_split": "dev"},
        "loss": "bce",
        "settings": {"learning_rate": 0.1, "val_split": "dev"},
    }
