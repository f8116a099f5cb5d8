"""Encoders without a model."""

import hashlib
import re
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from graphrerank.core import Queries


class HashEncoder:
    """Draws each text's unit vector by a hash of the text, or sums those of its words; keeps the texts it was asked.

    Args:
        dim: Length of the vectors; words that differ are nearly orthogonal from 256 on.
        by_word: A text's vector has the direction of the sum of its words' vectors, without regard to case.
        fingerprint: As of an encoder's weights.
        fail_at: A text at which it is interrupted.
        stop_after: The number of texts after which it is interrupted.
    """

    name = "hash"

    def __init__(
        self, *, dim: int = 6, by_word: bool = False, fingerprint: str = "hash", fail_at: str | None = None,
        stop_after: int | None = None,
    ) -> None:  # fmt: skip
        self.dim, self.by_word, self.fingerprint = dim, by_word, fingerprint
        self.fail_at, self.stop_after = fail_at, stop_after
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str]) -> Tensor:
        too_many = self.stop_after is not None and len(self.asked) + len(texts) > self.stop_after
        if self.fail_at in texts or too_many:
            raise KeyboardInterrupt
        self.asked += texts
        rows = [self._vector(text) for text in texts]
        return torch.nn.functional.normalize(torch.stack(rows), dim=1) if rows else torch.zeros(0, self.dim)

    def queries(self, texts: Sequence[str]) -> Queries:
        return Queries([f"q{i}" for i in range(len(texts))], list(texts), self.encode(texts))

    def _vector(self, text: str) -> Tensor:
        if not self.by_word:
            return draw_vector(" ".join(text.split()), self.dim)
        return sum((draw_vector(word, self.dim) for word in re.findall(r"\w+", text.lower())), torch.zeros(self.dim))


def draw_vector(text: str, dim: int) -> Tensor:
    """Draw a normal vector whose seed is a hash of the text."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "little")
    return torch.randn(dim, generator=torch.Generator().manual_seed(seed))


class HashPairEncoder:
    """A pair encoder without a model: eighths from a hash of the pair, and a curved head; keeps the pairs it read.

    Args:
        fingerprint: As of an encoder's weights.
        stop_after: The number of pairs after which it is interrupted.
        scale: Factor of the vectors.
    """

    hidden_size = 4

    def __init__(self, *, fingerprint: str = "hash", stop_after: int | None = None, scale: float = 1.0) -> None:
        self.fingerprint, self.stop_after, self.scale = fingerprint, stop_after, scale
        self.pairs: list[tuple[str, str]] = []

    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        pairs = list(zip(query_texts, passages, strict=True))
        if self.stop_after is not None and len(self.pairs) + len(pairs) > self.stop_after:
            raise KeyboardInterrupt
        self.pairs += pairs
        digests = [hashlib.sha256(repr(pair).encode()).digest()[: self.hidden_size] for pair in pairs]
        rows = [[byte % 16 / 8 - 1 for byte in digest] for digest in digests]
        return self.scale * torch.tensor(rows).reshape(-1, self.hidden_size)

    def head(self, vectors: Tensor) -> Tensor:
        return (torch.tanh(vectors) * torch.tensor([1.0, -0.5, 0.25, 0.75], device=vectors.device)).sum(-1)


@pytest.fixture
def hash_encoder() -> HashEncoder:
    return HashEncoder()


@pytest.fixture
def word_encoder() -> HashEncoder:
    """Texts without a common word are nearly orthogonal."""
    return HashEncoder(dim=256, by_word=True)


@pytest.fixture
def pair_encoder() -> HashPairEncoder:
    return HashPairEncoder()
