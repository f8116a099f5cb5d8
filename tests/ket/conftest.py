import hashlib
import itertools
import random
import re
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from graphrerank.knowledge import Entity, Knowledge, Relation

NAMES = ("Metz", "Nancy", "Lothair II", "Waldrada", "Teutberga", "Trier", "Cologne", "Verdun")
OTHERS = ("king", "war", "river", "letter", "bishop", "marriage", "rose", "fell", "wrote", "the", "of", "and")
RARE = tuple(f"word{number}" for number in range(300))


class HashEncoder:
    """An encoder without a model: unit vectors drawn by a hash of the words; remembers what it was asked."""

    fingerprint = "hash"
    name = "hash"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str]) -> Tensor:
        self.asked += texts
        rows = []
        for text in texts:
            seed = int.from_bytes(hashlib.sha256(" ".join(text.split()).encode()).digest()[:6], "little")
            rows.append(torch.randn(6, generator=torch.Generator().manual_seed(seed)))
        return torch.nn.functional.normalize(torch.stack(rows), dim=1) if rows else torch.zeros(0, 0)


class NameExtractor:
    """An extractor without a model: capitalised words are entities, neighbours in a sentence are related."""

    fingerprint = "names"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        self.asked += texts
        return [self._knowledge(text) for text in texts]

    def _knowledge(self, text: str) -> Knowledge:
        entities: dict[str, Entity] = {}
        relations = []
        for sentence in text.split("."):
            found = list(dict.fromkeys(re.findall(r"[A-Z]\w+(?: II)?", sentence)))
            for name in found:
                entities.setdefault(name, Entity(name, "NAME", sentence.strip()))
            for head, tail in itertools.pairwise(found):
                relations.append(Relation(head, "before", tail, f"{head} stands before {tail}."))
        return Knowledge(tuple(entities.values()), tuple(dict.fromkeys(relations)))


MakeDocuments = Callable[..., list[str]]


@pytest.fixture
def encoder() -> HashEncoder:
    return HashEncoder()


@pytest.fixture
def extractor() -> NameExtractor:
    return NameExtractor()


@pytest.fixture
def make_documents() -> MakeDocuments:
    """Make documents of short sentences, about ``num_tokens`` words each."""

    def make(num_documents: int, *, num_tokens: int = 24, seed: int = 0) -> list[str]:
        rng = random.Random(seed)
        documents = []
        for _ in range(num_documents):
            words = rng.choice(NAMES).split()  # a capital letter: the sentence before has ended
            while len(words) < num_tokens:
                kinds = rng.choices((NAMES, OTHERS, RARE), (3, 5, 2), k=rng.randrange(3, 9))
                sentence = [rng.choice(kind) for kind in kinds]
                words += " ".join(sentence).split()[: num_tokens - len(words)]
                words[-1] += "."
            documents.append(" ".join(words))
        return documents

    return make
