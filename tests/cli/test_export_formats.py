import json
from pathlib import Path

import pytest
import torch

from graphrerank.models.checkpoint import save_weights
from graphrerank.models.manifest import write_manifest
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter
from tests.support.manifests import make_manifest


def test_export_in_some_formats_then_bench(run_command, tmp_path: Path) -> None:
    arguments = {"num_features": 4, "num_selected": 2, "hidden_channels": [3]}
    torch.manual_seed(0)
    save_weights(tmp_path / "run", ComplexityAdapter(**arguments))
    write_manifest(tmp_path / "run", make_manifest("complexity_adapter", arguments))

    artifact = tmp_path / "artifact"
    chosen = (f"checkpoint={tmp_path / 'run'}", f"artifact={artifact}", "formats=[onnx,torchscript]")
    done = run_command("serve.py", "mode=export", *chosen)
    *lines, last = done.stdout.splitlines()
    assert last == str(artifact)
    assert [line.split(":")[0] for line in lines] == ["onnx", "safetensors", "torchscript"]
    assert all(line.endswith("on 500 batches") for line in lines)
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


@pytest.mark.parametrize(("mode", "message"), [("bench", "mode=bench needs `artifact`"), ("export", "checkpoint")])
def test_nothing_to_work_on(run_command, mode: str, message: str, tmp_path: Path) -> None:
    done = run_command("serve.py", f"mode={mode}", f"hydra.run.dir={tmp_path}", status=1)
    assert message in done.stderr
