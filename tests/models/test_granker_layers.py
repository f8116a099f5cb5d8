from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.models.checkpoint import load_checkpoint, save_weights
from graphrerank.models.granker_head import GRankerHead, head_arguments
from graphrerank.models.granker_layers import GRankerLayers, trainable_granker
from graphrerank.models.manifest import write_manifest
from graphrerank.models.registry import model_name
from graphrerank.operators.cross_encoder import CrossEncoder
from tests.operators.test_cross_encoder import KINDS, PASSAGES, QUERIES, build
from tests.support.manifests import make_manifest

EDGES = torch.tensor([[1, 2, 0, 3], [0, 0, 2, 1]])  # the last node has no neighbour
DEGREE = torch.tensor([2, 1, 4, 3, 0])


def reader(kind: str, folder: Path) -> CrossEncoder:
    return CrossEncoder(build(kind, folder), max_length=36, device="cpu")


def inputs(encoder: CrossEncoder, num_layers: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (*encoder.encode_states(QUERIES, PASSAGES, without_last=num_layers), EDGES, DEGREE)


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_starts_as_the_frozen_granker(kind: str, num_layers: int, tmp_path: Path) -> None:
    encoder = reader(kind, tmp_path)
    model = GRankerLayers.from_encoder(encoder, num_layers, learn_smoothing=True, dropout=0.5).eval()
    frozen = GRankerHead.from_head(encoder.classification_head).eval()
    expected = frozen(encoder.encode(QUERIES, PASSAGES), EDGES, DEGREE)
    torch.testing.assert_close(model(*inputs(encoder, num_layers)), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_with_a_place_in_the_encoder_is_trained(kind: str, tmp_path: Path) -> None:
    encoder = reader(kind, tmp_path)
    model = GRankerLayers.from_encoder(encoder, 1, learn_smoothing=True)
    model(*inputs(encoder, 1)).square().sum().backward()
    still = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    without_place = {"granker.head.dense.bias", "granker.head.norm.bias"} if kind == "modernbert-cls" else set()
    assert still == without_place
    encoder.save_trained(tmp_path / "trained", model.layers, model.granker.head)  # which refuses other biases


def test_checkpoint_round_trip(tmp_path: Path) -> None:
    encoder = reader("modernbert-mean", tmp_path / "encoder")
    model = GRankerLayers.from_encoder(encoder, 1, smoothing=0.4).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    arguments = {
        **head_arguments(encoder.classification_head),
        "smoothing": 0.4,
        "train_last_layers": 1,
        "encoder": encoder.layer_settings,
    }
    write_manifest(tmp_path, make_manifest(model_name(GRankerLayers), arguments))
    save_weights(tmp_path, model)
    loaded = load_checkpoint(tmp_path).model
    assert torch.equal(loaded(*inputs(encoder, 1)), model(*inputs(encoder, 1)))
    held = sum(weight.numel() for weight in loaded.state_dict().values())
    assert held < 0.6 * sum(weight.numel() for weight in encoder._loaded.body.state_dict().values())  # what is trained


def test_no_layer_is_the_head_alone() -> None:
    assert type(trainable_granker(hidden_size=8, smoothing=0.3)) is GRankerHead


BERT = {"model_type": "bert", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2}


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({}, "`encoder` must be given where `train_last_layers` is 1, got none"),
        ({"encoder": {"model_type": "gpt2"}}, r"`train_last_layers` needs an encoder of one of .*, got 'gpt2'"),
        ({"encoder": BERT | {"num_attention_heads": 3}}, "the encoder's settings do not fit 'bert'"),
        ({"encoder": BERT, "train_last_layers": 1.5}, r"`train_last_layers` must lie in \[1, 2\] .*, got 1.5"),
        ({"encoder": BERT, "smoothing": 1.1}, r"`smoothing` must lie in \[0, 1\], got 1.1"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        trainable_granker(**{"train_last_layers": 1, "hidden_size": 8} | arguments)
