import json
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from graphrerank.cli.serve import serve
from graphrerank.models.checkpoint import save_weights
from graphrerank.models.manifest import write_manifest
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter
from tests.support.manifests import make_manifest


def test_export_in_some_formats_then_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = {"num_features": 4, "num_selected": 2, "hidden_channels": [3]}
    torch.manual_seed(0)
    save_weights(tmp_path / "run", ComplexityAdapter(**arguments))
    write_manifest(tmp_path / "run", make_manifest("complexity_adapter", arguments))

    artifact = tmp_path / "artifact"
    cfg = {
        "mode": "export",
        "checkpoint": str(tmp_path / "run"),
        "artifact": str(artifact),
        "formats": ["onnx", "torchscript"],
        "revision": None,
    }
    assert serve(OmegaConf.create(cfg)) == artifact
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == str(artifact)
    assert [line.split(":")[0] for line in lines] == ["onnx", "safetensors", "torchscript"]
    assert all(line.endswith("on 500 batches") for line in lines)
    assert {file.name for file in artifact.glob("model.*")} == {"model.pt", "model.onnx", "model.safetensors"}

    bench = {"candidates": 10, "edges": 5, "batch_queries": 4, "rounds": 3}
    folder = tmp_path / "bench"
    cfg = {
        "mode": "bench",
        "artifact": str(artifact),
        "bench": bench,
        "revision": None,
        "format": None,
        "num_threads": 1,
        "paths": {"run_dir": str(folder)},
    }
    assert serve(OmegaConf.create(cfg)) == folder
    table = capsys.readouterr().out.splitlines()
    assert table[-1] == str(folder)
    assert [line.split(" | ")[0] for line in table[2:-1]] == ["| eager", "| torchscript", "| onnx"]
    content = json.loads((folder / "bench.json").read_text())
    assert content["settings"] == bench
    assert [entry["name"] for entry in content["formats"]] == ["eager", "torchscript", "onnx"]
    assert all(entry["ms_alone"] > 0 for entry in content["formats"])


@pytest.mark.parametrize("mode", ["export", "bench"])
def test_nothing_to_work_on(mode: str) -> None:
    with pytest.raises(ValueError, match=f"mode={mode} needs"):
        serve(OmegaConf.create({"mode": mode, "checkpoint": None, "artifact": None}))
