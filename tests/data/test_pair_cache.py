import sqlite3
from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphrerank import caching
from graphrerank.data import pair_cache
from graphrerank.data.pair_cache import PairCache
from graphrerank.graphs import PairEncoder
from tests.support.encoders import HashPairEncoder

QUERIES = ["who", "what", "who", "", "who"]
PASSAGES = ["alpha", "beta", "beta beta", "", "alpha"]  # the last pair is the first


def read(path: Path, encoder: PairEncoder | None = None, **settings: str) -> Tensor:
    return PairCache(encoder or HashPairEncoder(), path, **settings).encode(QUERIES, PASSAGES)


def test_against_the_encoder_itself(tmp_path: Path) -> None:
    expected = HashPairEncoder().encode(QUERIES, PASSAGES)
    cache: PairEncoder = PairCache(HashPairEncoder(), tmp_path)
    assert torch.equal(cache.encode(QUERIES, PASSAGES), expected)
    assert torch.equal(cache.encode(QUERIES[::-1], PASSAGES[::-1]), expected.flip(0))
    assert torch.equal(cache.head(expected), HashPairEncoder().head(expected))
    assert (cache.hidden_size, cache.fingerprint) == (4, "hash")


def test_nothing_is_encoded_twice(tmp_path: Path) -> None:
    first = PairCache(HashPairEncoder(), tmp_path)
    first.encode(QUERIES, PASSAGES)
    first.encode(QUERIES[:2], PASSAGES[:2])
    assert (first.num_requested, first.num_encoded) == (7, 4)
    encoder = HashPairEncoder()
    second = PairCache(encoder, str(tmp_path))  # another process, say
    assert torch.equal(second.encode(QUERIES, PASSAGES), HashPairEncoder().encode(QUERIES, PASSAGES))
    assert (second.num_requested, second.num_encoded, encoder.pairs) == (5, 0, [])


def test_pairs_that_join_to_one_text_differ(tmp_path: Path) -> None:
    found = PairCache(HashPairEncoder(), tmp_path).encode(["ab", "a"], ["c", "bc"])
    assert not torch.equal(found[0], found[1])


def test_interrupted_run_goes_on_from_its_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_cache, "SHARD_PAIRS", 2)
    queries, passages = ["q"] * 9, [f"text {i}" for i in range(9)]
    stopped = HashPairEncoder(stop_after=5)
    with pytest.raises(KeyboardInterrupt):
        PairCache(stopped, tmp_path).encode(queries, passages)
    assert len(stopped.pairs) == 4
    resumed = HashPairEncoder()
    found = PairCache(resumed, tmp_path).encode(queries, passages)
    assert sorted(stopped.pairs + resumed.pairs) == sorted(zip(queries, passages, strict=True))
    assert torch.equal(found, HashPairEncoder().encode(queries, passages))


def test_many_pairs_take_several_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(tmp_path)
    monkeypatch.setattr(caching, "LOOKED_UP", 2)
    assert torch.equal(read(tmp_path, HashPairEncoder(stop_after=0)), read(tmp_path))


def test_half_precision_is_the_same_read_or_encoded(tmp_path: Path) -> None:
    expected = HashPairEncoder(scale=0.3).encode(QUERIES, PASSAGES).half().float()
    for stop_after in (None, 0):
        found = read(tmp_path, HashPairEncoder(scale=0.3, stop_after=stop_after), dtype="float16")
        assert torch.equal(found, expected)
        assert found.dtype == torch.float32
    assert PairCache(HashPairEncoder(), tmp_path, dtype="float16").fingerprint == "hash-float16"
    assert not torch.equal(read(tmp_path, HashPairEncoder(scale=0.3)), expected)  # the two formats share nothing


def test_encoders_do_not_share_vectors(tmp_path: Path) -> None:
    read(tmp_path)
    other = HashPairEncoder(fingerprint="e" * 64)
    read(tmp_path, other)
    assert len(other.pairs) == 4


def test_two_caches_at_once(tmp_path: Path) -> None:
    one, two = PairCache(HashPairEncoder(), tmp_path), PairCache(HashPairEncoder(), tmp_path)
    one.encode(QUERIES[:2], PASSAGES[:2])
    two.encode(QUERIES, PASSAGES)
    one.encode(QUERIES, PASSAGES)
    assert (one.num_encoded, two.num_encoded) == (2, 2)


def test_no_pairs(tmp_path: Path) -> None:
    cache = PairCache(HashPairEncoder(), tmp_path)
    assert cache.encode([], []).shape == (0, 4)
    assert not cache.path.exists()


def test_surrogates_from_json_are_texts_too(tmp_path: Path) -> None:
    assert PairCache(HashPairEncoder(), tmp_path).encode(["\ud800"], ["a"]).shape == (1, 4)


@pytest.mark.parametrize("content", [b"noise" * 99, b"SQLite format 3\0" + b"\xff" * 999])
def test_damaged_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
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


@pytest.mark.parametrize(("scale", "dtype"), [(torch.nan, "float32"), (torch.inf, "float32"), (1e6, "float16")])
def test_vectors_that_are_not_finite_are_not_kept(tmp_path: Path, scale: float, dtype: str) -> None:
    with pytest.raises(ValueError, match=f"the pair encoder's vectors as {dtype}: needed 4 finite vectors"):
        read(tmp_path, HashPairEncoder(scale=scale), dtype=dtype)
    again = HashPairEncoder()
    read(tmp_path, again, dtype=dtype)
    assert len(again.pairs) == 4


def test_arguments_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`dtype` must be one of \['float16', 'float32'\], got 'int8'"):
        PairCache(HashPairEncoder(), tmp_path, dtype="int8")
    with pytest.raises(ValueError, match=r"`passages` must be as many as `query_texts` \(1\), got 0"):
        PairCache(HashPairEncoder(), tmp_path).encode(["a"], [])
