"""Extractors of knowledge without a model."""

import itertools
import re
from collections.abc import Sequence

import pytest

from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, Relation


class ScriptedExtractor:
    """Extracts by a rule, and keeps the texts that it was given."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        self.asked += texts
        return [self.knowledge(text) for text in texts]

    def knowledge(self, text: str) -> Knowledge:
        raise NotImplementedError


class NameExtractor(ScriptedExtractor):
    """Capitalised words are entities, neighbours in a sentence are related."""

    fingerprint = "names"

    def knowledge(self, text: str) -> Knowledge:
        entities: dict[str, Entity] = {}
        relations = []
        for sentence in text.split("."):
            names = list(dict.fromkeys(re.findall(r"[A-Z]\w+(?: II)?", sentence)))
            for name in names:
                entities.setdefault(name, Entity(name, "NAME", f"{sentence.strip()}."))
            for head, tail in itertools.pairwise(names):
                relations.append(Relation(head, "before", tail, f"{head} stands before {tail}."))
        return Knowledge(tuple(entities.values()), tuple(dict.fromkeys(relations)))


class StatementExtractor(ScriptedExtractor):
    """Reads passages such as "Lothair|died in|Metz; Metz|lies on|Moselle"; a name alone is an entity."""

    fingerprint = "statements"

    def knowledge(self, text: str) -> Knowledge:
        parts = [part.strip().split("|") for part in text.split(";") if part.strip() and part.strip()[0].isupper()]
        parts += [part.strip().split("|") for part in text.split(";") if part.strip().startswith("the ")]
        names = dict.fromkeys(name for part in parts for name in part[::2])
        entities = tuple(Entity(name, "", "") for name in names)
        return Knowledge(entities, tuple(Relation(*part, "") for part in parts if len(part) == 3))


@pytest.fixture
def name_extractor() -> NameExtractor:
    return NameExtractor()


@pytest.fixture
def statement_extractor() -> StatementExtractor:
    return StatementExtractor()
