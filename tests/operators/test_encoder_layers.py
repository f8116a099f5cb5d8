import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import ElectraConfig

from graphrerank.operators import encoder_layers
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.operators.encoder_layers import EncoderLayers, layer_settings
from tests.operators.test_cross_encoder import KINDS, PASSAGES, QUERIES, build, logits

NUM_LAYERS = 3  # of which ModernBERT's first reads without a norm, and others only near tokens
PARTS = [1, 2, 3]


def reader(kind: str, folder: Path, **settings: Any) -> CrossEncoder:
    settings = {"num_hidden_layers": NUM_LAYERS, **settings}
    if kind.startswith("modernbert"):
        settings = {"local_attention": 4, **settings}
    return CrossEncoder(build(kind, folder, **settings), max_length=36, batch_size=2, device="cpu")


def states(encoder: CrossEncoder, num_layers: int) -> tuple[Tensor, Tensor]:
    return encoder.encode_states(QUERIES, PASSAGES, without_last=num_layers)


@pytest.mark.parametrize("num_layers", PARTS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_two_parts_are_the_whole_encoder(kind: str, num_layers: int, tmp_path: Path) -> None:
    encoder = reader(kind, tmp_path)
    token_states, token_ptr = states(encoder, num_layers)
    expected = encoder.encode(QUERIES, PASSAGES)
    assert token_ptr.tolist() == [0, *torch.tensor([8, 4, 13, 7, 31]).cumsum(0).tolist()]  # three tokens around words
    assert token_states.shape == (63, 16)
    layers = encoder.last_layers(num_layers).eval()
    found = layers(token_states, token_ptr)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    with torch.inference_mode():
        assert torch.equal(layers(token_states, token_ptr), found)  # nothing is computed again, and it is the same
    settings = json.loads(json.dumps(encoder.layer_settings))
    rebuilt = EncoderLayers(settings, num_layers).eval()
    rebuilt.load_state_dict(layers.state_dict())
    assert torch.equal(rebuilt(token_states, token_ptr), found)


@pytest.mark.parametrize("kind", ["bert", "modernbert-mean"])
def test_gradients_against_the_whole_encoder(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_layers, "CHUNK_PAIRS", 2)
    encoder = reader(kind, tmp_path)
    layers = encoder.last_layers(2).eval()
    layers(*states(encoder, 2)).square().sum().backward()
    loaded = encoder._loaded
    total = torch.zeros(())
    for query, passage in zip(QUERIES, PASSAGES, strict=True):
        tokens = loaded.tokenizer([query], [passage], return_tensors="pt")
        found = loaded.body(**tokens).last_hidden_state[0]
        total = total + (found.mean(0) if kind.endswith("mean") else found[0]).square().sum()
    total.backward()
    expected = dict(loaded.body.named_parameters())
    below = NUM_LAYERS - layers.num_layers
    checked = 0
    for name, parameter in layers.body.named_parameters():
        parts = name.split(".")
        place = next((i for i, part in enumerate(parts) if part.isdigit()), None)
        if place is not None:
            parts[place] = str(int(parts[place]) + below)
        gradient = expected[".".join(parts)].grad
        assert gradient is not None
        torch.testing.assert_close(parameter.grad, gradient, atol=2e-4, rtol=1e-3)
        checked += 1
    assert checked > 10


def test_dropout_is_of_training_alone_and_the_same_when_computed_again(tmp_path: Path) -> None:
    encoder = reader("bert", tmp_path)
    layers, inputs = encoder.last_layers(1), states(encoder, 1)
    assert layers.training
    assert not torch.equal(layers(*inputs), layers(*inputs))
    torch.manual_seed(3)
    layers(*inputs).sum().backward()
    first = [parameter.grad.clone() for parameter in layers.parameters() if parameter.grad is not None]
    layers.zero_grad()
    torch.manual_seed(3)
    layers(*inputs).sum().backward()
    again = [parameter.grad for parameter in layers.parameters() if parameter.grad is not None]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_pairs_do_not_change_each_other(tmp_path: Path) -> None:
    encoder = reader("modernbert-cls", tmp_path)
    layers, (token_states, token_ptr) = encoder.last_layers(2).eval(), states(encoder, 2)
    together = layers(token_states, token_ptr)
    for pair in range(len(QUERIES)):
        own = token_states[token_ptr[pair] : token_ptr[pair + 1]]
        torch.testing.assert_close(layers(own, torch.tensor([0, len(own)]))[0], together[pair], atol=1e-5, rtol=0)


def test_no_pairs(tmp_path: Path) -> None:
    encoder = reader("bert", tmp_path)
    token_states, token_ptr = encoder.encode_states([], [], without_last=1)
    assert (token_states.shape, token_ptr.tolist()) == ((0, 16), [0])
    assert encoder.last_layers(1)(token_states, token_ptr).shape == (0, 16)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_folder_has_the_trained_logits(kind: str, tmp_path: Path) -> None:
    encoder = reader(kind, tmp_path / "start")
    layers, head = encoder.last_layers(2).eval(), encoder.classification_head
    with torch.no_grad():
        for parameter in [*layers.parameters(), head.dense.weight, head.out.weight, head.out.bias]:
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    expected = head(layers(*states(encoder, 2))).detach()
    encoder.save_trained(tmp_path / "trained", layers, head)
    trained = CrossEncoder(tmp_path / "trained", max_length=36, device="cpu")
    found = trained.head(trained.encode(QUERIES, PASSAGES))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    own = logits(tmp_path / "trained", QUERIES, PASSAGES, max_length=36)  # transformers alone
    torch.testing.assert_close(own, expected, atol=1e-5, rtol=0)
    assert (found - logits(tmp_path / "start", QUERIES, PASSAGES, max_length=36)).abs().max() > 1e-3
    assert trained.fingerprint != encoder.fingerprint
    assert (tmp_path / "trained" / "model.safetensors").is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"start", "trained"}


def test_a_bias_without_a_place_is_refused(tmp_path: Path) -> None:
    encoder = reader("modernbert-cls", tmp_path)  # its head has no bias
    head = encoder.classification_head
    torch.nn.init.ones_(head.dense.bias)
    with pytest.raises(ValueError, match=r"`head` must have no bias where .* has none, got one"):
        encoder.save_trained(tmp_path / "trained", encoder.last_layers(1), head)
    assert not (tmp_path / "trained").exists()


@pytest.mark.parametrize("num_layers", [0, 4, -1])
def test_more_layers_than_there_are_are_refused(num_layers: int, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=rf"`train_last_layers` must lie in \[1, 3\] for this encoder, got {num_layers}"
    ):
        reader("bert", tmp_path).last_layers(num_layers)


def test_other_encoders_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"needs an encoder of one of \('bert', .*\), got 'electra'"):
        EncoderLayers(layer_settings(ElectraConfig()), 1)
