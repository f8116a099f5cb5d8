import json
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from graphrerank.artifacts.artifact import Artifact, load_artifact
from graphrerank.artifacts.formats import Runner
from graphrerank.artifacts.parity import random_graphs
from graphrerank.cli import export, schema
from graphrerank.cli.http_service import artifact_folder
from graphrerank.cli.serve import run as serve
from graphrerank.models.checkpoint import PRETRAINED, load_checkpoint, save_weights
from graphrerank.models.manifest import read_manifest, write_manifest
from graphrerank.serving.setup import artifact_source
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter
from tests.support import ROOT
from tests.support.commands import RunCommand
from tests.support.exports import FEW_BATCHES
from tests.support.manifests import make_manifest

HUB_ID = "someone/reranker"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Compose ``conf/serve.yaml``, with folders of the test's own."""
    monkeypatch.chdir(tmp_path)
    schema.register()

    def make(*overrides: str, command: str = "serve") -> DictConfig:
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            return compose(
                command, overrides=[f"paths.cache={tmp_path}/cache", f"paths.run_dir={tmp_path}", *overrides]
            )

    return make


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A hub that has the shipped ``attack`` with a program that is not its own; tells what it was asked for."""
    there = shutil.copytree(PRETRAINED / "attack", tmp_path / "hub")
    (there / "model.pt").write_bytes(b"an untrusted program")
    asked = []

    def snapshot_download(repo_id: str, **arguments: Any) -> str:
        asked.append({"repo_id": repo_id, **arguments})
        (tmp_path / "downloaded").mkdir(exist_ok=True)
        for name in arguments["allow_patterns"]:
            shutil.copy(there / name, tmp_path / "downloaded")
        return str(tmp_path / "downloaded")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return asked


def files(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}


def test_a_model_of_the_hub_is_exported_here_from_its_weights(
    settings, hub, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = artifact_folder(settings(f"artifact={HUB_ID}", "revision=v1"))
    assert hub == [{"repo_id": HUB_ID, "revision": "v1", "allow_patterns": ["manifest.json", "model.safetensors"]}]
    assert files(tmp_path / "downloaded").keys() == {"manifest.json", "model.safetensors"}
    assert folder.is_relative_to(tmp_path / "cache")
    where = f"{tmp_path / 'downloaded'}\n"
    assert capsys.readouterr().out == f"{where}exporting {HUB_ID} from its weights\n"
    artifact, eager = load_artifact(folder), load_checkpoint(PRETRAINED / "attack")
    assert artifact.manifest.calibration == eager.manifest.calibration
    inputs = random_graphs(eager.manifest, [3, 20], 30, torch.Generator().manual_seed(0)).model_inputs(
        eager.manifest.inputs
    )
    torch.testing.assert_close(artifact.module(*inputs), eager.model(*inputs))

    before, target = files(folder), tmp_path / "artifact"
    assert artifact_folder(settings(f"artifact={HUB_ID}")) == folder
    assert files(folder) == before
    assert capsys.readouterr().out == where
    monkeypatch.setattr(export, "export_artifact", lambda checkpoint, out, *_, **__: shutil.copytree(folder, out))
    assert export.run(settings(f"checkpoint={HUB_ID}", f"artifact={target}", command="export")) == target
    assert files(target).keys() == {"manifest.json", "model.pt", "model.safetensors"}


def test_a_model_of_the_hub_that_was_tampered_with(settings, hub, tmp_path: Path) -> None:
    weights = tmp_path / "hub" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with pytest.raises(ValueError, match="SHA-256 hash must be"):
        artifact_folder(settings(f"artifact={HUB_ID}"))
    assert not (tmp_path / "cache").exists() or not list((tmp_path / "cache" / "artifacts").iterdir())


def test_what_ships_and_paths_are_not_asked_for(settings, hub) -> None:
    for name in ("attack", "base-1"):
        assert artifact_folder(settings(f"artifact={name}")) == PRETRAINED / name
    assert artifact_folder(settings(f"artifact={PRETRAINED / 'base'}")) == PRETRAINED / "base"
    with pytest.raises(ValueError, match="`revision` applies only to models on the hub, got 'v1' for attack"):
        artifact_folder(settings("artifact=attack", "revision=v1"))
    assert hub == []


def test_an_unknown_format_is_refused_before_the_service_starts(settings, hub) -> None:
    message = r"`format` must be one of \['torchscript', 'onnx', 'aot'\] or null, got 'magic'"
    with pytest.raises(ValueError, match=message):
        serve(settings(f"artifact={HUB_ID}", "format=magic"))
    with pytest.raises(ValueError, match=r"`format` must be one of \['torchscript'\], got 'onnx'"):
        serve(settings("artifact=attack", "format=onnx"))
    assert hub == []


def test_a_format_that_runs_on_the_cpu_alone_is_refused_for_another_device(settings, monkeypatch) -> None:
    artifact = Artifact(Runner(print, "onnx"), read_manifest(PRETRAINED / "attack"), PRETRAINED / "attack")
    monkeypatch.setattr(artifact_source, "load_artifact", lambda folder, format_name: artifact)
    with pytest.raises(ValueError, match="`device` must be cpu for the format onnx, got cuda"):
        serve(settings("artifact=attack", "format=onnx", "device=cuda"))


def test_export_in_some_formats_then_bench(run_command: RunCommand, tmp_path: Path) -> None:
    arguments = {"num_features": 4, "num_selected": 2, "hidden_channels": [3]}
    torch.manual_seed(0)
    save_weights(tmp_path / "run", ComplexityAdapter(**arguments))
    write_manifest(tmp_path / "run", make_manifest("complexity_adapter", arguments))

    artifact = tmp_path / "artifact"
    chosen = (f"checkpoint={tmp_path / 'run'}", f"artifact={artifact}", "formats=[onnx,torchscript]")
    done = run_command("export", *chosen)
    *lines, last = done.stdout.splitlines()
    assert last == str(artifact)
    assert [line.split(":")[0] for line in lines] == ["onnx", "safetensors", "torchscript"]
    assert all(line.endswith(f"on {FEW_BATCHES} batches") for line in lines)
    assert {file.name for file in artifact.glob("model.*")} == {"model.pt", "model.onnx", "model.safetensors"}

    bench = {"candidates": 10, "edges": 5, "batch_queries": 4, "rounds": 3}
    folder = tmp_path / "bench"
    settings = [f"bench.{name}={number}" for name, number in bench.items()]
    done = run_command("serve.py", "mode=bench", f"artifact={artifact}", *settings, f"hydra.run.dir={folder}")
    table = done.stdout.splitlines()
    assert table[-1] == str(folder)
    assert [line.split(" | ")[0] for line in table[2:-1]] == ["| eager", "| torchscript", "| onnx"]
    content = json.loads((folder / "bench.json").read_text())
    assert content["settings"] == bench
    assert [entry["name"] for entry in content["formats"]] == ["eager", "torchscript", "onnx"]
    assert all(entry["ms_alone"] > 0 for entry in content["formats"])
