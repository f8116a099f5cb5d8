import hashlib
import itertools
import random
import re
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from graphrerank.knowledge import Entity, Knowledge, Relation

DIM = 24
THEMES = (  # names, and words that go with them
    (("Metz", "Nancy", "Trier", "Verdun", "Cologne", "Mainz"), ("river", "bridge", "walls", "market", "harbour")),
    (("Ada", "Grace", "Linus", "Alan", "Edsger", "Donald"), ("code", "compiler", "kernel", "proof", "machine")),
    (("Bach", "Haydn", "Clara", "Robert", "Franz", "Hector"), ("fugue", "sonata", "organ", "choir", "string")),
)


class WordEncoder:
    """An encoder without a model: the direction of the sum of its words' random vectors; keeps what it was asked."""

    fingerprint = "words"
    name = "words"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str]) -> Tensor:
        self.asked += texts
        rows = [torch.stack([word_vector(word) for word in re.findall(r"\w+", text)]).sum(dim=0) for text in texts]
        return torch.nn.functional.normalize(torch.stack(rows), dim=1) if rows else torch.zeros(0, 0)


def word_vector(word: str) -> Tensor:
    seed = int.from_bytes(hashlib.sha256(word.lower().encode()).digest()[:6], "little")
    return torch.randn(DIM, generator=torch.Generator().manual_seed(seed))


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
            found = list(dict.fromkeys(re.findall(r"[A-Z]\w+", sentence)))
            for name in found:
                entities.setdefault(name, Entity(name, "NAME", f"{sentence.strip()}."))
            for head, tail in itertools.pairwise(found):
                relations.append(Relation(head, "before", tail, f"{head} stands before {tail}."))
        return Knowledge(tuple(entities.values()), tuple(dict.fromkeys(relations)))


MakePassages = Callable[..., list[str]]


@pytest.fixture
def encoder() -> WordEncoder:
    return WordEncoder()


@pytest.fixture
def extractor() -> NameExtractor:
    return NameExtractor()


@pytest.fixture
def make_passages() -> MakePassages:
    """Make passages of four sentences, each of one theme with names of its own."""

    def make(num_passages: int, *, seed: int = 0) -> list[str]:
        rng = random.Random(seed)
        passages = []
        for number in range(num_passages):
            names, words = THEMES[number % len(THEMES)]
            own = [f"{rng.choice(names)}{rng.randrange(4)}" for _ in range(4)]
            sentences = [
                f"{rng.choice(own)} and {rng.choice(own)} saw the {rng.choice(words)} by the {rng.choice(words)}"
                for _ in range(4)
            ]
            passages.append(". ".join(sentences) + ".")
        return passages

    return make


@pytest.fixture
def themes() -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    return THEMES
