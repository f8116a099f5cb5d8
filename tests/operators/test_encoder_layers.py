import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.operators import encoder_layers
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.operators.encoder_layers import EncoderLayers
from tests.operators.test_cross_encoder import KINDS, PASSAGES, QUERIES, build, logits

NUM_LAYERS = 3  # of which ModernBERT's first reads without a norm, and others only near tokens


def reader(kind: str, folder: Path, **settings: Any) -> CrossEncoder:
    settings = {"num_hidden_layers": NUM_LAYERS, **settings}
    if kind.startswith("modernbert"):
        settings = {"local_attention": 4, **settings}
    return CrossEncoder(build(kind, folder, **settings), max_length=36, batch_size=2, device="cpu")


def states(encoder: CrossEncoder, num_layers: int) -> tuple[Tensor, Tensor]:
    return encoder.encode_states(QUERIES, PASSAGES, without_last=num_layers)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
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
        position = next((i for i, part in enumerate(parts) if part.isdigit()), None)
        if position is not None:
            parts[position] = str(int(parts[position]) + below)
        gradient = expected[".".join(parts)].grad
        torch.testing.assert_close(parameter.grad, gradient, atol=2e-4, rtol=1e-3)
        checked += 1
    assert checked > 10


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
    plain = logits(tmp_path / "trained", QUERIES, PASSAGES, max_length=36)  # transformers alone
    torch.testing.assert_close(plain, expected, atol=1e-5, rtol=0)
    assert (found - logits(tmp_path / "start", QUERIES, PASSAGES, max_length=36)).abs().max() > 1e-3
    assert trained.fingerprint != encoder.fingerprint
    assert (tmp_path / "trained" / "model.safetensors").is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"start", "trained"}


def test_layers_and_biases_that_are_not_there_are_refused(tmp_path: Path) -> None:
    encoder = reader("modernbert-cls", tmp_path / "start")  # its head has no bias
    for num_layers in (0, 4, -1):
        with pytest.raises(ValueError, match=rf"`train_last_layers` must be in \[1, 3\] .*, got {num_layers}"):
            encoder.last_layers(num_layers)
    head = encoder.classification_head
    torch.nn.init.ones_(head.dense.bias)
    with pytest.raises(ValueError, match=r"`head` must have no bias where .* has none, got one"):
        encoder.save_trained(tmp_path / "trained", encoder.last_layers(1), head)
    assert not (tmp_path / "trained").exists()
