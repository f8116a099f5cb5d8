"""docs/onnx.md: the file's interface, its JavaScript in Node, and its Rust."""

import json
import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from graphrerank import GraphReranker
from graphrerank.artifacts.artifact import load_artifact
from graphrerank.artifacts.export import export_artifact
from graphrerank.artifacts.formats import input_names
from graphrerank.artifacts.parity import TOLERANCE, parity_batches
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.models.checkpoint import PRETRAINED, load_checkpoint
from tests.support import ROOT

PAGE = (ROOT / "docs" / "onnx.md").read_text(encoding="utf-8")
SCRIPT = (ROOT / "docs" / "rerank.cjs").read_text(encoding="utf-8")
PACKAGE = "onnxruntime-web"
NUM_BATCHES = 60
RUST = ROOT / "docs" / "rerank.rs"
RUST_HARNESS = """
#[path = "rerank.rs"]
#[allow(dead_code)]
mod rerank;
use rerank::{Data, Model, Tensor};

fn numbers<T: std::str::FromStr>(text: &str) -> Vec<T> {
    text.split_whitespace().map(|number| number.parse().ok().unwrap()).collect()
}

fn main() {
    let model = Model::load(&std::env::args().nth(1).unwrap()).unwrap();
    for line in std::fs::read_to_string("batches.txt").unwrap().lines() {
        let tensors = line.split(';').map(|tensor| {
            let parts: Vec<&str> = tensor.split(':').collect();
            let data = match parts[1] {
                "int64" => Data::Integers(numbers(parts[3])),
                _ => Data::Floats(numbers(parts[3])),
            };
            Tensor { name: parts[0].into(), shape: numbers(parts[2]), data }
        });
        let found = model.run(&tensors.collect::<Vec<_>>()).unwrap();
        println!("{{\\"scores\\": {:?}, \\"probabilities\\": {:?}}}", found["scores"], found["probabilities"]);
    }
}
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


@pytest.fixture(scope="module")
def rust(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiled programs of the page and of the harness, beside ONNX Runtime's library."""
    if shutil.which("rustc") is None:
        pytest.skip("rustc is not installed")
    package = find_spec("onnxruntime")
    found = [] if package is None else [*Path(str(package.origin)).parent.glob("capi/libonnxruntime.so.*")]
    if not found:
        pytest.skip("no libonnxruntime.so in the package onnxruntime")
    folder = tmp_path_factory.mktemp("rust")
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        (folder / name).symlink_to(found[0])
    shutil.copy(RUST, folder)
    (folder / "parity.rs").write_text(RUST_HARNESS)
    for name in ("rerank.rs", "parity.rs"):
        command = ["rustc", "--edition", "2021", "-O", "-D", "warnings", name, "-L", ".", "-l", "onnxruntime"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


def run_rust(folder: Path, name: str, artifact: Path) -> str:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    command = [str(folder / name), str(artifact)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


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


@pytest.mark.slow  # a compiler
def test_rust_scores_the_parity_batches(artifact: Path, rust: Path) -> None:
    loaded = load_checkpoint(artifact)
    batches = list(parity_batches(loaded.manifest, NUM_BATCHES))
    lines = [
        ";".join(
            f"{name}:{str(tensor.dtype).removeprefix('torch.')}:{' '.join(map(str, tensor.shape))}:"
            f"{' '.join(map(repr, tensor.flatten().tolist()))}"
            for name, tensor in zip(loaded.manifest.inputs.names, batch.inputs, strict=True)
        )
        for batch in batches
    ]
    (rust / "batches.txt").write_text("\n".join(lines))
    outputs = [json.loads(line) for line in run_rust(rust, "parity", artifact).splitlines()]
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
    command = ["node", "rerank.cjs", str(artifact)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=node)
    assert done.returncode == 0, done.stderr
    check_ranking(artifact, done.stdout)


@pytest.mark.slow
def test_rust_ranks_as_python(artifact: Path, rust: Path) -> None:
    assert ", ".join(map(json.dumps, EDGE_TYPES)) in RUST.read_text(encoding="utf-8")
    check_ranking(artifact, run_rust(rust, "rerank", artifact))


def check_ranking(artifact: Path, shown: str) -> None:
    """Hold what an example shows against :class:`GraphReranker`."""
    rows = [line.rsplit(" ", 2) for line in shown.splitlines()]
    ids = ["Solaris", "film director", "Paris", "Andrei Tarkovsky"]
    reranker = GraphReranker.from_pretrained(artifact)
    scores = [0.71, 0.55, 0.21, 0.34]
    ranking = reranker.rerank("?", scores=scores, edges=[(0, 3)], edge_types=["reference"], ids=ids)
    assert [row[0] for row in rows] == list(ranking.ids)
    assert [float(row[1]) for row in rows] == pytest.approx(ranking.scores.tolist(), abs=1e-4)
    assert [float(row[2]) for row in rows] == pytest.approx(ranking.probabilities.tolist(), abs=1e-4)
