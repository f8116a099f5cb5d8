"""docs/onnx.md: the file's interface, and its JavaScript in Node."""

import json
import os
import re
import shutil
import subprocess
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank import GraphReranker
from graphrerank.graphs.edge_types import EDGE_TYPES
from graphrerank.models import load_checkpoint
from graphrerank.models.checkpoint import PRETRAINED
from graphrerank.serving import export_artifact
from graphrerank.serving.artifact import load_artifact
from graphrerank.serving.parity import TOLERANCE
from graphrerank.serving.parity_batches import parity_batches
from graphrerank.serving.schema import input_names
from tests.support import ROOT

PAGE = (ROOT / "docs" / "onnx.md").read_text(encoding="utf-8")
SCRIPT = re.findall(r"^```javascript\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0]
PACKAGE = "onnxruntime-web"
NUM_BATCHES = 60
HARNESS = """
const fs = require("node:fs");
const { load, run } = require("./rerank.cjs");
(async () => {
  const model = await load(process.argv[2]);
  const outputs = [];
  for (const inputs of JSON.parse(fs.readFileSync("batches.json"))) outputs.push(await run(model, inputs));
  fs.writeFileSync("outputs.json", JSON.stringify(outputs));
})();
"""


@pytest.fixture(scope="module", params=["base", "attack"])
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    loaded = load_checkpoint(PRETRAINED / request.param)
    return export_artifact(loaded, tmp_path_factory.mktemp("onnx") / request.param, ["onnx"], num_batches=10)


@pytest.fixture(scope="module")
def node() -> dict[str, str]:
    """The environment in which Node finds the package."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    find = ["node", "-p", f"require.resolve('{PACKAGE}')"]
    found = subprocess.run(find, capture_output=True, text=True, check=False, cwd=ROOT)
    if found.returncode:
        pytest.skip(f"npm install {PACKAGE}: Node does not find it, in NODE_PATH or in node_modules")
    return {**os.environ, "NODE_PATH": found.stdout.partition(f"/{PACKAGE}/")[0]}


def run_node(node: dict[str, str], folder: Path, script: str, artifact: Path) -> str:
    done = subprocess.run(
        ["node", script, str(artifact)], capture_output=True, text=True, check=False, cwd=folder, env=node
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def flat(tensor: Tensor) -> dict[str, Any]:
    return {"dims": list(tensor.shape), "data": tensor.flatten().tolist()}


@pytest.mark.slow  # an export
def test_the_page_states_the_interface(artifact: Path) -> None:
    onnx = pytest.importorskip("onnx")
    manifest = load_artifact(artifact, "onnx").manifest
    entry = manifest.content["artifact"]
    stated = {
        name: f"{kind} `{shape}`" for name, kind, shape in re.findall(r"^\| `(\w+)` \| (\w+) `(.*?)`", PAGE, re.M)
    }
    for part in (*entry["inputs"], *entry["outputs"]):
        shape = "[B, d]" if part["name"] == "query_vectors" else "[N, d]" if part["name"] == "node_vectors" else None
        wanted = shape or re.sub(r"\[N, \d+\]", "[N, F]", part["shape"])
        assert stated[part["name"]] == f"{part['dtype']} `{wanted}`"
    proto = onnx.load(artifact / "model.onnx")
    assert [part.name for part in proto.graph.input] == [part["name"] for part in entry["inputs"]]
    names = {prop.key: json.loads(prop.value) for prop in proto.metadata_props}
    assert names == {name: list(meanings) for name, meanings in input_names(manifest).items()}
    assert json.dumps(EDGE_TYPES) in SCRIPT
    assert ", ".join(f"{number} {name}" for number, name in enumerate(EDGE_TYPES)) in PAGE


@pytest.mark.slow
def test_javascript_scores_the_parity_batches(artifact: Path, node: dict[str, str], tmp_path: Path) -> None:
    loaded = load_checkpoint(artifact)
    batches = list(islice(parity_batches(loaded.manifest, NUM_BATCHES), NUM_BATCHES))
    names = loaded.manifest.inputs.names
    content = [dict(zip(names, map(flat, batch.inputs), strict=True)) for batch in batches]
    (tmp_path / "batches.json").write_text(json.dumps(content))
    (tmp_path / "rerank.cjs").write_text(SCRIPT)
    (tmp_path / "parity.cjs").write_text(HARNESS)
    run_node(node, tmp_path, "parity.cjs", artifact)
    outputs = json.loads((tmp_path / "outputs.json").read_text())
    assert len(outputs) == NUM_BATCHES
    calibration = loaded.reranker.calibration
    assert calibration is not None
    for batch, output in zip(batches, outputs, strict=True):
        with torch.inference_mode():
            expected = loaded.model(*batch.inputs)
        assert torch.tensor(output["scores"]) == pytest.approx(expected, abs=TOLERANCE, rel=0), batch.name
        probabilities = calibration.probabilities(expected)
        assert torch.tensor(output["probabilities"]) == pytest.approx(probabilities, abs=TOLERANCE, rel=0), batch.name


@pytest.mark.slow
def test_javascript_ranks_as_python(artifact: Path, node: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "rerank.cjs").write_text(SCRIPT)
    rows = [line.rsplit(" ", 2) for line in run_node(node, tmp_path, "rerank.cjs", artifact).splitlines()]
    ids = ["Solaris", "film director", "Paris", "Andrei Tarkovsky"]
    reranker = GraphReranker.from_pretrained(artifact)
    scores = [0.71, 0.55, 0.21, 0.34]
    ranking = reranker.rerank("?", scores=scores, edges=[(0, 3)], edge_types=["reference"], ids=ids)
    assert [row[0] for row in rows] == list(ranking.ids)
    assert [float(row[1]) for row in rows] == pytest.approx(ranking.scores.tolist(), abs=1e-4)
    assert ranking.probabilities is not None
    assert [float(row[2]) for row in rows] == pytest.approx(ranking.probabilities.tolist(), abs=1e-4)
