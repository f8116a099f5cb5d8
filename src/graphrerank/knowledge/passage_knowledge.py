"""Entities of a passage, and relations between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from graphrerank.utils.checks import UserError


@dataclass(frozen=True)
class Entity:
    """Entity that a passage mentions.

    Attributes:
        name: Name as written in the passage, not blank. Two names denote the same entity if ``normalize_entity`` makes
            them equal.
        type: Kind of entity, such as ``PERSON``. Empty if unknown.
        description: Description in the passage. Empty if there is none.
    """

    name: str
    type: str
    description: str


@dataclass(frozen=True)
class Relation:
    """Statement about two entities of one passage.

    Attributes:
        head: Name of the subject.
        relation: Predicate in a few words, such as ``directed by``.
        tail: Name of the object.
        description: Full text of the statement.
    """

    head: str
    relation: str
    tail: str
    description: str


@dataclass(frozen=True)
class Knowledge:
    """Entities and relations of one passage.

    Attributes:
        entities: Entities in the order of the passage, with unique names.
        relations: Relations in the order of the passage. Their heads and tails must be names in ``entities``.
    """

    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = ()

    @classmethod
    def from_names(cls, names: Sequence[str]) -> "Knowledge":
        """Create knowledge without relations from names of entities.

        Args:
            names: Names of entities. Blank and duplicate names are ignored.

        Returns:
            Knowledge whose entities have no type and no description.

        Raises:
            ValueError: If ``names`` is not a list of strings.
        """
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise UserError(f"`entities` must be a list of strings, got {str(names)[:80]!r}")
        return cls(tuple(Entity(name, "", "") for name in dict.fromkeys(names) if name.strip()))

    @property
    def names(self) -> list[str]:
        """Names of the entities."""
        return [entity.name for entity in self.entities]

    def __post_init__(self) -> None:
        names = set(self.names)
        if len(names) < len(self.entities) or not all(name.strip() for name in names):
            raise UserError(f"`entities` must have unique, non-blank names, got {self.names}")
        for relation in self.relations:
            if relation.head not in names or relation.tail not in names:
                raise UserError(
                    f"`relations` must connect names in `entities`, got {relation.head!r} and {relation.tail!r}"
                )


class KnowledgeExtractor(Protocol):
    """Protocol of extractors of entities and, optionally, relations."""

    @property
    def fingerprint(self) -> str:
        """Identifier that changes whenever the results of the extractor would change."""

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Extract the knowledge of each text.

        Args:
            texts: ``n`` texts.

        Returns:
            Knowledge of the ``n`` texts, in order.
        """


@runtime_checkable
class FallibleExtractor(Protocol):
    """Protocol of extractors that can fail on single texts, such as those that use a language model.

    Attributes:
        skipped: Texts without a usable result, across all calls of ``extract``. Caches do not store their results, so
            the next run extracts them again.
    """

    skipped: Sequence[str]


@runtime_checkable
class PromptedExtractor(Protocol):
    """Protocol of extractors that send texts to a language model.

    Attributes:
        prompts: Instructions that are sent with each text.
    """

    @property
    def prompts(self) -> Sequence[str]:
        """Instructions that are sent with each text."""
