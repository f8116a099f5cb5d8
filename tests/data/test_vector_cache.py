from pathlib import Path

import pytest
import torch

from graphrerank.data import vector_cache
from graphrerank.data.vector_cache import VectorCache
from graphrerank.files import save_tensors
from tests.support.encoders import HashEncoder

TEXTS = ["alpha", "beta beta", "gamma gamma gamma", "", "delta"]


def shards(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors"))


def test_against_the_encoder_itself(tmp_path: Path) -> None:
    expected = HashEncoder().encode(TEXTS)
    cache = VectorCache(HashEncoder(), tmp_path)
    assert torch.equal(cache.encode(TEXTS), expected)
    assert torch.equal(cache.encode(TEXTS[::-1]), expected.flip(0))
    assert (cache.name, cache.fingerprint) == ("hash", "hash")


def test_nothing_is_encoded_twice(tmp_path: Path) -> None:
    VectorCache(HashEncoder(), tmp_path).encode(TEXTS)
    encoder = HashEncoder()
    found = VectorCache(encoder, str(tmp_path)).encode(TEXTS)  # another process, say
    assert encoder.asked == []
    assert torch.equal(found, HashEncoder().encode(TEXTS))


def test_new_texts_alone_are_encoded(tmp_path: Path) -> None:
    encoder = HashEncoder()
    cache = VectorCache(encoder, tmp_path)
    cache.encode(TEXTS[:3])
    cache.encode(TEXTS)
    assert sorted(encoder.asked) == sorted(TEXTS)


def test_repeated_texts_are_encoded_once(tmp_path: Path) -> None:
    encoder = HashEncoder()
    found = VectorCache(encoder, tmp_path).encode(["a", "b", "a", "a"])
    assert sorted(encoder.asked) == ["a", "b"]
    assert torch.equal(found, HashEncoder().encode(["a", "b", "a", "a"]))


def test_interrupted_run_goes_on_from_its_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_cache, "SHARD_TEXTS", 2)
    texts = [f"text {i}" for i in range(9)]
    stopped = HashEncoder(stop_after=5)
    with pytest.raises(KeyboardInterrupt):
        VectorCache(stopped, tmp_path).encode(texts)
    assert len(stopped.asked) == 4  # two shards of two
    assert len(shards(tmp_path)) == 2
    resumed = HashEncoder()
    found = VectorCache(resumed, tmp_path).encode(texts)
    assert sorted(stopped.asked + resumed.asked) == sorted(texts)
    assert torch.equal(found, HashEncoder().encode(texts))


def test_encoders_do_not_share_vectors(tmp_path: Path) -> None:
    VectorCache(HashEncoder(), tmp_path).encode(TEXTS)
    other = HashEncoder(fingerprint="e" * 64)
    VectorCache(other, tmp_path).encode(TEXTS)
    assert len(other.asked) == len(TEXTS)


def test_no_texts(tmp_path: Path) -> None:
    encoder = HashEncoder()
    assert VectorCache(encoder, tmp_path).encode([]).numel() == 0
    assert encoder.asked == []


def test_surrogates_from_json_are_texts_too(tmp_path: Path) -> None:
    class Tolerant(HashEncoder):
        def encode(self, texts: list[str]) -> torch.Tensor:
            return torch.ones(len(texts), 2)

    assert VectorCache(Tolerant(), tmp_path).encode(["\ud800"]).tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("damage", ["empty", "cut", "noise"])
def test_damaged_file_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    VectorCache(HashEncoder(), tmp_path).encode(TEXTS)
    (file,) = shards(tmp_path)
    content = file.read_bytes()
    file.write_bytes({"empty": b"", "cut": content[:-5], "noise": b"\xff" * 99}[damage])
    with pytest.raises(ValueError, match=rf"{file.name}: damaged cache .*; delete this file and run again"):
        VectorCache(HashEncoder(), tmp_path).encode(TEXTS)


@pytest.mark.parametrize(
    "vectors", [torch.full((5, 6), torch.nan), torch.full((5, 6), torch.inf), torch.zeros(4, 6), torch.zeros(5)]
)
def test_file_with_unusable_vectors_is_refused_by_name(tmp_path: Path, vectors: torch.Tensor) -> None:
    VectorCache(HashEncoder(), tmp_path).encode(TEXTS)
    (file,) = shards(tmp_path)
    save_tensors(file, {"keys": torch.zeros(5, 32, dtype=torch.uint8), "vectors": vectors})
    with pytest.raises(ValueError, match=rf"{file.name} \(delete this file and run again\): needed 5 finite vectors"):
        VectorCache(HashEncoder(), tmp_path).encode(TEXTS)


@pytest.mark.parametrize("number", [torch.nan, -torch.inf])
def test_vectors_that_are_not_finite_are_not_kept(tmp_path: Path, number: float) -> None:
    class Broken(HashEncoder):
        def encode(self, texts: list[str]) -> torch.Tensor:
            return super().encode(texts).index_fill(0, torch.tensor([0]), number)

    with pytest.raises(ValueError, match="hash: needed 5 finite vectors"):
        VectorCache(Broken(), tmp_path).encode(TEXTS)
    assert shards(tmp_path) == []
