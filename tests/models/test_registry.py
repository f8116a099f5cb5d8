"""Models of other packages in checkpoints: known by registration alone, never by what a manifest says."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from graphrerank.core import ModelInputs
from graphrerank.core.model_inputs import SCORES
from graphrerank.installation.plugins import GROUP
from graphrerank.models import registry
from graphrerank.models.checkpoint import load_checkpoint, save_weights
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.manifest import read_manifest, write_manifest
from graphrerank.models.registry import find_model, model_name, read_features, read_inputs, register_model
from tests.support.manifests import make_manifest


class Sums(nn.Module):
    """A model of another package."""

    inputs = ModelInputs(("base_features", "ptr"))

    def __init__(self, *, num_scores: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(1.0, num_scores + 1))

    def forward(self, base_features: Tensor, ptr: Tensor) -> Tensor:
        return base_features @ self.weight


PATH = f"{__name__}.Sums"


@pytest.fixture(autouse=True)
def _unregistered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


def enter(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    entries = {name: EntryPoint(name, value, GROUP) for name, value in values.items()}
    monkeypatch.setattr(registry, "model_entries", lambda: entries)


def write(folder: Path, name: str) -> Path:
    write_manifest(folder, make_manifest(name, {"num_scores": 3}, pair_encoder=None))
    save_weights(folder, Sums(num_scores=3))
    return folder


def test_a_checkpoint_of_a_registered_model_loads(tmp_path: Path) -> None:
    folder = write(tmp_path, PATH)
    with pytest.raises(
        ValueError, match=rf"manifest.json: the manifest's `model.name` must be one of .*, got '{PATH}'\."
    ):
        load_checkpoint(folder)
    assert register_model(Sums) == model_name(Sums) == PATH
    loaded = load_checkpoint(folder)
    assert isinstance(loaded.model, Sums)
    assert loaded.manifest.inputs == Sums.inputs
    assert loaded.model(torch.ones(2, 3), torch.tensor([0, 2])).tolist() == [6, 6]


@pytest.mark.parametrize("name", ["sums", PATH])  # PATH: trained before there was an entry point
def test_a_checkpoint_of_an_entry_points_model_loads(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(monkeypatch, sums=f"{__name__}:Sums")
    assert isinstance(load_checkpoint(write(tmp_path, name)).model, Sums)
    assert register_model(Sums) == "sums"


def test_what_no_entry_point_names_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "outsider_evil.py").write_text("raise SystemExit('imported')\n")
    enter(monkeypatch, harmless="outsider_evil.other:Model")
    for name in ("outsider_evil.Model", "outsider_evil:Model", "outsider_evil"):
        with pytest.raises(ValueError, match=r"`model.name` must be one of"):
            read_manifest(write(tmp_path, name))
    assert "outsider_evil" not in sys.modules


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("nowhere_at_all:Model", "No module named"),
        ("graphrerank.models:Nothing", "has no attribute 'Nothing'"),
        ("graphrerank.models.checkpoint:load_checkpoint", "must be a subclass of torch.nn.Module, got <function"),
        ("torch.nn:Linear", r"torch\.nn\.modules\.linear\.Linear must declare the inputs of its `forward`"),
    ],
)
def test_an_entry_point_of_no_model_is_named(value: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(monkeypatch, broken=value)
    with pytest.raises(ValueError, match=f"the entry point broken = '{value}' cannot be loaded: .*{message}"):
        find_model("broken")
    enter(monkeypatch, gatv2_reranker=f"{__name__}:Sums")
    with pytest.raises(ValueError, match=r"gatv2_reranker = .* must not have the name of a built-in model"):
        find_model("else")


def test_what_a_model_reads() -> None:
    with pytest.raises(ValueError, match=r"the model must be one of \['complexity_adapter', .*\].*, got .*Linear"):
        model_name(nn.Linear)
    assert register_model(GATv2Reranker) == model_name(GATv2Reranker) == "gatv2_reranker"
    assert read_inputs(Sums, {"num_scores": 3}) == Sums.inputs
    assert read_inputs(find_model("gatv2_reranker"), {"features": "scores"}) == SCORES
    assert read_features(Sums(num_scores=2), ("base_score", "bm25_score")) == ["base_score", "bm25_score"]
    assert read_features(GATv2Reranker(num_scores=2), ("base_score", "bm25_score"))[2] == "gcs"
