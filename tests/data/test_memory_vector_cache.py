import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from graphrerank.data import vector_cache
from graphrerank.data.vector_cache import MemoryVectorCache
from tests.support.encoders import HashEncoder

TEXTS = ["alpha", "beta beta", "gamma gamma gamma", "", "delta"]


def bytes_of(num_texts: int) -> int:
    return num_texts * (4 * HashEncoder().encode(["a"]).shape[1] + vector_cache.ENTRY_BYTES)


def test_against_the_encoder_itself() -> None:
    cache = MemoryVectorCache(HashEncoder())
    for texts in (TEXTS, TEXTS[::-1], [TEXTS[1]] * 3):
        assert torch.equal(cache.encode(texts), HashEncoder().encode(texts))
    assert cache.encode([]).shape == (0, 0)
    assert (cache.name, cache.fingerprint) == ("hash", "hash")
    assert (cache.num_requested, cache.num_encoded) == (13, 5)


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
    assert len(cache._row) == len(cache._vectors) == 3


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
    with pytest.raises(ValueError, match="`max_bytes` must be positive, got 0"):
        MemoryVectorCache(HashEncoder(), max_bytes=0)
