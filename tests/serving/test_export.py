import copy
import json
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphrerank.models import Checkpoint, ComplexityAdapter, GATv2Reranker, load_checkpoint
from graphrerank.serving import export, export_artifact, load_artifact, parity_difference
from graphrerank.serving.export import parity_graphs


class DriftingReranker(GATv2Reranker):
    """Scores otherwise under TorchScript, once there are many edges."""

    def forward(
        self,
        base_features: Tensor,
        query_vectors: Tensor,
        node_vectors: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor,
        ptr: Tensor,
    ) -> Tensor:
        scores = base_features[:, 0]
        if torch.jit.is_scripting() and edge_weight.numel() > 1:
            scores = scores + 1e-4
        return scores


def files(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.mark.parametrize("message_passing", [True, False])
@pytest.mark.parametrize("features", ["scores", "paper", "full"])
def test_exported_equals_eager(tmp_path, make_checkpoint, features, message_passing):
    checkpoint = make_checkpoint(features=features, message_passing=message_passing, edge_features=message_passing)
    folder = export_artifact(checkpoint, tmp_path / "runs" / "artifact")
    assert folder == tmp_path / "runs" / "artifact"
    assert sorted(files(tmp_path)) == [f"runs/artifact/{n}" for n in ("manifest.json", "model.pt", "model.safetensors")]

    artifact = load_artifact(folder)
    entry = artifact.manifest["artifact"]
    assert {key: artifact.manifest[key] for key in checkpoint.manifest} == checkpoint.manifest
    assert entry["format"] == "torchscript"
    assert entry["parity"]["max_difference"] <= entry["parity"]["tolerance"] == 1e-5
    assert entry["parity"]["graphs"] == 7
    vectors = ["[0, 0]", "[0, 0]"] if features == "scores" else ["[B, 8]", "[N, 8]"]
    assert [i["shape"] for i in entry["inputs"]] == ["[N, 3]", *vectors, "[2, E]", "[E]", "[B + 1]"]

    graphs = parity_graphs(checkpoint.manifest)
    for graph in graphs.values():
        expected = checkpoint.model(*graph.model_inputs())
        assert expected.shape == (graph.num_nodes,)
        torch.testing.assert_close(artifact.module(*graph.model_inputs()), expected, rtol=0, atol=1e-5)
        rebuilt = load_checkpoint(folder).model  # an artifact is a checkpoint too
        torch.testing.assert_close(rebuilt(*graph.model_inputs()), expected, rtol=0, atol=1e-5)


def test_an_adapter_is_exported_with_its_z_scores_and_temperature(tmp_path):
    torch.manual_seed(0)
    arguments = {"num_features": 9, "num_selected": 4, "hidden_channels": [8, 8], "dropout": 0.3}
    model = ComplexityAdapter(**arguments).eval()
    model.standardize(torch.tensor([1, 3, 4, 8]), torch.arange(4.0), torch.arange(1.0, 5.0))
    model.temperature.fill_(2.5)
    manifest = {"name": "adapter", "model": {"name": "complexity_adapter", "arguments": arguments}}
    artifact = load_artifact(export_artifact(Checkpoint(model, manifest, Path("best.ckpt")), tmp_path / "artifact"))
    entry = artifact.manifest["artifact"]
    assert entry["inputs"] == [{"name": "features", "dtype": "float32", "shape": "[n, 9]"}]
    assert entry["output"]["shape"] == "[n]"
    x = 3 * torch.randn(20, 9)
    torch.testing.assert_close(artifact.module(x), torch.sigmoid(model.logits(x) / 2.5))
    assert torch.equal(load_checkpoint(artifact.folder).model(x), model(x))


def test_parity_graphs_hold_the_hard_cases(make_checkpoint):
    manifest = make_checkpoint(features="paper").manifest
    graphs = parity_graphs(manifest)
    for name, again in parity_graphs(manifest).items():
        assert torch.equal(graphs[name].x, again.x)
        assert torch.equal(graphs[name].edge_index, again.edge_index)
    sizes = {(g.num_nodes, g.edge_attr.numel()) for g in graphs.values() if g.num_graphs == 1}
    assert sizes == {(n, e) for n in (1, 200) for e in (0, 1, 2000)}
    for graph in graphs.values():
        source, target = graph.edge_index
        owner = torch.bucketize(torch.arange(graph.num_nodes), graph.ptr, right=True)
        assert torch.equal(owner[source], owner[target])  # no edge leaves its graph
        if len(target) == 2000:
            assert (source == target).any()
            assert len(graph.edge_index.unique(dim=1)[0]) < 2000
            assert (target[1:] < target[:-1]).any() or graph.num_nodes == 1  # in no order
    assert len(graphs["nodes=200, edges=0"].x[:, 0].unique()) < 200  # ties
    assert graphs["packed batch"].ptr.diff().tolist() == [1, 7, 200, 0, 3]


def test_training_mode_does_not_reach_the_artifact(tmp_path, make_checkpoint):
    checkpoint = make_checkpoint(dropout=0.5)
    checkpoint.model.train()
    module = load_artifact(export_artifact(checkpoint, tmp_path / "artifact")).module
    assert not module.training
    assert checkpoint.model.training


def test_no_deprecation_warning(tmp_path, make_checkpoint):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_artifact(export_artifact(make_checkpoint(), tmp_path / "artifact"))


def test_gate_refuses_a_model_that_scripts_to_another(tmp_path, make_checkpoint):
    with pytest.raises(ValueError, match=r"scripted model .* agree within 1e-05, got .* 'nodes=1, edges=2000'"):
        export_artifact(make_checkpoint(model_class=DriftingReranker), tmp_path / "new" / "artifact")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part", ["script", "weights"])
def test_gate_refuses_other_weights_and_keeps_the_old_artifact(tmp_path, make_checkpoint, monkeypatch, part):
    export_artifact(make_checkpoint(seed=1), tmp_path / "artifact")
    before = files(tmp_path)
    other = make_checkpoint(seed=2).model
    if part == "script":
        script = torch.jit.script
        monkeypatch.setattr(export.torch.jit, "script", lambda model: script(other))
    else:
        save = export.save_weights
        monkeypatch.setattr(export, "save_weights", lambda folder, model: save(folder, other))
    with pytest.raises(ValueError, match="scripted" if part == "script" else "rebuilt"):
        export_artifact(make_checkpoint(seed=1), tmp_path / "artifact")
    assert files(tmp_path) == before
    load_artifact(tmp_path / "artifact")


def test_gate_refuses_a_manifest_of_another_model(tmp_path, make_checkpoint):
    checkpoint = make_checkpoint()
    checkpoint.manifest["model"] = {"name": "gatv2_reranker", "arguments": {"hidden_channels": 32}}
    with pytest.raises(ValueError, match="not those of the manifest"):
        export_artifact(checkpoint, tmp_path / "artifact")
    checkpoint = make_checkpoint(features="paper")
    checkpoint.manifest["features"] = ["gcs"]  # so that nobody would send the vectors
    with pytest.raises(ValueError, match="fails on the graph"):
        export_artifact(checkpoint, tmp_path / "artifact")
    checkpoint = make_checkpoint(features="paper")
    del checkpoint.manifest["encoder"]["dim"]
    with pytest.raises(ValueError, match=r"needs an entry `encoder\.dim`"):
        export_artifact(checkpoint, tmp_path / "artifact")
    assert list(tmp_path.iterdir()) == []


def test_a_scores_model_needs_no_encoder_to_be_exported(tmp_path, make_checkpoint):
    checkpoint = make_checkpoint(features="scores")
    checkpoint.manifest["encoder"] = None
    artifact = load_artifact(export_artifact(checkpoint, tmp_path / "artifact"))
    assert artifact.manifest["artifact"]["inputs"][1] == {
        "name": "query_vectors",
        "dtype": "float32",
        "shape": "[0, 0]",
    }


def test_parity_difference(make_checkpoint):
    checkpoint = make_checkpoint()
    model, graphs = checkpoint.model, parity_graphs(checkpoint.manifest)
    assert parity_difference(model, copy.deepcopy(model), graphs) == 0.0
    assert parity_difference(model, lambda *x: model(*x) + 0.25, graphs, tolerance=0.5) == pytest.approx(0.25, abs=1e-5)
    with pytest.raises(ValueError, match=r"of nan on the graph 'nodes=1, edges=0'"):
        parity_difference(model, lambda *x: model(*x) * float("nan"), graphs)
    with pytest.raises(ValueError, match=r"shape \[1, 1\], not \[1\]"):
        parity_difference(model, lambda *x: model(*x)[None], graphs)


def test_an_artifact_is_replaced_and_nothing_else(tmp_path, make_checkpoint):
    folder = tmp_path / "artifact"
    folder.mkdir()
    export_artifact(make_checkpoint(seed=1), folder)  # empty
    first = files(folder)
    export_artifact(make_checkpoint(seed=2), folder)
    assert files(folder).keys() == first.keys()
    assert files(folder)["model.safetensors"] != first["model.safetensors"]
    load_artifact(folder)
    assert [f.name for f in tmp_path.iterdir()] == ["artifact"]

    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"found 'notes.txt'"):
        export_artifact(make_checkpoint(), folder)
    assert (folder / "notes.txt").read_text() == "mine"

    checkpoint = tmp_path / "checkpoint"
    export.write_manifest(checkpoint, make_checkpoint().manifest)
    with pytest.raises(ValueError, match="no manifest of an artifact"):
        export_artifact(make_checkpoint(), checkpoint)
    with pytest.raises(ValueError, match="found a file"):
        export_artifact(make_checkpoint(), checkpoint / "manifest.json")


def test_a_failed_replacement_puts_the_old_artifact_back(tmp_path, make_checkpoint, monkeypatch):
    folder = export_artifact(make_checkpoint(seed=1), tmp_path / "artifact")
    before, rename = files(tmp_path), Path.rename

    def fail_on_new(self, target):
        if self.name == "new":
            raise OSError("disk full")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_on_new)
    with pytest.raises(OSError, match="disk full"):
        export_artifact(make_checkpoint(seed=2), folder)
    assert files(tmp_path) == before


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
def test_tampered_or_missing_files_are_refused(tmp_path, make_checkpoint, name):
    file = export_artifact(make_checkpoint(), tmp_path / "artifact") / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}: needed SHA-256 \w+, found"):
        load_artifact(file.parent)
    file.unlink()
    with pytest.raises(ValueError, match=rf"{name}: no such file"):
        load_artifact(file.parent)


def test_what_is_no_artifact_is_refused(tmp_path, make_checkpoint):
    with pytest.raises(ValueError, match="no such artifact"):
        load_artifact(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"needed manifest\.json"):
        load_artifact(tmp_path)
    export.write_manifest(tmp_path, make_checkpoint().manifest)
    with pytest.raises(ValueError, match="not an artifact"):
        load_artifact(tmp_path)

    folder = export_artifact(make_checkpoint(), tmp_path / "artifact")
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["artifact"]["sha256"]["model.pt"]
    export.write_manifest(folder, manifest)
    with pytest.raises(ValueError, match=r"artifact\.sha256\.model\.pt"):
        load_artifact(folder)
    manifest["artifact"]["format"] = "onnx"
    export.write_manifest(folder, manifest)
    with pytest.raises(ValueError, match="'onnx'"):
        load_artifact(folder)

    (folder / "model.pt").write_bytes(b"no archive")
    manifest["artifact"]["format"] = "torchscript"
    manifest["artifact"]["sha256"]["model.pt"] = export.hash_files([folder / "model.pt"])
    export.write_manifest(folder, manifest)
    with pytest.raises(ValueError, match="not TorchScript"):
        load_artifact(folder)


def test_artifact_names_no_folder_of_this_machine(make_checkpoint, tmp_path):
    folder = export_artifact(make_checkpoint(), tmp_path / "artifact")
    here = str(Path(__file__).parents[2]).encode()
    assert not [file.name for file in folder.iterdir() if here in file.read_bytes()]
