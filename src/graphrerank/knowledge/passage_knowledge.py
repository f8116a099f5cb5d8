"""What a passage says: its entities and the relations between them, with descriptions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Entity:
    """A thing that a passage speaks of.

    Attributes:
        name: As the passage writes it; not blank. Two names are one entity if
            :func:`~graphrerank.text.normalize_entity` makes them equal.
        type: What kind of thing, as ``PERSON``; empty where the extractor does not know.
        description: What the passage says about it; empty where it says nothing.
    """

    name: str
    type: str
    description: str


@dataclass(frozen=True)
class Relation:
    """A statement that joins two entities of one passage.

    Attributes:
        head: Name of the entity that it is about.
        relation: What is said, in a few words, as ``directed by``.
        tail: Name of the other entity.
        description: The statement in full.
    """

    head: str
    relation: str
    tail: str
    description: str


@dataclass(frozen=True)
class Knowledge:
    """Entities and relations of one passage.

    Attributes:
        entities: In the order of the passage, each name once.
        relations: In the order of the passage; their heads and tails are names of ``entities``.

    Raises:
        ValueError: If a name is blank or comes twice, or a relation joins what is no entity.

    Example:
        >>> metz, lothair = Entity("Metz", "GPE", ""), Entity("Lothair II", "PERSON", "")
        >>> Knowledge((metz, lothair), (Relation("Lothair II", "died in", "Metz", ""),)).relations[0].tail
        'Metz'
    """

    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = ()

    def __post_init__(self) -> None:
        names = {entity.name for entity in self.entities}
        if len(names) < len(self.entities) or not all(name.strip() for name in names):
            found = [entity.name for entity in self.entities]
            raise ValueError(f"`entities` must have different names, none of them blank, got {found}")
        for relation in self.relations:
            if relation.head not in names or relation.tail not in names:
                raise ValueError(f"`relations` must join names of `entities`, got {relation.head!r}, {relation.tail!r}")


class KnowledgeExtractor(Protocol):
    """Anything that tells entities and relations of texts."""

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever the knowledge would."""

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Tell the knowledge of each of ``n`` texts."""
