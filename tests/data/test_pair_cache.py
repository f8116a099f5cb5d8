import hashlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphrerank import caching
from graphrerank.data import PairCache, pair_cache
from graphrerank.graphs import PairEncoder

QUERIES = ["who", "what", "who", "", "who"]
PASSAGES = ["alpha", "beta", "beta beta", "", "alpha"]  # the last pair is the first


class CountingPairEncoder:
    """Gives each pair a fixed vector, and keeps every pair it was asked to read."""

    hidden_size = 6

    def __init__(self, *, fingerprint: str = "f" * 64, stop_after: int | None = None, scale: float = 1.0) -> None:
        self.fingerprint = fingerprint
        self.stop_after = stop_after
        self.scale = scale
        self.encoded: list[tuple[str, str]] = []

    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        if self.stop_after is not None and len(self.encoded) + len(passages) > self.stop_after:
            raise KeyboardInterrupt
        pairs = list(zip(query_texts, passages, strict=True))
        self.encoded += pairs
        seeds = [int.from_bytes(hashlib.sha256(repr(pair).encode()).digest()[:4], "little") for pair in pairs]
        rows = [torch.randn(6, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        return torch.stack(rows) * self.scale if rows else torch.zeros(0, 6)

    def head(self, vectors: Tensor) -> Tensor:
        return vectors.sum(-1)


def read(path: Path, encoder: PairEncoder | None = None, **settings: str) -> Tensor:
    return PairCache(encoder or CountingPairEncoder(), path, **settings).encode(QUERIES, PASSAGES)


def test_against_the_encoder_itself(tmp_path: Path) -> None:
    expected = CountingPairEncoder().encode(QUERIES, PASSAGES)
    cache: PairEncoder = PairCache(CountingPairEncoder(), tmp_path)
    assert torch.equal(cache.encode(QUERIES, PASSAGES), expected)
    assert torch.equal(cache.encode(QUERIES[::-1], PASSAGES[::-1]), expected.flip(0))
    assert torch.equal(cache.head(expected), expected.sum(-1))
    assert (cache.hidden_size, cache.fingerprint) == (6, "f" * 64)


def test_nothing_is_encoded_twice(tmp_path: Path) -> None:
    first = PairCache(CountingPairEncoder(), tmp_path)
    first.encode(QUERIES, PASSAGES)
    first.encode(QUERIES[:2], PASSAGES[:2])
    assert (first.num_requested, first.num_encoded) == (7, 4)
    encoder = CountingPairEncoder()
    second = PairCache(encoder, str(tmp_path))  # another process, say
    assert torch.equal(second.encode(QUERIES, PASSAGES), CountingPairEncoder().encode(QUERIES, PASSAGES))
    assert (second.num_requested, second.num_encoded, encoder.encoded) == (5, 0, [])


def test_pairs_that_join_to_one_text_differ(tmp_path: Path) -> None:
    found = PairCache(CountingPairEncoder(), tmp_path).encode(["ab", "a"], ["c", "bc"])
    assert not torch.equal(found[0], found[1])


def test_interrupted_run_goes_on_from_its_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_cache, "SHARD_PAIRS", 2)
    queries, passages = ["q"] * 9, [f"text {i}" for i in range(9)]
    stopped = CountingPairEncoder(stop_after=5)
    with pytest.raises(KeyboardInterrupt):
        PairCache(stopped, tmp_path).encode(queries, passages)
    assert len(stopped.encoded) == 4
    resumed = CountingPairEncoder()
    found = PairCache(resumed, tmp_path).encode(queries, passages)
    assert sorted(stopped.encoded + resumed.encoded) == sorted(zip(queries, passages, strict=True))
    assert torch.equal(found, CountingPairEncoder().encode(queries, passages))


def test_many_pairs_take_several_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(tmp_path)
    monkeypatch.setattr(caching, "LOOKED_UP", 2)
    assert torch.equal(read(tmp_path, CountingPairEncoder(stop_after=0)), read(tmp_path))


def test_half_precision_is_the_same_read_or_encoded(tmp_path: Path) -> None:
    expected = CountingPairEncoder().encode(QUERIES, PASSAGES).half().float()
    for stop_after in (None, 0):
        found = read(tmp_path, CountingPairEncoder(stop_after=stop_after), dtype="float16")
        assert torch.equal(found, expected)
        assert found.dtype == torch.float32
    assert PairCache(CountingPairEncoder(), tmp_path, dtype="float16").fingerprint == "f" * 64 + "-float16"
    assert not torch.equal(read(tmp_path), expected)  # the two formats share nothing


def test_encoders_do_not_share_vectors(tmp_path: Path) -> None:
    read(tmp_path)
    other = CountingPairEncoder(fingerprint="e" * 64)
    read(tmp_path, other)
    assert len(other.encoded) == 4


def test_two_caches_at_once(tmp_path: Path) -> None:
    one, two = PairCache(CountingPairEncoder(), tmp_path), PairCache(CountingPairEncoder(), tmp_path)
    one.encode(QUERIES[:2], PASSAGES[:2])
    two.encode(QUERIES, PASSAGES)
    one.encode(QUERIES, PASSAGES)
    assert (one.num_encoded, two.num_encoded) == (2, 2)


def test_no_pairs(tmp_path: Path) -> None:
    cache = PairCache(CountingPairEncoder(), tmp_path)
    assert cache.encode([], []).shape == (0, 6)
    assert not cache.path.exists()


def test_surrogates_from_json_are_texts_too(tmp_path: Path) -> None:
    assert PairCache(CountingPairEncoder(), tmp_path).encode(["\ud800"], ["a"]).shape == (1, 6)


@pytest.mark.parametrize("content", [b"noise" * 99, b"SQLite format 3\0" + b"\xff" * 999])
def test_damaged_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = PairCache(CountingPairEncoder(), tmp_path).path
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{path.name}: damaged cache .*; delete this file and run again"):
        read(tmp_path)


def test_vectors_of_another_width_are_refused_by_name(tmp_path: Path) -> None:
    read(tmp_path)
    path = PairCache(CountingPairEncoder(), tmp_path).path
    with sqlite3.connect(path) as file:
        file.execute("UPDATE pairs SET content = x'00'")
    with pytest.raises(ValueError, match=rf"{path.name}: damaged cache \(needed rows of 24 bytes, found one of 1\)"):
        read(tmp_path)


def test_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    path = PairCache(CountingPairEncoder(), tmp_path).path
    path.mkdir()
    with pytest.raises(ValueError, match=rf"{path.name}: cannot be read or written"):
        read(tmp_path)


@pytest.mark.parametrize(("scale", "dtype"), [(torch.nan, "float32"), (torch.inf, "float32"), (1e6, "float16")])
def test_vectors_that_are_not_finite_are_not_kept(tmp_path: Path, scale: float, dtype: str) -> None:
    with pytest.raises(ValueError, match=f"the pair encoder's vectors as {dtype}: needed 4 finite vectors"):
        read(tmp_path, CountingPairEncoder(scale=scale), dtype=dtype)
    again = CountingPairEncoder()
    read(tmp_path, again, dtype=dtype)
    assert len(again.encoded) == 4


def test_arguments_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`dtype` must be one of \['float16', 'float32'\], got 'int8'"):
        PairCache(CountingPairEncoder(), tmp_path, dtype="int8")
    with pytest.raises(ValueError, match=r"`passages` must be as many as `query_texts` \(1\), got 0"):
        PairCache(CountingPairEncoder(), tmp_path).encode(["a"], [])
