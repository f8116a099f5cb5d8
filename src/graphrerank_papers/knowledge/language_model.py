"""Entities and relations by an instruction-tuned language model behind an OpenAI-compatible endpoint."""

import ast
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, TypeVar

from graphrerank.checks import check_counts
from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, Relation
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.client import LanguageModel
from graphrerank.language_models.prompt import Prompt, in_form, shipped_prompt
from graphrerank.language_models.strict_answers import ask_strictly, read_json
from graphrerank.text.names import normalize_entity

ENTITY_KEYS = ("name", "type", "description")
RELATION_KEYS = ("head", "relation", "tail", "description")

_FENCED = re.compile(r"```\w*\n(.*)\n```", re.DOTALL)

Answer = TypeVar("Answer")


@dataclass(eq=False)
class LanguageModelKnowledgeExtractor:
    """Asks a chat model about each text; wrap it in a ``KnowledgeCache`` to pay for nothing twice.

    With ``relations`` it makes two requests for each text: first for the entities, then for the relations between them.
    An answer of another form is requested again (:func:`ask_strictly`). A text without usable entities has no
    knowledge, one without usable relations its entities alone; both are listed in ``skipped``, and the work continues.
    An endpoint that still fails after the model's retries is an error.

    Source: LightRAG, 2024, in one request. In two: "EA-GraphRAG", 2026, section 3.1, "a two-stage LLM prompting
    strategy" with OpenIE triples, as HippoRAG 2; KET-RAG, 2025, Algorithm 1, with prompts that ask for descriptions.
    """

    model: ChatModel
    _: KW_ONLY
    # with the place `{text}`; it asks for the JSON of `parse_knowledge`, or of `parse_names` before `relations`
    prompt: Prompt = field(default_factory=partial(shipped_prompt, "knowledge"))
    # with the places `{text}` and `{entities}`; it asks for the JSON of `parse_relations`; None for one request
    relations: Prompt | None = None
    tries: int = 3  # see `ask_strictly`, of each request
    max_characters: int = 8000  # longer texts are cut
    skipped: list[str] = field(default_factory=list, init=False)  # texts without a usable answer, over all calls

    def __post_init__(self) -> None:
        check_counts(tries=self.tries, max_characters=self.max_characters)
        self.prompt.fill(text="")
        if self.relations is not None:
            self.relations.fill(text="", entities="")

    @property
    def fingerprint(self) -> str:
        """The model's fingerprint, the prompts and ``max_characters``."""
        if self.relations is None:
            return repr(("language model knowledge", self.model.fingerprint, self.prompt.key, self.max_characters))
        prompts = (self.prompt.fingerprint, self.relations.fingerprint)
        return repr(("two-stage knowledge", self.model.fingerprint, *prompts, self.max_characters))

    @property
    def prompts(self) -> tuple[str, ...]:
        """The wording of the prompts that are sent with each text."""
        return (self.prompt.wording,) if self.relations is None else (self.prompt.wording, self.relations.wording)

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Extract the knowledge of each text; empty for a skipped one."""
        cut = [text[: self.max_characters] for text in texts]
        questions = [self.prompt.fill(text=text) for text in cut]
        if self.relations is None:
            answers = self._ask(self.prompt, questions, parse_knowledge)
            self.skipped += [text for text, knowledge in zip(texts, answers, strict=True) if knowledge is None]
            return [knowledge or Knowledge() for knowledge in answers]
        named = self._ask(self.prompt, questions, parse_names)
        rows = [row for row, entities in enumerate(named) if entities]
        listed = {row: "; ".join(entity.name for entity in (named[row] or {}).values()) for row in rows}
        questions = [self.relations.fill(text=cut[row], entities=listed[row]) for row in rows]
        related = dict(zip(rows, self._ask(self.relations, questions, parse_relations), strict=True))
        extracted = []
        for row, text in enumerate(texts):
            entities = named[row]
            if entities is None or (entities and related[row] is None):
                self.skipped.append(text)
            extracted.append(join_relations(dict(entities or {}), related.get(row) or []))
        return extracted

    def _ask(self, prompt: Prompt, questions: Sequence[str], parse: Callable[[str], Answer]) -> list[Answer | None]:
        return ask_strictly(
            self.model, questions, system=prompt.instructions(), parse=parse, tries=self.tries, form=prompt.form
        )


class LanguageModelEntityExtractor:
    """Asks a chat model for the names in each text; wrap it in a ``KnowledgeCache`` to pay for nothing twice.

    A failed request, and an answer that :func:`parse_entities` refuses, is retried as :class:`LanguageModel` does.

    ``prompt`` has the place ``{text}``: ``entities``, the default, wants no dates; ``grapher_entities`` does. Texts
    longer than ``max_characters`` are cut; ``settings`` are further arguments of ``LanguageModel``.
    """

    def __init__(
        self, base_url: str, model: str, *, max_characters: int = 8000, prompt: Prompt | None = None, **settings: Any
    ) -> None:
        check_counts(max_characters=max_characters)
        self.max_characters = max_characters
        self.prompt = prompt or shipped_prompt("entities")
        self.prompt.fill(text="")
        self._model = in_form(LanguageModel(base_url, model, **settings), self.prompt.form)

    @property
    def fingerprint(self) -> str:
        """The model's name, its settings, the prompt and ``max_characters``, without the endpoint, which may move."""
        model = self._model
        plain = model.fingerprint == LanguageModel(model.base_url, model.model).fingerprint
        further = () if plain else (model.fingerprint,)
        return repr(("language model", model.model, self.prompt.key, self.max_characters, *further))

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Extract the entities of each text."""
        asked = [self.prompt.fill(text=text[: self.max_characters]) for text in texts]
        return self._model.ask(asked, system=self.prompt.instructions(), read=parse_entities)


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
    answer = read_json(content)
    if not isinstance(answer, dict) or set(answer) != {"entities", "relations"}:
        raise ValueError(f'the answer must be {{"entities": [...], "relations": [...]}}, got {content[:80]!r}')
    return join_relations(entities_by_name(answer["entities"]), answer["relations"])


def parse_names(content: str) -> dict[str, Entity]:
    """Parse the first answer, strictly: an object with ``entities``, names or described ones; by comparable name."""
    rows = _only(content, "entities")
    if not all(isinstance(row, str) for row in rows):
        return entities_by_name(rows)
    entities: dict[str, Entity] = {}
    for name in rows:
        entities.setdefault(comparable(name), Entity(name.strip(), "", ""))
    return entities


def parse_relations(content: str) -> list[dict[str, str]]:
    """Parse the second answer, strictly: a JSON object with ``triples`` or ``relations``; as rows of ``relations``.

    Example:
        >>> parse_relations('{"triples": [["Metz", "lies in", "Lorraine"]]}')[0]["description"]
        'Metz lies in Lorraine'
    """
    rows: list[dict[str, str]] = []
    for row in _only(content, "triples", "relations"):
        if isinstance(row, list) and len(row) == 3 and all(isinstance(part, str) for part in row):
            head, relation, tail = (part.strip() for part in row)
            row = {"head": head, "relation": relation, "tail": tail, "description": f"{head} {relation} {tail}"}
        rows.append(row)
    join_relations({}, rows)
    return rows


def parse_entities(content: str) -> Knowledge:
    """Read a model's answer, strictly: a list of strings, or a JSON object with one, ``entities``, and nothing else.

    The list may be one of Python's, as GraphER's prompt asks for, and either may stand in a fence of code.

    Example:
        >>> parse_entities('{"entities": ["Lothair II", "Metz"]}').names
        ['Lothair II', 'Metz']
        >>> parse_entities("['Metz', '8 August 869']").names
        ['Metz', '8 August 869']
    """
    fenced = _FENCED.fullmatch(content.strip())
    answer = _read_list(fenced[1] if fenced else content)
    if isinstance(answer, dict):
        answer = answer["entities"] if set(answer) == {"entities"} else None
    if not isinstance(answer, list):
        raise ValueError(f'the answer must be {{"entities": [...]}} or a list, got {content[:80]!r}')
    return Knowledge.from_names(answer)


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


def comparable(name: str) -> str:
    """Return a name in the form in which equal entities have equal ones; a ValueError if nothing is left of it."""
    normalized = normalize_entity(name)
    if not normalized:
        raise ValueError(f"a name must hold a letter or digit, got {name!r}")
    return normalized


def _only(content: str, *keys: str) -> list[Any]:
    """Return the list that is all that an answer has, under one of the keys."""
    answer = read_json(content)
    if isinstance(answer, dict) and len(answer) == 1:
        ((key, rows),) = answer.items()
        if key in keys and isinstance(rows, list):
            return rows
    raise ValueError(f'the answer must be {{"{keys[0]}": [...]}}, got {content[:80]!r}')


def _rows(rows: Any, name: str, keys: Sequence[str]) -> Iterator[list[str]]:
    if not isinstance(rows, list):
        raise ValueError(f"`{name}` must be a list, got {str(rows)[:80]!r}")
    for row in rows:
        if not isinstance(row, dict) or set(row) != set(keys) or not all(isinstance(row[key], str) for key in keys):
            raise ValueError(f"`{name}` must hold objects of the strings {list(keys)}, got {str(row)[:80]!r}")
        yield [row[key].strip() for key in keys]


def _read_list(content: str) -> Any:
    with suppress(ValueError):
        return json.loads(content)
    try:
        return ast.literal_eval(content.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"the answer must be JSON or a Python list, got {content[:80]!r}") from error
