import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphrerank.data import vector_cache
from graphrerank.data.vector_cache import MemoryVectorCache, VectorCache
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


MEMORY_TEXTS = ["alpha", "beta beta", "gamma gamma gamma", "", "delta"]


def bytes_of(num_texts: int) -> int:
    return num_texts * (4 * HashEncoder().encode(["a"]).shape[1] + vector_cache.ENTRY_BYTES)


def test_memory_against_the_encoder_itself() -> None:
    cache = MemoryVectorCache(HashEncoder())
    for texts in (MEMORY_TEXTS, MEMORY_TEXTS[::-1], [MEMORY_TEXTS[1]] * 3):
        assert torch.equal(cache.encode(texts), HashEncoder().encode(texts))
    assert cache.encode([]).shape == (0, 0)
    assert (cache.name, cache.fingerprint) == ("hash", "hash")


def test_a_text_is_encoded_once_also_within_a_call() -> None:
    encoder = HashEncoder()
    cache = MemoryVectorCache(encoder)
    cache.encode(["alpha", "alpha", "delta"])
    cache.encode(["delta", "beta", "alpha"])
    assert encoder.asked == ["alpha", "delta", "beta"]


def test_the_oldest_request_makes_room() -> None:
    encoder = HashEncoder()
    cache = MemoryVectorCache(encoder, max_bytes=bytes_of(2))
    for text in ("a", "b", "a", "c", "a", "b"):  # c takes the place of b, b that of c
        assert torch.equal(cache.encode([text]), HashEncoder().encode([text]))
    assert encoder.asked == ["a", "b", "c", "b"]


def test_more_texts_than_fit_are_right_and_memory_stays_bounded() -> None:
    cache = MemoryVectorCache(HashEncoder(), max_bytes=bytes_of(3))
    for _ in range(2):
        assert torch.equal(cache.encode(MEMORY_TEXTS), HashEncoder().encode(MEMORY_TEXTS))
    assert len(cache._kept) == 3


def test_what_was_returned_is_the_callers_own() -> None:
    cache = MemoryVectorCache(HashEncoder(), max_bytes=bytes_of(1))
    cache.encode(["a"]).zero_()
    again = cache.encode(["a"])
    cache.encode(["b"])
    assert torch.equal(again, HashEncoder().encode(["a"]))


def test_many_threads() -> None:
    cache = MemoryVectorCache(HashEncoder(), max_bytes=bytes_of(20))
    expected = {f"text {number}": HashEncoder().encode([f"text {number}"])[0] for number in range(60)}

    def is_right(seed: int) -> bool:
        texts = random.Random(seed).choices(list(expected), k=8)
        return torch.equal(cache.encode(texts), torch.stack([expected[text] for text in texts]))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(is_right, range(1500)))


def test_vectors_that_are_not_finite_are_refused_and_not_kept() -> None:
    class Broken(HashEncoder):
        def encode(self, texts: list[str]) -> Tensor:
            return super().encode(texts) * float("nan")

    cache = MemoryVectorCache(Broken())
    for _ in range(2):
        with pytest.raises(ValueError, match="hash: needed 1 finite vectors"):
            cache.encode(["a"])


def test_a_limit_must_be_positive() -> None:
    with pytest.raises(ValueError, match="`max_bytes` must be a finite number above 0, got 0"):
        MemoryVectorCache(HashEncoder(), max_bytes=0)
