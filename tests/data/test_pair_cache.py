import sqlite3
from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphrerank import caching
from graphrerank.data import vector_cache
from graphrerank.data.vector_cache import PairCache
from graphrerank.graphs import PairEncoder
from tests.support.encoders import HashPairEncoder

QUERIES = ["who", "what", "who", "", "who"]
PASSAGES = ["alpha", "beta", "beta beta", "", "alpha"]  # the last pair is the first


def read(path: Path, encoder: PairEncoder | None = None) -> Tensor:
    return PairCache(encoder or HashPairEncoder(), path).encode(QUERIES, PASSAGES)


def test_against_the_encoder_itself(tmp_path: Path) -> None:
    expected = HashPairEncoder().encode(QUERIES, PASSAGES)
    cache: PairEncoder = PairCache(HashPairEncoder(), tmp_path)
    assert torch.equal(cache.encode(QUERIES, PASSAGES), expected)
    assert torch.equal(cache.encode(QUERIES[::-1], PASSAGES[::-1]), expected.flip(0))
    assert torch.equal(cache.head(expected), HashPairEncoder().head(expected))
    assert (cache.hidden_size, cache.fingerprint) == (4, "hash")


def test_nothing_is_encoded_twice(tmp_path: Path) -> None:
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


def test_interrupted_run_goes_on_from_its_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_cache, "SHARD_PAIRS", 2)
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


def test_encoders_do_not_share_vectors(tmp_path: Path) -> None:
    read(tmp_path)
    other = HashPairEncoder(fingerprint="e" * 64)
    read(tmp_path, other)
    assert len(other.pairs) == 4


def test_two_caches_at_once(tmp_path: Path) -> None:
    encoders = [HashPairEncoder(), HashPairEncoder()]
    one, two = (PairCache(encoder, tmp_path) for encoder in encoders)
    one.encode(QUERIES[:2], PASSAGES[:2])
    two.encode(QUERIES, PASSAGES)
    one.encode(QUERIES, PASSAGES)
    assert [len(encoder.pairs) for encoder in encoders] == [2, 2]


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


@pytest.mark.parametrize("scale", [torch.nan, torch.inf])
def test_vectors_that_are_not_finite_are_not_kept(tmp_path: Path, scale: float) -> None:
    with pytest.raises(ValueError, match="the pair encoder's vectors: needed 4 finite vectors"):
        read(tmp_path, HashPairEncoder(scale=scale))
    again = HashPairEncoder()
    read(tmp_path, again)
    assert len(again.pairs) == 4


def test_queries_and_passages_must_be_as_many(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`passages` must be as many as `query_texts` \(1\), got 0"):
        PairCache(HashPairEncoder(), tmp_path).encode(["a"], [])
