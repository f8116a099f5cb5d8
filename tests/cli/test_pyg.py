"""``model=pyg`` from training to the service: one convolution that scripts, and one that does not."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("torch_geometric", reason="PyTorch Geometric is optional")

from graphrerank.artifacts.artifact import artifact_formats, load_artifact
from graphrerank.artifacts.export import export_artifact, preferred_format
from graphrerank.artifacts.parity import parity_batches
from graphrerank.models.checkpoint import load_primary
from graphrerank.models.pyg_reranker import PyGReranker
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.serving.engines.rerank import load_rerank_engine
from graphrerank.serving.limits import Limits
from graphrerank.serving.schemas.rerank import RerankRequest
from tests.support.commands import manifest_of, measures_of
from tests.support.folders import write_dataset

NAMES = ["river", "stone", "metal", "cloud", "forest", "engine", "violin", "planet", "bread", "castle", "ice", "sand"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve passages in a ring; the answer of a question is the neighbour of the passage that it names."""
    ring = [(f"p{i}", f"p{(i + 1) % 12}", "next") for i in range(12)]
    splits = {split: [(f"{split}{i}", f"p{(i + 1) % 12}") for i in range(12)] for split in ("train", "val", "test")}
    return write_dataset(
        tmp_path_factory.mktemp("data") / "ring",
        corpus=[{"_id": f"p{i}", "title": name, "text": f"A text about {name}."} for i, name in enumerate(NAMES)],
        queries=[
            {"_id": f"{split}{i}", "text": f"{asked} {name}?"}
            for split, asked in (("train", "After"), ("val", "Behind"), ("test", "Next to"))
            for i, name in enumerate(NAMES)
        ],
        edges=ring,
        **splits,
    )


@pytest.fixture(scope="module", params=["SAGEConv", "GATv2Conv"])
def conv(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def run(conv: str, corpus: Path, run_command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pyg") / conv
    run_command(
        "train.py", "model=pyg", f"model.conv={conv}", "model.conv_arguments={bias: true}", "features=scores",
        "model.hidden_channels=16", "features.num_layers=1", "data=folder", f"data.path={corpus}", "retriever=bm25",
        "encoder=none", "trainer.max_epochs=30", "batches.batch_size=4", "module.warmup_steps=5",
        "module.learning_rate=0.01", "trainer.accelerator=cpu", "device=cpu", f"hydra.run.dir={folder}",
    )  # fmt: skip
    return folder


def test_it_learns_what_the_edges_say(run: Path, conv: str) -> None:
    measures = measures_of(run)
    name = next(reversed(measures))
    assert measures[name]["nDCG@10"] > measures["retriever"]["nDCG@10"]
    entry = manifest_of(run / name)["model"]
    assert entry["name"] == "pyg_reranker"
    assert (entry["arguments"]["conv"], entry["arguments"]["conv_arguments"]) == (conv, {"bias": True})
    assert isinstance(load_primary(run).model, PyGReranker)


def test_evaluate_agrees_with_train(run: Path, corpus: Path, run_command, tmp_path: Path) -> None:
    settings = ("encoder=none", "device=cpu", f"hydra.run.dir={tmp_path}")
    run_command("evaluate.py", f"checkpoint={run}", f"datasets=[{corpus}]", *settings)
    here, there = measures_of(run), measures_of(tmp_path)
    name = next(reversed(here))
    assert there[name] == pytest.approx(here[name])


@pytest.mark.slow  # torch.export and ONNX
def test_exported_equals_eager_and_is_served(run: Path, conv: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is optional")
    checkpoint = load_primary(run)
    scripts = conv == "SAGEConv"
    assert preferred_format(checkpoint) == ("torchscript" if scripts else "onnx")
    formats = ["torchscript", "onnx"] if scripts else ["onnx"]
    folder = export_artifact(checkpoint, tmp_path / "artifact", formats, num_batches=30)
    assert list(artifact_formats(load_artifact(folder).manifest)) == formats
    request = RerankRequest(query="Next to river?", documents=NAMES, edges=[[0, 1], [1, 2], [5, 7]])
    expected = GraphReranker(checkpoint).rerank(request.query, NAMES, edges=[(0, 1), (1, 2), (5, 7)])
    for name in formats:
        module = load_artifact(folder, name).module
        for batch in parity_batches(checkpoint.manifest, 10):
            with torch.inference_mode():
                torch.testing.assert_close(module(*batch.inputs), checkpoint.model(*batch.inputs), rtol=0, atol=1e-5)
        engine = load_rerank_engine(folder, None, Limits(), "cpu", format_name=name)
        served = engine.answer({"one": request})["one"]
        assert list(served.indices) == expected.indices.tolist()
        torch.testing.assert_close(torch.tensor(served.scores), expected.scores, rtol=0, atol=1e-5)


def test_what_does_not_script_is_refused_with_the_formats_that_fit(
    run: Path, conv: str, run_command, tmp_path: Path
) -> None:
    status = 0 if conv == "SAGEConv" else 1
    arguments = (f"checkpoint={run}", f"artifact={tmp_path / 'artifact'}", "formats=[torchscript]")
    done = run_command("export", *arguments, status=status)
    if status:
        (line,) = [line for line in done.stderr.splitlines() if "torchscript" in line]
        assert "pyg_reranker conv=GATv2Conv can be exported with formats=[onnx, aot]" in line
        assert not (tmp_path / "artifact").exists()
