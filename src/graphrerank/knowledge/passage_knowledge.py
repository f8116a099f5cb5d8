"""The entities of a passage and the relations between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from graphrerank.utils.checks import UserError


@dataclass(frozen=True)
class Entity:
    """A thing that a passage mentions."""

    name: str  # as the passage writes it; not blank. Two names are one entity if `normalize_entity` makes them equal
    type: str  # its kind, such as `PERSON`; empty if unknown
    description: str  # what the passage says about it; empty if nothing


@dataclass(frozen=True)
class Relation:
    """A statement that joins two entities of one passage."""

    head: str  # name of its subject
    relation: str  # the predicate in a few words, such as `directed by`
    tail: str  # name of its object
    description: str  # the statement in full


@dataclass(frozen=True)
class Knowledge:
    """Entities and relations of one passage; relations join names of the entities, each of which is there once."""

    entities: tuple[Entity, ...] = ()  # in the order of the passage, each name once
    relations: tuple[Relation, ...] = ()  # in the order of the passage; their heads and tails are names of `entities`

    @classmethod
    def from_names(cls, names: Sequence[str]) -> "Knowledge":
        """Make entities of names alone; blank and repeated names are left out."""
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise UserError(f"`entities` must be a list of strings, got {str(names)[:80]!r}")
        return cls(tuple(Entity(name, "", "") for name in dict.fromkeys(names) if name.strip()))

    @property
    def names(self) -> list[str]:
        """The names of the entities."""
        return [entity.name for entity in self.entities]

    def __post_init__(self) -> None:
        names = set(self.names)
        if len(names) < len(self.entities) or not all(name.strip() for name in names):
            raise UserError(f"`entities` must have different names, none of them blank, got {self.names}")
        for relation in self.relations:
            if relation.head not in names or relation.tail not in names:
                raise UserError(f"`relations` must join names of `entities`, got {relation.head!r}, {relation.tail!r}")


class KnowledgeExtractor(Protocol):
    """Anything that extracts entities, and perhaps relations, from texts."""

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever the knowledge would."""

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Extract the knowledge of each of ``n`` texts."""


@runtime_checkable
class FallibleExtractor(Protocol):
    """Protocol of extractors that may fail on single texts, such as those that ask a language model.

    Attributes:
        skipped: Texts without a usable result, over all calls of ``extract``. Caches do not store their knowledge, so
            that the next run extracts it again.
    """

    skipped: Sequence[str]


@runtime_checkable
class PromptedExtractor(Protocol):
    """Protocol of extractors that send texts to a language model.

    Attributes:
        prompts: Instructions that the language model receives with each text.
    """

    @property
    def prompts(self) -> Sequence[str]:
        """Instructions that the language model receives with each text."""
