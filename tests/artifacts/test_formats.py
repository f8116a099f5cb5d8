import json
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from graphrerank.artifacts.artifact import load_artifact
from graphrerank.artifacts.export import export_artifact
from graphrerank.artifacts.formats import Runner
from graphrerank.artifacts.parity import NUM_BATCHES, random_graphs
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.models.granker import GRankerHead
from graphrerank.models.manifest import RerankerManifest, parse_manifest
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter
from tests.artifacts.conftest import SMALL, TYPED
from tests.support import ROOT
from tests.support.manifests import make_manifest

FORMATS = ("torchscript", "onnx")
LOGISTIC = {"method": "logistic", "slope": 1.5, "intercept": -0.5}


def adapter() -> Checkpoint:
    torch.manual_seed(0)
    arguments = {"num_features": 9, "num_selected": 4, "hidden_channels": [8, 8]}
    model = ComplexityAdapter(**arguments).eval()
    model.standardize(torch.tensor([1, 3, 4, 8]), torch.arange(4.0), torch.arange(1.0, 5.0))
    model.temperature.fill_(2.5)
    manifest = parse_manifest(make_manifest("complexity_adapter", arguments), "best.ckpt")
    return Checkpoint(model, manifest, Path("best.ckpt"))


def head() -> Checkpoint:
    torch.manual_seed(0)
    arguments = {"hidden_size": 8, "smoothing": 0.3, "learn_smoothing": True, "activation": "gelu", "norm_eps": 1e-5}
    manifest = parse_manifest(make_manifest("granker_head", arguments, calibration=LOGISTIC), "best.ckpt")
    return Checkpoint(GRankerHead(**arguments).eval(), manifest, Path("best.ckpt"))


@pytest.fixture(
    scope="module",
    params=[
        "adapter",
        "head",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("scores", "paper", "full", "typed")),
    ],
)
def exported(request, make_checkpoint, tmp_path_factory) -> tuple[Checkpoint, Path]:
    """A model of each kind in all formats, past the whole gate."""
    folder = tmp_path_factory.mktemp("formats") / "artifact"
    if request.param == "adapter":
        checkpoint = adapter()
    elif request.param == "head":
        checkpoint = head()
    elif request.param == "typed":
        checkpoint = make_checkpoint(features="scores", **TYPED)
    else:
        checkpoint = make_checkpoint(features=request.param, edge_features=request.param != "scores", **SMALL)
        if request.param == "full":
            checkpoint = replace(checkpoint, manifest=checkpoint.manifest.with_entries(calibration=LOGISTIC))
    return checkpoint, export_artifact(checkpoint, folder, FORMATS, num_batches=NUM_BATCHES)


def test_every_format_passes_the_gate(exported):
    _, folder = exported
    files = {"model.pt", "model.onnx", "model.safetensors"}
    assert {file.name for file in folder.iterdir()} == files | {"manifest.json"}
    entry = json.loads((folder / "manifest.json").read_text())["artifact"]
    assert set(entry["sha256"]) == files
    assert entry["parity"]["batches"] == 500
    assert set(entry["parity"]["max_difference"]) == {*FORMATS, "safetensors"}
    assert max(entry["parity"]["max_difference"].values()) <= 1e-5


def test_formats_give_scores_and_probabilities_at_other_sizes(exported):
    checkpoint, folder = exported
    calibration = getattr(checkpoint.manifest, "calibration", None)
    generator = torch.Generator().manual_seed(5)
    if isinstance(checkpoint.manifest, RerankerManifest):
        cases = (([2], 0), ([1], 3), ([9, 33], 99))
        graphs = [random_graphs(checkpoint.manifest, *case, generator) for case in cases]
        batches = [batch.model_inputs(checkpoint.manifest.inputs) for batch in graphs]
    else:
        batches = [(torch.randn(rows, 9, generator=generator),) for rows in (1, 50)]
    for name in FORMATS:
        module = load_artifact(folder, name).module
        for inputs in batches:
            with torch.inference_mode():
                expected, found = checkpoint.model(*inputs), module(*inputs)
                torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
                if calibration is None:
                    continue
                if name == "torchscript":
                    probabilities = module.calibration(found)
                else:
                    _, probabilities = module.outputs(*inputs)
            torch.testing.assert_close(probabilities, calibration.probabilities(found), rtol=0, atol=1e-6)


@pytest.mark.parametrize("sizes", [(0,), (0, 0), ()], ids=["no candidates", "two queries", "no query"])
def test_no_candidates_get_no_scores(exported, sizes):
    checkpoint, folder = exported
    if not isinstance(checkpoint.manifest, RerankerManifest):
        pytest.skip("the adapter has no candidates")
    graphs = random_graphs(checkpoint.manifest, sizes, 0, torch.Generator().manual_seed(5))
    inputs = graphs.model_inputs(checkpoint.manifest.inputs)
    for name in FORMATS:
        module = load_artifact(folder, name).module
        assert module(*inputs).shape == (0,)
        if name == "onnx" and getattr(checkpoint.manifest, "calibration", None) is not None:
            assert [len(output) for output in module.outputs(*inputs)] == [0, 0]


def test_onnx_says_what_the_schema_says(exported):
    onnx = pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
    checkpoint, folder = exported
    model = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(model)
    entry = json.loads((folder / "manifest.json").read_text())["artifact"]
    types = {onnx.TensorProto.FLOAT: "float32", onnx.TensorProto.INT64: "int64"}
    for entries, found in ((entry["inputs"], model.graph.input), (entry["outputs"], model.graph.output)):
        assert entries == [
            {
                "name": tensor.name,
                "dtype": types[tensor.type.tensor_type.elem_type],
                "shape": f"[{', '.join(d.dim_param or str(d.dim_value) for d in tensor.type.tensor_type.shape.dim)}]",
            }
            for tensor in found
        ]
    names = ["scores"] if "calibration" not in checkpoint.manifest.content else ["scores", "probabilities"]
    assert [entry["name"] for entry in entry["outputs"]] == names


def test_no_format_names_a_folder_of_this_machine(exported):
    here = str(ROOT).encode()
    assert not [file.name for file in exported[1].iterdir() if here in file.read_bytes()]


def test_other_devices_are_refused():
    runner = Runner(lambda x: [2 * x, x], "onnx")
    assert runner(torch.ones(1)) == 2
    assert [found.item() for found in runner.outputs(torch.ones(1))] == [2, 1]
    with pytest.raises(ValueError, match="`device` must be cpu for the format onnx, got meta"):
        runner(torch.zeros(2, 9, device="meta"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_compiled_ahead_of_time(tmp_path):
    checkpoint = adapter()
    folder = export_artifact(checkpoint, tmp_path / "artifact", ["aot"], num_batches=20)
    assert {file.name for file in folder.iterdir()} == {"model.aot.pt2", "model.safetensors", "manifest.json"}
    with zipfile.ZipFile(folder / "model.aot.pt2") as package:
        contents = b"".join(map(package.read, package.namelist()))
    assert str(Path(torch.__file__).parent).encode() not in contents
    assert b"torchinductor_" not in contents  # a folder that is called after its user
    x = torch.randn(3, 9)
    found = load_artifact(folder).module(x)  # the one format that it holds
    torch.testing.assert_close(found, checkpoint.model(x), rtol=0, atol=1e-5)


class Untranslated(ComplexityAdapter):
    """Uses an operator that ONNX has not."""

    def forward(self, features: Tensor) -> Tensor:
        return torch.special.bessel_j0(self.logits(features))


class Branching(ComplexityAdapter):
    """Cannot be traced for all inputs."""

    def forward(self, features: Tensor) -> Tensor:
        logits = self.logits(features)
        return logits if logits.sum() > 0 else -logits


@pytest.mark.parametrize(
    ("model_class", "name", "message"),
    [
        (ComplexityAdapter, "aot", r"aot cannot be written: needs a C\+\+ compiler, one of .* none is installed"),
        (ComplexityAdapter, "pickle", "`formats` must be one or more of"),
        (Untranslated, "onnx", "format onnx cannot be written: .*bessel_j0"),
        (Branching, "onnx", "format onnx cannot be written: "),
    ],
)
def test_what_a_format_cannot_express_is_an_error(
    tmp_path, monkeypatch, model_class: Callable[..., nn.Module], name: str, message: str
):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    checkpoint = adapter()
    model = model_class(**checkpoint.manifest.model.arguments).eval()
    with pytest.raises(ValueError, match=rf"(?s){message}"):
        export_artifact(Checkpoint(model, checkpoint.manifest, Path("best.ckpt")), tmp_path / "artifact", [name])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_order_of_the_candidates_permutes_the_scores(tied, format_name):
    checkpoint, folder = tied
    module = load_artifact(folder, format_name).module
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        graphs = random_graphs(checkpoint.manifest, [7, 1, 12], 30, generator)  # with ties
        order = torch.cat([torch.randperm(7, generator=generator), torch.tensor([7]), torch.arange(19, 7, -1)])
        permuted = replace(graphs, x=graphs.x[order], edge_index=torch.argsort(order)[graphs.edge_index])
        with torch.inference_mode():
            expected = module(*graphs.model_inputs(checkpoint.manifest.inputs))[order]
            actual = module(*permuted.model_inputs(checkpoint.manifest.inputs))
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("num_nodes", [2, 3, 9, 30])
def test_equal_candidates_get_equal_scores(tied, format_name, num_nodes):
    """To the last bit in TorchScript, whose layers are ours. ONNX Runtime rounds rows by their places."""
    checkpoint, folder = tied
    module = load_artifact(folder, format_name).module
    generator = torch.Generator().manual_seed(num_nodes)
    for _ in range(20):
        graphs = random_graphs(checkpoint.manifest, [num_nodes], 0, generator)
        kind = torch.randint(3, (num_nodes,), generator=generator)  # whose features each node has
        edge_index = (kind[:, None] != kind).nonzero().T
        tied_graphs = replace(
            graphs, x=graphs.x[kind % num_nodes], edge_index=edge_index, edge_attr=torch.ones(edge_index.shape[1])
        )
        with torch.inference_mode():
            scores = module(*tied_graphs.model_inputs(checkpoint.manifest.inputs))
        for each in kind.unique():
            equal = scores[kind == each]
            torch.testing.assert_close(equal, equal[:1].expand_as(equal), rtol=0, atol=2e-6 * (format_name == "onnx"))


@pytest.fixture(scope="module")
def tied(make_checkpoint, tmp_path_factory) -> tuple[Checkpoint, Path]:
    """Model of scores in both formats."""
    checkpoint = make_checkpoint(features="scores", **SMALL)
    return checkpoint, export_artifact(checkpoint, tmp_path_factory.mktemp("tied") / "artifact", FORMATS, num_batches=8)
