from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.core.adapters import model_interface
from graphrerank.core.model_inputs import PAIRS, token_states
from graphrerank.models.checkpoint import load_checkpoint, save_weights
from graphrerank.models.granker import GRankerHead, frozen_grankers
from graphrerank.models.granker_layers import GRankerLayers, granker_arguments, trainable_granker
from graphrerank.models.manifest import write_manifest
from graphrerank.models.registry import model_name
from graphrerank.operators.cross_encoder import CrossEncoder
from tests.models.test_granker import DEGREE, EDGES
from tests.operators.test_cross_encoder import KINDS, PASSAGES, QUERIES, build
from tests.support.manifests import make_manifest


def reader(kind: str, folder: Path) -> CrossEncoder:
    return CrossEncoder(build(kind, folder), max_length=36, device="cpu")


def granker_of(encoder: CrossEncoder, **settings: Any) -> GRankerHead | GRankerLayers:
    model = trainable_granker(**granker_arguments(settings, encoder))
    model.start_from(encoder)
    return model


def inputs(encoder: CrossEncoder, num_layers: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (*encoder.encode_states(QUERIES, PASSAGES, without_last=num_layers), EDGES, DEGREE)


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_layers_start_as_the_frozen_granker(kind: str, num_layers: int, tmp_path: Path) -> None:
    encoder = reader(kind, tmp_path)
    model = granker_of(encoder, train_last_layers=num_layers, learn_smoothing=True, dropout=0.5).eval()
    frozen = frozen_grankers(encoder)["granker"].eval()
    expected = frozen(encoder.encode(QUERIES, PASSAGES), EDGES, DEGREE)
    torch.testing.assert_close(model(*inputs(encoder, num_layers)), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_that_the_encoder_has_is_trained(kind: str, tmp_path: Path) -> None:
    encoder = reader(kind, tmp_path)
    model = granker_of(encoder, train_last_layers=1, learn_smoothing=True)
    assert isinstance(model, GRankerLayers)
    model(*inputs(encoder, 1)).square().sum().backward()
    still = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    missing = {"granker.head.dense.bias", "granker.head.norm.bias"} if kind == "modernbert-cls" else set()
    assert still == missing
    encoder.save_trained(tmp_path / "trained", model.layers, model.granker.head)  # which refuses other biases


def test_a_checkpoint_holds_the_trained_layers_alone(tmp_path: Path) -> None:
    encoder = reader("modernbert-mean", tmp_path / "encoder")
    settings = {"smoothing": 0.4, "learn_smoothing": True, "train_last_layers": 1}
    model = granker_of(encoder, **settings).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    write_manifest(tmp_path, make_manifest(model_name(type(model)), granker_arguments(settings, encoder)))
    save_weights(tmp_path, model)
    loaded = load_checkpoint(tmp_path)
    assert loaded.manifest.model.name == "granker_layers"
    assert torch.equal(loaded.model(*inputs(encoder, 1)), model(*inputs(encoder, 1)))
    size = sum(weight.numel() for weight in loaded.model.state_dict().values())
    assert size < 0.6 * sum(weight.numel() for weight in encoder._loaded.body.state_dict().values())


def test_without_layers_it_is_the_head(tmp_path: Path) -> None:
    encoder = reader("bert", tmp_path)
    arguments = granker_arguments({"train_last_layers": 0, "smoothing": 0.4}, encoder)
    assert "train_last_layers" not in arguments
    assert isinstance(trainable_granker(**arguments), GRankerHead)


@pytest.mark.parametrize(("settings", "expected"), [({}, PAIRS), ({"train_last_layers": 2}, token_states(2))])
def test_inputs_before_the_model_is_built(settings: dict[str, Any], expected: Any) -> None:
    inputs_of = model_interface(trainable_granker).inputs_of
    assert inputs_of is not None
    assert inputs_of(**settings) == expected


BERT = {"model_type": "bert", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2}
LAYERS: dict[str, Any] = {"train_last_layers": 1, "hidden_size": 8}


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (LAYERS, r"`train_last_layers` needs an encoder of a type in .*, got None"),
        (LAYERS | {"encoder": {"model_type": "gpt2"}}, r"`train_last_layers` needs an encoder .*, got 'gpt2'"),
        (LAYERS | {"encoder": BERT | {"num_attention_heads": 3}}, "the encoder's settings do not fit 'bert'"),
        (LAYERS | {"encoder": BERT, "train_last_layers": 1.5}, r"`train_last_layers` must be in \[1, 2\] .*, got 1.5"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        trainable_granker(**arguments)
