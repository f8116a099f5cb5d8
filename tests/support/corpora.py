"""Passages that are drawn, of the kinds that indexes are built from."""

import random
from collections.abc import Callable

import pytest
import torch

NAMES = ("Metz", "Nancy", "Lothair II", "Waldrada", "Teutberga", "Trier", "Cologne", "Verdun")
OTHERS = ("king", "war", "river", "letter", "bishop", "marriage", "rose", "fell", "wrote", "the", "of", "and")
RARE = tuple(f"word{number}" for number in range(300))
THEMES = (  # names, and words that go with them
    (("Metz", "Nancy", "Trier", "Verdun", "Cologne", "Mainz"), ("river", "bridge", "walls", "market", "harbour")),
    (("Ada", "Grace", "Linus", "Alan", "Edsger", "Donald"), ("code", "compiler", "kernel", "proof", "machine")),
    (("Bach", "Haydn", "Clara", "Robert", "Franz", "Hector"), ("fugue", "sonata", "organ", "choir", "string")),
)
STATEMENTS = (  # as StatementExtractor reads them
    "Lothair II|died in|Metz",
    "Metz|lies on|Moselle; Nancy",
    "Waldrada|loved|Lothair II; Lothair II|ruled|Lotharingia",
    "the Metz|is in|Lotharingia",
    "nobody speaks of anything",
    "Trier",
)
MakeTexts = Callable[..., list[str]]


@pytest.fixture(scope="session")
def make_documents() -> MakeTexts:
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


@pytest.fixture
def make_themed_passages() -> MakeTexts:
    """Make passages of four sentences, each of one theme with names of its own."""

    def make(num_passages: int, *, seed: int = 0) -> list[str]:
        rng = random.Random(seed)
        passages = []
        for number in range(num_passages):
            names, words = THEMES[number % len(THEMES)]
            names_of_passage = [f"{rng.choice(names)}{rng.randrange(4)}" for _ in range(4)]
            sentences = [
                f"{rng.choice(names_of_passage)} and {rng.choice(names_of_passage)}"
                f" saw the {rng.choice(words)} by the {rng.choice(words)}"
                for _ in range(4)
            ]
            passages.append(". ".join(sentences) + ".")
        return passages

    return make


@pytest.fixture
def fact_passages() -> tuple[str, ...]:
    return STATEMENTS


@pytest.fixture
def make_fact_passages() -> MakeTexts:
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
