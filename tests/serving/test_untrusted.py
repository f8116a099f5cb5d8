"""Attacks by untrusted checkpoints and artifacts, which are refused without running anything."""

import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank import GraphReranker
from graphrerank.artifacts.artifact import load_artifact
from graphrerank.artifacts.export import export_artifact
from graphrerank.artifacts.formats import FORMATS
from graphrerank.models.checkpoint import load_checkpoint, save_weights
from graphrerank.models.manifest import seal_manifest, write_manifest
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter
from tests.support.manifests import make_manifest

ARGUMENTS = {"num_features": 3, "num_selected": 2, "hidden_channels": [4]}


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def marker(tmp_path) -> Path:
    return tmp_path / "ran"


def test_the_payload_works(marker):
    pickle.loads(pickle.dumps(Payload(marker)))
    assert marker.exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickled_checkpoint_is_refused(tmp_path, marker, zipped):
    write_manifest(tmp_path, make_manifest("complexity_adapter", ARGUMENTS))
    state = {"state_dict": {"model.mean": Payload(marker)}}
    torch.save(state, tmp_path / "best.ckpt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match="not a Lightning checkpoint that can be loaded safely"):
        load_checkpoint(tmp_path / "best.ckpt")
    assert not marker.exists()


def test_pickled_weights_under_the_name_of_safetensors_are_refused(tmp_path, marker):
    write_manifest(tmp_path, make_manifest("complexity_adapter", ARGUMENTS))
    (tmp_path / "model.safetensors").write_bytes(pickle.dumps(Payload(marker)))
    with pytest.raises(ValueError, match="damaged weights"):
        load_checkpoint(tmp_path)
    assert not marker.exists()


def test_a_manifest_names_models_and_no_classes(tmp_path, marker):
    save_weights(tmp_path, ComplexityAdapter(**ARGUMENTS))
    for entry in (
        {"_target_": "os.mkdir", "arguments": {"path": str(marker)}},
        {"name": "os.mkdir", "arguments": {"path": str(marker)}},
        {"name": "complexity_adapter", "arguments": {"_target_": "os.mkdir", "path": str(marker)}},
    ):
        write_manifest(tmp_path, make_manifest("complexity_adapter", ARGUMENTS, model=entry))
        with pytest.raises(ValueError, match="the manifest"):
            load_checkpoint(tmp_path)
    assert not marker.exists()


@pytest.mark.parametrize("sizes", [{"hidden_channels": 2**20, "heads": 2**10}, {"num_layers": 256}, {"num_scores": 9}])
def test_a_manifest_larger_than_its_weights_is_refused_before_a_model_is_built(make_checkpoint, tmp_path, sizes):
    """The first would take petabytes; ``num_layers=1e9`` is refused by its number alone (tests/models)."""
    checkpoint = make_checkpoint()
    save_weights(tmp_path, checkpoint.model)
    model = checkpoint.manifest.content["model"]
    larger = {"name": model["name"], "arguments": {**model["arguments"], **sizes}}
    write_manifest(tmp_path, {**checkpoint.manifest.content, "model": larger})
    with pytest.raises(ValueError, match="the weights do not fit the model of the manifest"):
        load_checkpoint(tmp_path)


def test_compressed_records_of_a_checkpoint_are_refused(tmp_path):
    """A megabyte of them may be a gigabyte of zeros."""
    write_manifest(tmp_path, make_manifest("complexity_adapter", ARGUMENTS))
    torch.save({"state_dict": {"model.mean": torch.zeros(1000)}}, tmp_path / "plain.ckpt")
    with (
        zipfile.ZipFile(tmp_path / "plain.ckpt") as old,
        zipfile.ZipFile(tmp_path / "best.ckpt", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for record in old.namelist():
            new.writestr(record, old.read(record))
    with pytest.raises(ValueError, match=r"best\.ckpt .* got a compressed record"):
        load_checkpoint(tmp_path / "best.ckpt")


@pytest.fixture(scope="module")
def exported(make_checkpoint, tmp_path_factory) -> Path:
    return export_artifact(make_checkpoint(), tmp_path_factory.mktemp("exported") / "artifact", num_batches=2)


@pytest.mark.parametrize("how", ["torch.save", "pickle"])
def test_a_pickle_in_the_place_of_torchscript_is_refused_or_not_looked_at(exported, tmp_path, marker, how):
    folder = shutil.copytree(exported, tmp_path / "artifact")
    if how == "pickle":
        (folder / "model.pt").write_bytes(pickle.dumps(Payload(marker)))
    else:
        torch.save(Payload(marker), folder / "model.pt")
    with pytest.raises(ValueError, match=r"model\.pt: the SHA-256 hash must be"):
        load_artifact(folder)
    sealed = seal_manifest(
        json.loads((folder / "manifest.json").read_text()), folder, ["model.pt", "model.safetensors"]
    )
    write_manifest(folder, sealed)
    with pytest.raises(ValueError, match="cannot be loaded as format torchscript"):
        load_artifact(folder)
    assert GraphReranker.from_pretrained(folder).name == "test-model"  # reads weights and manifest alone
    assert not marker.exists()


def test_onnx_that_refers_to_other_files_is_refused(tmp_path, monkeypatch):
    made = pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
    (tmp_path / "secret").write_bytes(b"\0" * 16)
    tensor = made.TensorProto(name="w", data_type=made.TensorProto.FLOAT, dims=[4], data_location=1)
    tensor.external_data.add(key="location", value="secret")
    output = made.helper.make_tensor_value_info("y", made.TensorProto.FLOAT, [4])
    node = made.helper.make_node("Identity", ["w"], ["y"])
    model = made.helper.make_model(made.helper.make_graph([node], "g", [], [output], [tensor]))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="cannot be loaded as format onnx"):
        FORMATS["onnx"].load(tmp_path / "model.onnx")
