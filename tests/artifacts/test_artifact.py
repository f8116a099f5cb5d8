import json
import shutil
from pathlib import Path

import pytest

from graphrerank.artifacts.artifact import fastest_format, load_artifact, model_info
from graphrerank.artifacts.export import export_artifact
from graphrerank.corpus.edge_types import EDGE_TYPES, edge_type_of
from graphrerank.models.checkpoint import PRETRAINED, load_checkpoint
from graphrerank.models.manifest import parse_manifest, read_manifest, seal_manifest, write_manifest


@pytest.fixture(scope="module")
def exported(make_checkpoint, tmp_path_factory) -> Path:
    return export_artifact(make_checkpoint(), tmp_path_factory.mktemp("exported") / "artifact", num_batches=2)


@pytest.fixture
def folder(exported, tmp_path) -> Path:
    return shutil.copytree(exported, tmp_path / "artifact")


def read(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


@pytest.mark.parametrize("name", sorted(folder.parent.name for folder in PRETRAINED.glob("*/manifest.json")))
def test_what_ships_loads(name):
    assert load_artifact(PRETRAINED / name).manifest.name == "gatv2"


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
def test_tampered_or_missing_files_are_refused(folder, name):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}: the SHA-256 hash must be \w+, got"):
        load_artifact(folder)
    if name == "model.safetensors":
        with pytest.raises(ValueError, match=r"model\.safetensors: the SHA-256 hash must be"):
            load_checkpoint(folder)
    (folder / name).unlink()
    with pytest.raises(ValueError, match=rf"{name}: no such file"):
        load_artifact(folder)


@pytest.mark.parametrize("load", [load_artifact, load_checkpoint])
def test_a_tampered_manifest_is_refused(folder, load):
    manifest = read(folder)
    manifest["encoder"]["fingerprint"] = "e" * 64
    write_manifest(folder, manifest)
    with pytest.raises(ValueError, match=r"the manifest has been changed\. Its SHA-256 hash must be \w+, got"):
        load(folder)
    manifest = read(folder)
    del manifest["artifact"]["manifest_sha256"]
    write_manifest(folder, manifest)
    with pytest.raises(ValueError, match=r"the manifest has been changed\. Its SHA-256 hash must be None"):
        load(folder)


def test_what_is_no_artifact_or_lacks_a_format_is_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="no such artifact folder"):
        load_artifact(tmp_path / "nowhere")
    assert load_artifact(folder, "torchscript").manifest.content == read(folder)
    with pytest.raises(ValueError, match=r"`format` must be one of \['torchscript'\], got 'onnx'"):
        load_artifact(folder, "onnx")
    write_manifest(tmp_path, {key: entry for key, entry in read(folder).items() if key != "artifact"})
    with pytest.raises(ValueError, match="not an artifact"):
        load_artifact(tmp_path)
    write_manifest(folder, seal_manifest(read(folder), folder, ["model.pt"]))
    with pytest.raises(ValueError, match=r"artifact\.sha256\.model\.safetensors"):
        load_artifact(folder)
    write_manifest(folder, seal_manifest(read(folder), folder, ["model.safetensors"]))
    with pytest.raises(ValueError, match=r"`format` must be one of \[\]"):
        load_artifact(folder)


def test_machine_code_is_served_where_there_is_any(tmp_path: Path) -> None:
    content = read_manifest(PRETRAINED / "attack").content
    files = {"model.pt": "0" * 64, "model.aot.pt2": "0" * 64}
    both = parse_manifest({**content, "artifact": {**content.get("artifact", {}), "sha256": files}}, "somewhere")
    plain = parse_manifest(
        {**content, "artifact": {**content.get("artifact", {}), "sha256": {"model.pt": "0" * 64}}}, "x"
    )
    assert fastest_format(both, "cpu") == "aot"
    assert fastest_format(both, "cuda") is None
    assert fastest_format(plain, "cpu") is None


def test_what_is_said_of_types_of_edges() -> None:
    content = read_manifest(PRETRAINED / "attack").content
    typed = {**content, "model": {**content["model"], "arguments": {"num_edge_types": 5}}}
    for manifest, are_read in ((parse_manifest(content, "a"), False), (parse_manifest(typed, "b"), True)):
        info = model_info(manifest)
        assert info["name"] == content["name"]
        assert info["edge_types"]["are_read"] is are_read
        names = info["edge_types"]["names"]
        assert list(names) == ["reference", "entity", "adjacency", "similarity", "other"]
        assert {EDGE_TYPES[edge_type_of(name)] for name in names["reference"]} == {"reference"}
        assert names["other"] == ["other"]
