import json
import shutil
from pathlib import Path

import pytest

from graphrerank.artifacts.artifact import load_artifact
from graphrerank.artifacts.export import export_artifact
from graphrerank.models.checkpoint import PRETRAINED, load_checkpoint
from graphrerank.models.manifest import seal_manifest, write_manifest


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
    with pytest.raises(ValueError, match=rf"{name}: needed SHA-256 \w+, found"):
        load_artifact(folder)
    if name == "model.safetensors":
        with pytest.raises(ValueError, match=r"model\.safetensors: needed SHA-256"):
            load_checkpoint(folder)
    (folder / name).unlink()
    with pytest.raises(ValueError, match=rf"{name}: no such file"):
        load_artifact(folder)


@pytest.mark.parametrize("load", [load_artifact, load_checkpoint])
def test_a_tampered_manifest_is_refused(folder, load):
    manifest = read(folder)
    manifest["encoder"]["fingerprint"] = "e" * 64
    write_manifest(folder, manifest)
    with pytest.raises(ValueError, match=r"the manifest was changed: needed SHA-256 \w+, found"):
        load(folder)
    manifest = read(folder)
    del manifest["artifact"]["manifest_sha256"]
    write_manifest(folder, manifest)
    with pytest.raises(ValueError, match="the manifest was changed: needed SHA-256 None"):
        load(folder)


def test_what_is_no_artifact_or_lacks_a_format_is_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="no such artifact"):
        load_artifact(tmp_path / "nowhere")
    assert load_artifact(folder, "torchscript").manifest.content == read(folder)
    with pytest.raises(ValueError, match=r"has the formats \['torchscript'\], got `format` 'onnx'"):
        load_artifact(folder, "onnx")
    write_manifest(tmp_path, {key: entry for key, entry in read(folder).items() if key != "artifact"})
    with pytest.raises(ValueError, match="not an artifact"):
        load_artifact(tmp_path)
    write_manifest(folder, seal_manifest(read(folder), folder, ["model.pt"]))
    with pytest.raises(ValueError, match=r"artifact\.sha256\.model\.safetensors"):
        load_artifact(folder)
    write_manifest(folder, seal_manifest(read(folder), folder, ["model.safetensors"]))
    with pytest.raises(ValueError, match=r"has the formats \[\]"):
        load_artifact(folder)
