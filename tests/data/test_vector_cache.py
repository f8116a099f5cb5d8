import random
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphrerank.data import vector_cache
from graphrerank.data.vector_cache import MemoryVectorCache, PairCache, VectorCache
from graphrerank.files import save_tensors
from graphrerank.graphs import PairEncoder
from tests.support.encoders import HashEncoder, HashPairEncoder

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


def test_encoders_do_not_share_vectors(tmp_path: Path) -> None:
    VectorCache(HashEncoder(), tmp_path).encode(TEXTS)
    other = HashEncoder(fingerprint="e" * 64)
    VectorCache(other, tmp_path).encode(TEXTS)
    assert len(other.asked) == len(TEXTS)


def test_no_texts(tmp_path: Path) -> None:
    encoder = HashEncoder()
    assert VectorCache(encoder, tmp_path).encode([]).numel() == 0
    assert encoder.asked == []


def test_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    VectorCache(HashEncoder(), tmp_path).encode(TEXTS)
    (file,) = shards(tmp_path)
    for damaged in (b"", file.read_bytes()[:-5], b"\xff" * 99):
        file.write_bytes(damaged)
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


def bytes_of(num_texts: int) -> int:
    return num_texts * (4 * HashEncoder().encode(["a"]).shape[1] + vector_cache.ENTRY_BYTES)


def test_memory_against_the_encoder_itself() -> None:
    cache = MemoryVectorCache(HashEncoder())
    for texts in (TEXTS, TEXTS[::-1], [TEXTS[1]] * 3):
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
        assert torch.equal(cache.encode(TEXTS), HashEncoder().encode(TEXTS))
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


QUERIES = ["who", "what", "who", "", "who"]
PASSAGES = ["alpha", "beta", "beta beta", "", "alpha"]  # the last pair is the first


def read(path: Path, encoder: PairEncoder | None = None) -> Tensor:
    return PairCache(encoder or HashPairEncoder(), path).encode(QUERIES, PASSAGES)


def test_pairs_against_the_encoder_itself(tmp_path: Path) -> None:
    expected = HashPairEncoder().encode(QUERIES, PASSAGES)
    cache: PairEncoder = PairCache(HashPairEncoder(), tmp_path)
    assert torch.equal(cache.encode(QUERIES, PASSAGES), expected)
    assert torch.equal(cache.encode(QUERIES[::-1], PASSAGES[::-1]), expected.flip(0))
    assert torch.equal(cache.head(expected), HashPairEncoder().head(expected))
    assert (cache.hidden_size, cache.fingerprint) == (4, "hash")


def test_no_pair_is_encoded_twice(tmp_path: Path) -> None:
    first = HashPairEncoder()
    read(tmp_path, first)
    PairCache(first, tmp_path).encode(QUERIES[:2], PASSAGES[:2])
    assert len(first.pairs) == 4
    encoder = HashPairEncoder()
    second = PairCache(encoder, str(tmp_path))  # another process, say
    assert torch.equal(second.encode(QUERIES, PASSAGES), HashPairEncoder().encode(QUERIES, PASSAGES))
    assert encoder.pairs == []


def test_pairs_that_join_to_one_text_differ(tmp_path: Path) -> None:
    found = PairCache(HashPairEncoder(), tmp_path).encode(["ab", "a"], ["c", "bc"])
    assert not torch.equal(found[0], found[1])


def test_no_pairs(tmp_path: Path) -> None:
    cache = PairCache(HashPairEncoder(), tmp_path)
    assert cache.encode([], []).shape == (0, 4)
    assert not cache.path.exists()


@pytest.mark.parametrize("content", [b"noise" * 99, b"SQLite format 3\0" + b"\xff" * 999])
def test_damaged_file_of_pairs_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = PairCache(HashPairEncoder(), tmp_path).path
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{path.name}: damaged cache .*; delete this file and run again"):
        read(tmp_path)


def test_vectors_of_another_width_are_refused_by_name(tmp_path: Path) -> None:
    read(tmp_path)
    path = PairCache(HashPairEncoder(), tmp_path).path
    with sqlite3.connect(path) as file:
        file.execute("UPDATE pairs SET content = x'00'")
    with pytest.raises(ValueError, match=rf"{path.name}: damaged cache \(needed rows of 16 bytes, found one of 1\)"):
        read(tmp_path)


def test_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    path = PairCache(HashPairEncoder(), tmp_path).path
    path.mkdir()
    with pytest.raises(ValueError, match=rf"{path.name}: cannot be read or written"):
        read(tmp_path)


@pytest.mark.parametrize("scale", [torch.nan, torch.inf])
def test_vectors_of_pairs_that_are_not_finite_are_not_kept(tmp_path: Path, scale: float) -> None:
    with pytest.raises(ValueError, match="the pair encoder's vectors: needed 4 finite vectors"):
        read(tmp_path, HashPairEncoder(scale=scale))
    again = HashPairEncoder()
    read(tmp_path, again)
    assert len(again.pairs) == 4


def test_queries_and_passages_must_be_as_many(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`passages` must be as many as `query_texts` \(1\), got 0"):
        PairCache(HashPairEncoder(), tmp_path).encode(["a"], [])
