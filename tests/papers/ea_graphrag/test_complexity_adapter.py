from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphrerank.core.model_inputs import QUERIES
from graphrerank.models.checkpoint import load_checkpoint, save_weights
from graphrerank.models.manifest import parse_manifest, write_manifest
from graphrerank.models.registry import model_name
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter
from tests.support.manifests import make_manifest

ARGUMENTS: dict[str, Any] = {"num_features": 9, "num_selected": 4, "hidden_channels": [16, 16, 8], "dropout": 0.4}
COLUMNS = torch.tensor([1, 3, 4, 8])


def adapter(**arguments: Any) -> ComplexityAdapter:
    torch.manual_seed(0)
    model = ComplexityAdapter(**(ARGUMENTS | arguments))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    model.standardize(COLUMNS, torch.tensor([1.0, -2.0, 0.0, 50.0]), torch.tensor([2.0, 1.0, 0.1, 30.0]))
    model.temperature.fill_(1.7)
    return model.eval()


def raw(num_rows: int = 6, seed: int = 0) -> Tensor:
    return 10 * torch.randn(num_rows, 9, generator=torch.Generator().manual_seed(seed))


def test_against_a_naive_forward() -> None:
    model, x = adapter(), raw()
    state = model.state_dict()

    def attention(name: str, x: Tensor) -> Tensor:
        weight = (x @ state[f"{name}.lin.weight"].T + state[f"{name}.lin.bias"]).softmax(dim=1)
        return x * weight * x.shape[1]

    hidden = ((x[:, COLUMNS] - state["mean"]) / state["std"]).clamp(-5, 5)
    hidden = attention("feature_attention", hidden)
    for layer, residual in enumerate([False, True, False]):  # 4 -> 16 -> 16 -> 8
        new = hidden @ state[f"layers.{layer}.lin.weight"].T + state[f"layers.{layer}.lin.bias"]
        new = (new - new.mean(1, keepdim=True)) / (new.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
        new = (new * state[f"layers.{layer}.norm.weight"] + state[f"layers.{layer}.norm.bias"]).relu()
        hidden = hidden + new if residual else new
    hidden = attention("output_attention", hidden)
    logits = (hidden @ state["lin_out.weight"].T + state["lin_out.bias"])[:, 0]
    torch.testing.assert_close(model.logits(x), logits)
    torch.testing.assert_close(model(x), torch.sigmoid(logits / 1.7))


@pytest.mark.parametrize("arguments", [{}, {"hidden_channels": [256, 128, 64]}, {"hidden_channels": [4]}])
def test_scripted_equals_eager(arguments: dict[str, Any], tmp_path: Path) -> None:
    model = adapter(**arguments)
    torch.jit.save(torch.jit.script(model), tmp_path / "model.pt")
    scripted = torch.jit.load(tmp_path / "model.pt")
    with torch.inference_mode():
        for num_rows in (0, 1, 7, 300):
            for _ in range(2):
                x = raw(num_rows)
                torch.testing.assert_close(scripted(x), model(x), atol=1e-6, rtol=0)
                torch.testing.assert_close(scripted.logits(x), model.logits(x), atol=1e-5, rtol=0)
    with pytest.raises(torch.jit.Error, match=r"`features` must have shape \[n, 9\], got \[2, 4\]"):
        scripted(torch.zeros(2, 4))


def test_laws() -> None:
    model, x = adapter(), raw()
    others = x.clone()
    others[:, [0, 2, 5, 6, 7]] = 1e30  # columns that are not selected
    assert torch.equal(model(others), model(x))
    assert not torch.equal(model(x + 1), model(x))
    torch.testing.assert_close(model(x[:2]), torch.cat([model(x[:1]), model(x[1:2])]))
    found = model(torch.stack([torch.zeros(9), torch.full((9,), 1e12), torch.full((9,), -1e12)]))
    assert bool(((found > 0) & (found < 1)).all())


def test_checkpoint_round_trip_keeps_z_scores_and_temperature(tmp_path: Path) -> None:
    model = adapter()
    write_manifest(tmp_path, make_manifest(model_name(ComplexityAdapter), ARGUMENTS))
    save_weights(tmp_path, model)
    loaded = load_checkpoint(tmp_path).model
    assert {name for name, _ in loaded.named_buffers()} == {"selected", "mean", "std", "temperature"}
    assert torch.equal(loaded(raw()), model(raw()))


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match=r"`num_selected` must be between 1 and `num_features` \(9\), got 10"):
        adapter(num_selected=10)
    with pytest.raises(ValueError, match=r"`hidden_channels` must be one or more positive widths, got \[\]"):
        adapter(hidden_channels=[])


def test_the_entry_point_gives_the_kind_of_manifest() -> None:
    adapter = parse_manifest(make_manifest("complexity_adapter", ARGUMENTS), "here")
    assert (adapter.inputs, adapter.input_shapes) == (QUERIES, {"features": "[n, 9]"})
    assert (adapter.num_features, adapter.thresholds.low, adapter.thresholds.high) == (9, -1.0, 2.0)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"thresholds": {"low": 0.5, "high": 0.5}}, "`thresholds`: `low` must be less than `high`"),
        ({"syntax": {"name": "dependency", "fingerprint": "s"}}, r"needs an entry `syntax\.feature_names`"),
    ],
)
def test_a_broken_entry_is_refused(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_manifest(make_manifest("complexity_adapter", ARGUMENTS, **entries), "here")
