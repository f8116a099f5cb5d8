"""Entities and relations by an instruction-tuned language model behind an OpenAI-compatible endpoint."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

from graphrerank.checks import check_counts
from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, Relation
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, in_form, shipped_prompt
from graphrerank.text.names import normalize_entity

ENTITY_KEYS = ("name", "type", "description")
RELATION_KEYS = ("head", "relation", "tail", "description")


@dataclass(eq=False)
class LanguageModelKnowledgeExtractor:
    """Asks a chat model about each text; wrap it in a ``KnowledgeCache`` to pay for nothing twice.

    An endpoint that still fails after the model's retries is an error. An answer that is not the requested JSON is
    requested again; a text without a usable answer has no knowledge, is listed in ``skipped``, and the work continues.
    """

    model: ChatModel
    _: KW_ONLY
    tries: int = 3  # requests per text until an answer is usable
    max_characters: int = 8000  # longer texts are cut
    # with the place `{text}`; it asks for the JSON of `parse_knowledge`
    prompt: Prompt = field(default_factory=partial(shipped_prompt, "knowledge"))
    skipped: list[str] = field(default_factory=list, init=False)  # texts without a usable answer, over all calls

    def __post_init__(self) -> None:
        check_counts(tries=self.tries, max_characters=self.max_characters)
        self.prompt.fill(text="")

    @property
    def num_skipped(self) -> int:
        """Number of texts without a usable answer."""
        return len(self.skipped)

    @property
    def fingerprint(self) -> str:
        """The model's fingerprint, the prompt and ``max_characters``."""
        return repr(("language model knowledge", self.model.fingerprint, self.prompt.key, self.max_characters))

    @property
    def prompts(self) -> tuple[str, ...]:
        """What the model is told with each text."""
        return (self.prompt.wording,)

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Extract the knowledge of each text; empty for a skipped one."""
        extracted: list[Knowledge | None] = [None] * len(texts)
        waiting, model = list(range(len(texts))), in_form(self.model, self.prompt.form)
        for _ in range(self.tries):
            questions = [self.prompt.fill(text=texts[index][: self.max_characters]) for index in waiting]
            answers = model.ask(questions, system=self.prompt.instructions(), read=_read) if waiting else []
            for index, knowledge in zip(waiting, answers, strict=True):
                extracted[index] = knowledge
            waiting = [index for index in waiting if extracted[index] is None]
        self.skipped += [texts[index] for index in waiting]
        return [knowledge or Knowledge() for knowledge in extracted]


def parse_knowledge(content: str) -> Knowledge:
    """Read a model's answer, strictly: one JSON object with ``entities`` and ``relations`` and nothing else.

    Names that :func:`~graphrerank.text.normalize_entity` makes equal are one entity, the one listed first. An end of a
    relation that is not listed becomes an entity, described by the relation, as in "LightRAG: Simple and Fast
    Retrieval-Augmented Generation", 2024. A relation of an entity with itself is left out.

    Example:
        >>> knowledge = parse_knowledge(
        ...     '{"entities": [{"name": "Metz", "type": "city", "description": "A city."}], "relations": ['
        ...     '{"head": "Lothair", "relation": "died in", "tail": "metz", "description": "He died in Metz."}]}'
        ... )
        >>> [entity.name for entity in knowledge.entities], knowledge.relations[0].tail
        (['Metz', 'Lothair'], 'Metz')
    """
    answer = json.loads(content)
    if not isinstance(answer, dict) or set(answer) != {"entities", "relations"}:
        raise ValueError(f'the answer must be {{"entities": [...], "relations": [...]}}, got {content[:80]!r}')
    return join_relations(entities_by_name(answer["entities"]), answer["relations"])


def entities_by_name(rows: Any) -> dict[str, Entity]:
    """Read a model's list of entities with ``name``, ``type`` and ``description``, by comparable name."""
    entities: dict[str, Entity] = {}
    for name, kind, description in _rows(rows, "entities", ENTITY_KEYS):
        entities.setdefault(comparable(name), Entity(name, kind, description))
    return entities


def join_relations(entities: dict[str, Entity], rows: Any) -> Knowledge:
    """Join entities by a model's list of ``head``, ``relation``, ``tail`` and ``description``; unlisted ends are added.

    A relation of an entity with itself is left out.
    """
    relations: dict[tuple[str, str, str], Relation] = {}
    for head, relation, tail, description in _rows(rows, "relations", RELATION_KEYS):
        ends = [entities.setdefault(comparable(name), Entity(name, "", description)).name for name in (head, tail)]
        if ends[0] != ends[1]:
            relations.setdefault((ends[0], relation, ends[1]), Relation(ends[0], relation, ends[1], description))
    return Knowledge(tuple(entities.values()), tuple(relations.values()))


def _read(content: str) -> Knowledge | None:
    try:
        return parse_knowledge(content)
    except (ValueError, TypeError, RecursionError):  # TypeError: the model's answer was null
        return None


def _rows(rows: Any, name: str, keys: Sequence[str]) -> Iterator[list[str]]:
    if not isinstance(rows, list):
        raise ValueError(f"`{name}` must be a list, got {str(rows)[:80]!r}")
    for row in rows:
        if not isinstance(row, dict) or set(row) != set(keys) or not all(isinstance(row[key], str) for key in keys):
            raise ValueError(f"`{name}` must hold objects of the strings {list(keys)}, got {str(row)[:80]!r}")
        yield [row[key].strip() for key in keys]


def comparable(name: str) -> str:
    """Return a name in the form in which equal entities have equal ones; a ValueError if nothing is left of it."""
    normalized = normalize_entity(name)
    if not normalized:
        raise ValueError(f"a name must hold a letter or digit, got {name!r}")
    return normalized
