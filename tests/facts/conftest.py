import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.indexes import FactGraph, FactGraphBuilder, FactGraphSettings
from graphrerank.knowledge import Entity, Knowledge, Relation

# passage "Lothair|died in|Metz; Metz|lies on|Moselle": statements in so many words; a name alone is an entity
TOY = (
    "Lothair II|died in|Metz",
    "Metz|lies on|Moselle; Nancy",
    "Waldrada|loved|Lothair II; Lothair II|ruled|Lotharingia",
    "the Metz|is in|Lotharingia",
    "nobody speaks of anything",
    "Trier",
)
Build = Callable[..., FactGraph]


class Statements:
    """An extractor without a model: reads passages of statements."""

    fingerprint = "statements"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        self.asked += texts
        return [self._knowledge(text) for text in texts]

    def _knowledge(self, text: str) -> Knowledge:
        parts = [part.strip().split("|") for part in text.split(";") if part.strip() and part.strip()[0].isupper()]
        parts += [part.strip().split("|") for part in text.split(";") if part.strip().startswith("the ")]
        names = dict.fromkeys(name for part in parts for name in part[::2])
        entities = tuple(Entity(name, "", "") for name in names)
        return Knowledge(entities, tuple(Relation(*part, "") for part in parts if len(part) == 3))


class HashEncoder:
    """An encoder without a model: unit vectors drawn by a hash of the text; remembers what it was asked."""

    fingerprint = "hash"

    def __init__(self, *, fail_at: str | None = None) -> None:
        self.asked: list[str] = []
        self.fail_at = fail_at

    def encode(self, texts: Sequence[str]) -> Tensor:
        if self.fail_at in texts:
            raise KeyboardInterrupt
        self.asked += texts
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "little") for text in texts]
        rows = [torch.randn(6, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        return torch.nn.functional.normalize(torch.stack(rows), dim=1) if rows else torch.zeros(0, 6)


@pytest.fixture
def extractor() -> Statements:
    return Statements()


@pytest.fixture
def encoder() -> HashEncoder:
    return HashEncoder()


@pytest.fixture
def toy() -> tuple[str, ...]:
    return TOY


@pytest.fixture
def make_passages() -> Callable[..., list[str]]:
    """Make random passages of statements; every seventh says nothing."""

    def make(num_passages: int = 40, *, num_names: int = 25, seed: int = 0) -> list[str]:
        generator = torch.Generator().manual_seed(seed)
        passages = []
        for passage in range(num_passages):
            drawn = torch.randint(0, num_names, (int(torch.randint(1, 4, (1,), generator=generator)), 2),
                                  generator=generator).tolist()  # fmt: skip
            said = "; ".join(f"Name {a}|knows|Name {b}" for a, b in drawn if a != b)
            passages.append("nothing" if passage % 7 == 3 or not said else said)
        return passages

    return make


@pytest.fixture
def build(tmp_path: Path, extractor: Statements, encoder: HashEncoder) -> Build:
    def make(passages: Sequence[str], *, folder: Path = tmp_path, **settings: Any) -> FactGraph:
        builder = FactGraphBuilder(folder, extractor=extractor, encoder=encoder)
        return builder.build(passages, FactGraphSettings(**settings))

    return make
