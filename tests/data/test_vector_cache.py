import random
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.core import PairEncoder
from graphrerank.data import vector_cache
from graphrerank.data.vector_cache import MemoryVectorCache, PairCache, VectorCache
from tests.support.damage import flip_bit
from tests.support.encoders import HashEncoder, HashPairEncoder

TEXTS = ["alpha", "beta beta", "gamma gamma gamma", "", "delta"]


def shards(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors"))


def test_nothing_is_encoded_twice_and_encoders_share_nothing(tmp_path: Path) -> None:
    expected, cache = HashEncoder().encode(TEXTS), VectorCache(HashEncoder(), tmp_path)
    assert torch.equal(cache.encode(TEXTS), expected)
    assert torch.equal(cache.encode(TEXTS[::-1]), expected.flip(0))
    assert (cache.name, cache.fingerprint) == ("hash", "hash")
    encoder = HashEncoder()
    again = VectorCache(encoder, str(tmp_path))  # another process, say
    assert torch.equal(again.encode(TEXTS), expected)
    assert again.encode([]).numel() == 0
    assert encoder.asked == []
    other = HashEncoder(fingerprint="e" * 64)
    VectorCache(other, tmp_path).encode(TEXTS)
    assert len(other.asked) == len(TEXTS)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.3, 0.6, 0.999])
def test_a_flipped_bit_changes_no_vector(tmp_path: Path, share: float) -> None:
    expected = VectorCache(HashEncoder(), tmp_path).encode(TEXTS)
    (file,) = shards(tmp_path)
    flip_bit(file, share)
    with pytest.warns(UserWarning, match=rf"{file.name}: damaged cache .*; the entry is computed again"):
        assert torch.equal(VectorCache(HashEncoder(), tmp_path).encode(TEXTS), expected)
    again = HashEncoder()
    assert torch.equal(VectorCache(again, tmp_path).encode(TEXTS), expected)
    assert again.asked == []


class Broken(HashEncoder):
    """Gives the first text of each call no numbers."""

    def encode(self, texts: Any) -> Tensor:
        return super().encode(texts).index_fill(0, torch.tensor([0]), -torch.inf)


def test_vectors_that_are_not_finite_are_refused_and_not_kept(tmp_path: Path) -> None:
    memory = MemoryVectorCache(Broken())
    for cache in (VectorCache(Broken(), tmp_path), memory, memory):
        with pytest.raises(ValueError, match="hash: expected 5 finite vectors"):
            cache.encode(TEXTS)
    assert shards(tmp_path) == []


def bytes_of(num_texts: int) -> int:
    return num_texts * (4 * HashEncoder().encode(["a"]).shape[1] + vector_cache.ENTRY_BYTES)


@pytest.mark.parametrize("room", [1 << 20, bytes_of(3)])
def test_memory_against_the_encoder_itself(room: int) -> None:
    """Also where more texts are requested than there is room for."""
    cache = MemoryVectorCache(HashEncoder(), max_bytes=room)
    for texts in (TEXTS, TEXTS[::-1], [TEXTS[1]] * 3):
        assert torch.equal(cache.encode(texts), HashEncoder().encode(texts))
    assert cache.encode([]).shape == (0, 0)
    assert len(cache._vectors) == (3 if room == bytes_of(3) else len(TEXTS))
    assert (cache.name, cache.fingerprint) == ("hash", "hash")


def test_a_text_is_encoded_once_until_it_makes_room() -> None:
    encoder = HashEncoder()
    cache = MemoryVectorCache(encoder)
    cache.encode(["alpha", "alpha", "delta"])
    cache.encode(["delta", "beta", "alpha"])
    assert encoder.asked == ["alpha", "delta", "beta"]
    encoder = HashEncoder()
    cache = MemoryVectorCache(encoder, max_bytes=bytes_of(2))
    for text in ("a", "b", "a", "c", "a", "b"):  # c takes the place of b, b that of c
        found = cache.encode([text])
        assert torch.equal(found, HashEncoder().encode([text]))
        found.zero_()  # what is returned is a copy
    assert encoder.asked == ["a", "b", "c", "b"]
    with pytest.raises(ValueError, match="`max_bytes` must be a finite number above 0, got 0"):
        MemoryVectorCache(encoder, max_bytes=0)


def test_many_threads() -> None:
    cache = MemoryVectorCache(HashEncoder(), max_bytes=bytes_of(20))
    expected = {f"text {number}": HashEncoder().encode([f"text {number}"])[0] for number in range(60)}

    def is_right(seed: int) -> bool:
        texts = random.Random(seed).choices(list(expected), k=8)
        return torch.equal(cache.encode(texts), torch.stack([expected[text] for text in texts]))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(is_right, range(800)))


QUERIES = ["who", "what", "who", "", "who"]
PASSAGES = ["alpha", "beta", "beta beta", "", "alpha"]  # the last pair is the first


def read(path: Path, encoder: PairEncoder | None = None) -> Tensor:
    return PairCache(encoder or HashPairEncoder(), path).encode(QUERIES, PASSAGES)


def test_no_pair_is_encoded_twice(tmp_path: Path) -> None:
    expected, first = HashPairEncoder().encode(QUERIES, PASSAGES), HashPairEncoder()
    cache: PairEncoder = PairCache(first, tmp_path)
    assert cache.encode([], []).shape == (0, 4)
    assert not list(tmp_path.iterdir())
    assert torch.equal(cache.encode(QUERIES, PASSAGES), expected)
    assert torch.equal(cache.encode(QUERIES[::-1], PASSAGES[::-1]), expected.flip(0))
    assert torch.equal(cache.head(expected), HashPairEncoder().head(expected))
    assert (cache.hidden_size, cache.fingerprint) == (4, "hash")
    assert len(first.pairs) == 4
    encoder = HashPairEncoder()
    assert torch.equal(read(tmp_path, encoder), expected)  # another process, say
    assert encoder.pairs == []
    found = cache.encode(["ab", "a"], ["c", "bc"])  # pairs that join to one text
    assert not torch.equal(found[0], found[1])
    with pytest.raises(ValueError, match=r"`passages` must have the length of `query_texts` \(1\), got 0"):
        cache.encode(["a"], [])


def test_a_flipped_bit_changes_no_pair(tmp_path: Path) -> None:
    expected = read(tmp_path)
    path = PairCache(HashPairEncoder(), tmp_path).path
    content = path.read_bytes()
    path.write_bytes(content.replace(row := expected[1].numpy().tobytes(), row[:-1] + bytes([row[-1] ^ 1])))
    again = HashPairEncoder()
    with pytest.warns(UserWarning, match=rf"{path.name}: damaged row; the entry is computed again"):
        assert torch.equal(read(tmp_path, again), expected)
    assert again.pairs == [(QUERIES[1], PASSAGES[1])]
    assert torch.equal(read(tmp_path), expected)


@pytest.mark.parametrize("content", [b"noise" * 99, b"SQLite format 3\0" + b"\xff" * 999, b"width", b"folder"])
def test_damaged_file_of_pairs_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path, message = PairCache(HashPairEncoder(), tmp_path).path, "damaged cache .*; delete this file and run again"
    if content == b"width":
        read(tmp_path)
        message = r"damaged cache \(expected rows of 16 bytes, got one of 1\)"
        with sqlite3.connect(path) as file:
            file.execute("UPDATE pairs SET content = x'00', checksum = NULL")
    elif content == b"folder":
        path.mkdir()
        message = "cannot be read or written"
    else:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{path.name}: {message}"):
        read(tmp_path)


@pytest.mark.parametrize("scale", [torch.nan, torch.inf])
def test_vectors_of_pairs_that_are_not_finite_are_not_kept(tmp_path: Path, scale: float) -> None:
    with pytest.raises(ValueError, match="the pair encoder's vectors: expected 4 finite vectors"):
        read(tmp_path, HashPairEncoder(scale=scale))
    again = HashPairEncoder()
    read(tmp_path, again)
    assert len(again.pairs) == 4


MANY = [f"query {number}" for number in range(700)], [f"passage {number}" for number in range(700)]


def test_pairs_are_counted_and_timed_before_they_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """64 of 700 took 32 seconds on a clock that ticks so, so that the others take 318."""
    ticks = chain([0.0, 32.0], repeat(40.0))
    encoder = HashPairEncoder()
    with caplog.at_level("INFO", "graphrerank.utils.progress"):
        PairCache(encoder, tmp_path).read_ahead(*MANY, clock=lambda: next(ticks))
    assert caplog.messages == [
        "700 pairs of a query and a passage for the cross-encoder HashPairEncoder: 0 are cached, 700 must be encoded",
        "encoding them takes about 5 min here; an interrupted run resumes where it stopped",
        "encoding pairs: 0 of 636 (0%)",
    ]
    assert sorted(set(encoder.pairs)) == sorted(zip(*MANY, strict=True))
    assert len(encoder.pairs) == 701  # one to load the model
    read = PairCache(again := HashPairEncoder(), tmp_path).encode(*MANY)
    assert again.pairs == []
    assert read.equal(HashPairEncoder().encode(*MANY))


def test_an_interrupted_reader_goes_on_where_it_stopped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stopped = HashPairEncoder(stop_after=500)
    with pytest.raises(KeyboardInterrupt):
        PairCache(stopped, tmp_path).read_ahead(*MANY)
    again = HashPairEncoder()
    with caplog.at_level("INFO", "graphrerank.utils.progress"):
        PairCache(again, tmp_path).read_ahead(*MANY)
    before = len(set(stopped.pairs))
    assert before > 300
    assert caplog.messages[0].endswith(f": {before} are cached, {700 - before} must be encoded")
    assert set(again.pairs).isdisjoint(stopped.pairs)
    caplog.clear()
    with caplog.at_level("INFO", "graphrerank.utils.progress"):
        PairCache(again, tmp_path).read_ahead(*MANY)
    assert [message.rpartition(": ")[2] for message in caplog.messages] == ["700 are cached, 0 must be encoded"]
