"""Beginning with finished weights: what may differ, what stays, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.graphs.retriever import CROSS_ENCODER_FEATURES
from graphrerank.models.checkpoint import Checkpoint, load_primary
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.manifest import parse_manifest
from graphrerank.models.start import start_entry, start_from, train_only


@pytest.fixture(scope="module")
def base() -> Checkpoint:
    return load_primary("base-1")


def arguments(start: Checkpoint, **others: Any) -> dict[str, Any]:
    return {**start.reranker.model.arguments, **others}


def test_same_model(base: Checkpoint) -> None:
    settings = arguments(base)
    model = GATv2Reranker(**settings)
    start_from(model, settings, base.reranker.retriever.feature_names, base)
    for name, weight in base.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight)


def test_scores_of_a_cross_encoder_may_join(base: Checkpoint) -> None:
    count = arguments(base)["num_scores"]
    settings = arguments(base, num_scores=count + 3, num_pair_scores=3)
    model = GATv2Reranker(**settings).eval()
    start_from(model, settings, [*base.reranker.retriever.feature_names, *CROSS_ENCODER_FEATURES], base)
    x = torch.rand(7, count)
    edges = torch.tensor([[0, 1, 5], [1, 0, 6]]), torch.ones(3), torch.tensor([0, 7])
    nothing = torch.empty(0, 0), torch.empty(0, 0)
    expected = base.model(x, *nothing, *edges)
    assert torch.equal(model(torch.cat([x, torch.zeros(7, 3)], dim=1), *nothing, *edges), expected)
    torch.nn.init.normal_(model.lin_pairs.weight)
    assert torch.equal(model(torch.cat([x, torch.zeros(7, 3)], dim=1), *nothing, *edges), expected)
    read = torch.cat([x, torch.rand(7, 3)], dim=1)
    assert not torch.equal(model(read, *nothing, *edges), expected)
    torch.testing.assert_close(torch.jit.script(model)(read, *nothing, *edges), model(read, *nothing, *edges))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"hidden_channels": 32}, r"hidden_channels=64 \(here 32\)"),
        ({"num_scores": 4, "num_layers": 2}, r"num_layers=3 \(here 2\), num_scores="),
        ({"num_pair_scores": 1}, "needs the scores that .* was trained on"),
    ],
)
def test_another_model_is_refused(base: Checkpoint, changed: dict[str, Any], message: str) -> None:
    settings = arguments(base, **changed)
    names = base.reranker.retriever.feature_names
    if "num_pair_scores" in changed:
        names = ("of another retriever", *names)
    with pytest.raises(ValueError, match=message):
        start_from(GATv2Reranker(**settings), settings, names, base)


def test_only_some_parts_change(base: Checkpoint) -> None:
    model = GATv2Reranker(num_scores=5, num_pair_scores=2)
    train_only(model, ["lin_pairs", "lin_out"])
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained == {"lin_pairs.weight", "lin_out.weight", "lin_out.bias"}
    with pytest.raises(
        ValueError, match=r"`train_only` must name parts of the model, \['blocks', .*got \['lin_pair'\]"
    ):
        train_only(model, ["lin_pair"])


def test_the_manifest_remembers_all_data(base: Checkpoint, tmp_path: Path) -> None:
    entry = start_entry(base, "base-1")
    manifest = parse_manifest({**base.manifest.content, "start": entry}, tmp_path)
    own, before = base.reranker.trained_on, manifest.trained_on  # type: ignore[union-attr]
    assert list(before) == [*(f"base-1/{name}" for name in own), *own]
    assert before["base-1/attack"] == own["attack"].model_copy(update={"choice": None})
    third = start_entry(replace(base, manifest=manifest), "second")
    assert "base-1/attack" in third["trained_on"]
