from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphrerank.artifacts import export as export_module
from graphrerank.artifacts.artifact import load_artifact
from graphrerank.artifacts.export import export_artifact
from graphrerank.artifacts.parity import parity_batches
from graphrerank.models.checkpoint import Checkpoint, load_checkpoint
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.manifest import write_manifest


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


@pytest.fixture(scope="module")
def export() -> partial[Path]:
    """Exports TorchScript past a short gate."""
    return partial(export_artifact, num_batches=12)


def files(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.mark.parametrize(
    ("num_edge_types", "features", "message_passing"),
    [(0, "scores", True), (5, "scores", False), (5, "paper", True), (0, "full", False), (5, "full", True)],
)
def test_exported_equals_eager(tmp_path, make_checkpoint, export, num_edge_types, features, message_passing):
    checkpoint = make_checkpoint(
        features=features, message_passing=message_passing, edge_features=message_passing, num_edge_types=num_edge_types
    )
    folder = export(checkpoint, tmp_path / "runs" / "artifact")
    assert folder == tmp_path / "runs" / "artifact"
    assert sorted(files(tmp_path)) == [f"runs/artifact/{n}" for n in ("manifest.json", "model.pt", "model.safetensors")]

    artifact = load_artifact(folder)
    entry = artifact.manifest.content["artifact"]
    assert artifact.manifest.without("artifact").content == checkpoint.manifest.content
    assert list(entry["parity"]["max_difference"]) == ["safetensors", "torchscript"]
    assert max(entry["parity"]["max_difference"].values()) <= entry["parity"]["tolerance"] == 1e-5
    assert entry["parity"]["batches"] == 12
    types = ["[E]"] if num_edge_types else []
    vectors = ["[0, 0]", "[0, 0]"] if features == "scores" else ["[B, 8]", "[N, 8]"]
    assert [i["shape"] for i in entry["inputs"]] == ["[N, 3]", *vectors, "[2, E]", "[E]", "[B + 1]", *types]

    for batch in parity_batches(checkpoint.manifest, 8):
        expected = checkpoint.model(*batch.inputs)
        assert expected.shape == batch.inputs[0].shape[:1]
        torch.testing.assert_close(artifact.module(*batch.inputs), expected, rtol=0, atol=1e-5)
        rebuilt = load_checkpoint(folder).model  # an artifact is a checkpoint too
        torch.testing.assert_close(rebuilt(*batch.inputs), expected, rtol=0, atol=1e-5)


def test_training_mode_does_not_reach_the_artifact(tmp_path, make_checkpoint, export):
    checkpoint = make_checkpoint(dropout=0.5)
    checkpoint.model.train()
    module = load_artifact(export(checkpoint, tmp_path / "artifact")).module
    assert not module.training
    assert checkpoint.model.training


def test_gate_refuses_a_model_that_scripts_to_another(tmp_path, make_checkpoint, export):
    with pytest.raises(ValueError, match=r"format torchscript fails on batch 'nodes=1, edges=2000': .* within 1e-05"):
        export(make_checkpoint(model_class=DriftingReranker), tmp_path / "new" / "artifact")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part", ["script", "weights"])
def test_gate_refuses_other_weights_and_keeps_the_old_artifact(tmp_path, make_checkpoint, export, monkeypatch, part):
    export(make_checkpoint(seed=1), tmp_path / "artifact")
    before = files(tmp_path)
    other = make_checkpoint(seed=2).model
    if part == "script":
        script = torch.jit.script
        monkeypatch.setattr(torch.jit, "script", lambda model: script(other))
    else:
        save = export_module.save_weights
        monkeypatch.setattr(export_module, "save_weights", lambda folder, model: save(folder, other))
    with pytest.raises(ValueError, match="torchscript" if part == "script" else "rebuilt"):
        export(make_checkpoint(seed=1), tmp_path / "artifact")
    assert files(tmp_path) == before
    load_artifact(tmp_path / "artifact")


def test_gate_refuses_a_manifest_of_another_model(tmp_path, make_checkpoint, export):
    def changed(checkpoint: Checkpoint, **entries: object) -> Checkpoint:
        return replace(checkpoint, manifest=checkpoint.manifest.with_entries(**entries))

    for arguments in ({"hidden_channels": 32}, {"features": "scores"}):
        model = {"name": "gatv2_reranker", "arguments": arguments}
        with pytest.raises(ValueError, match="do not fit the model of the manifest"):
            export(changed(make_checkpoint(features="paper"), model=model), tmp_path / "artifact")
    assert list(tmp_path.iterdir()) == []


def test_a_scores_model_needs_no_encoder_to_be_exported(tmp_path, make_checkpoint, export):
    checkpoint = make_checkpoint(features="scores")
    checkpoint = replace(checkpoint, manifest=checkpoint.manifest.with_entries(encoder=None))
    artifact = load_artifact(export(checkpoint, tmp_path / "artifact"))
    assert artifact.manifest.content["artifact"]["inputs"][1] == {
        "name": "query_vectors",
        "dtype": "float32",
        "shape": "[0, 0]",
    }


def test_an_artifact_is_replaced_and_nothing_else(tmp_path, make_checkpoint, export):
    folder = tmp_path / "artifact"
    folder.mkdir()
    export(make_checkpoint(seed=1), folder)  # empty
    first = files(folder)
    export(make_checkpoint(seed=2), folder)
    assert files(folder).keys() == first.keys()
    assert files(folder)["model.safetensors"] != first["model.safetensors"]
    load_artifact(folder)
    assert [f.name for f in tmp_path.iterdir()] == ["artifact"]

    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"it contains 'notes.txt'"):
        export(make_checkpoint(), folder)
    assert (folder / "notes.txt").read_text() == "mine"

    checkpoint = tmp_path / "checkpoint"
    write_manifest(checkpoint, make_checkpoint().manifest.content)
    with pytest.raises(ValueError, match="no manifest of an artifact"):
        export(make_checkpoint(), checkpoint)
    with pytest.raises(ValueError, match="but this is a file"):
        export(make_checkpoint(), checkpoint / "manifest.json")
