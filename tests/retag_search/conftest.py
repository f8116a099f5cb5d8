import hashlib
import itertools
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.graphs import Queries
from graphrerank.indexes.retag import ReTAGIndex, ReTAGReport, ReTAGSettings, Sentences, Subgraph, Topics
from graphrerank.indexes.retag.communities import Communities, Rows
from graphrerank.knowledge import Entity, Knowledge, Relation
from graphrerank.language_models import ChatModel

Reply = Callable[[str, str], Any]  # system message, question -> what is written as JSON
DIM = 256  # texts without a common word are nearly orthogonal
ENTITIES = ("Metz", "Nancy", "Trier", "Verdun", "Lothair", "Waldrada", "Rhine", "Moselle")
# graph, level, parent, entities that the summary names, summary
PLAN: tuple[tuple[int, int, int, tuple[int, ...], str], ...] = (
    (0, 0, -1, (0, 1, 2, 3), "Metz and Nancy are cities. Trier and Verdun are old towns."),
    (0, 0, -1, (4, 5), "Lothair loved Waldrada."),
    (0, 1, 0, (0, 1), "Metz and Nancy are cities."),
    (0, 1, 0, (2, 3), "Trier and Verdun are old towns."),
    (1, 0, -1, (0, 1), "Metz and Nancy are cities."),  # of the topic of places; equal to one of the general graph
    (1, 0, -1, (6, 7), "The rivers Rhine and Moselle meet at a German city."),
    (2, 0, -1, (4, 5), "King Lothair of Metz loved Waldrada."),  # of the topic of people
)


class WordEncoder:
    """An encoder without a model: the direction of the sum of vectors drawn by a hash of each word."""

    fingerprint = "words"
    name = "words"

    def encode(self, texts: Sequence[str]) -> Tensor:
        rows = [
            torch.stack([torch.zeros(DIM), *map(self._word, re.findall(r"\w+", text.lower()))]).sum(0) for text in texts
        ]
        return torch.nn.functional.normalize(torch.stack(rows), dim=1) if rows else torch.zeros(0, DIM)

    def queries(self, texts: Sequence[str]) -> Queries:
        return Queries([f"q{i}" for i in range(len(texts))], list(texts), self.encode(texts))

    def _word(self, word: str) -> Tensor:
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:6], "little")
        return torch.randn(DIM, generator=torch.Generator().manual_seed(seed))


class NameExtractor:
    """An extractor without a model: capitalised words are entities, neighbours in a sentence are related."""

    fingerprint = "names"

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        return [self._knowledge(text) for text in texts]

    def _knowledge(self, text: str) -> Knowledge:
        entities: dict[str, Entity] = {}
        relations = []
        for sentence in text.split("."):
            found = list(dict.fromkeys(re.findall(r"[A-Z]\w+", sentence)))
            entities |= {name: Entity(name, "NAME", sentence.strip()) for name in found if name not in entities}
            relations += [Relation(a, "before", b, f"{a} stands before {b}.") for a, b in itertools.pairwise(found)]
        return Knowledge(tuple(entities.values()), tuple(dict.fromkeys(relations)))


class ScriptedModel:
    """A chat model whose answers a function writes; remembers what it was asked."""

    fingerprint = "scripted"

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.asked: list[tuple[str, str]] = []

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Any]) -> list[Any]:
        assert system is not None
        self.asked += [(system, question) for question in questions]
        return [read(self._text(system, question)) for question in questions]

    def _text(self, system: str, question: str) -> str:
        content = self.reply(system, question)
        return content if isinstance(content, str) else json.dumps(content)


def make_index(encoder: WordEncoder, plan: Sequence[tuple[int, int, int, tuple[int, ...], str]]) -> ReTAGIndex:
    """Write an index by hand, with the topics of places (graph 1) and people (graph 2)."""
    texts = [text for *_, text in plan]
    sentences = list(dict.fromkeys(sentence for text in texts for sentence in text.split(". ")))
    held = [[sentences.index(sentence) for sentence in text.split(". ")] for text in texts]
    named = Rows.of(names for *_, names, _ in plan)
    names = ["cities and rivers", "kings who loved"]
    communities = Communities(
        graph=torch.tensor([row[0] for row in plan], dtype=torch.int64),
        level=torch.tensor([row[1] for row in plan], dtype=torch.int64),
        parent=torch.tensor([row[2] for row in plan], dtype=torch.int64),
        members=named,
        titles=[f"title {i}" for i in range(len(plan))],
        texts=texts,
        num_tokens=torch.tensor([len(text.split()) for text in texts], dtype=torch.int64),
        vectors=encoder.encode(texts),
        sentences=Rows.of(held),
        sources=Rows.of(sorted({sentence % 4 for sentence in row}) for row in held),
        named=named,
    )
    none = torch.zeros(0, 2, dtype=torch.int64)
    passages = torch.arange(len(sentences)) % 4
    return ReTAGIndex(
        settings=ReTAGSettings(num_topics=2),
        passage_ids=["p0", "p1", "p2", "p3"],
        entities=ENTITIES,
        topics=Topics(names, [["city", "river"], ["king", "loved"]], encoder.encode(names), torch.zeros(DIM), 0.3, 0.3),
        graphs=[Subgraph(torch.arange(8), none, torch.zeros(0)) for _ in range(3)],
        communities=communities,
        sentences=Sentences(sentences, passages, torch.tensor([len(s.split()) for s in sentences], dtype=torch.int64)),
        report=ReTAGReport(4, 40, 8, 8, 0, len(plan), 0),
    )


@pytest.fixture
def encoder() -> WordEncoder:
    return WordEncoder()


@pytest.fixture
def index(encoder: WordEncoder) -> ReTAGIndex:
    return make_index(encoder, PLAN)


@pytest.fixture
def empty_index(encoder: WordEncoder) -> ReTAGIndex:
    return make_index(encoder, ())


@pytest.fixture
def scripted() -> Callable[[Reply], ChatModel]:
    return ScriptedModel


@pytest.fixture
def extractor() -> NameExtractor:
    return NameExtractor()
