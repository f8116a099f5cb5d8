"""Entities and relations by an instruction-tuned language model behind an OpenAI-compatible endpoint."""

import ast
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, AliasChoices, Field

from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, Relation
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.client import LanguageModel
from graphrerank.language_models.prompt import Prompt, in_form, shipped_prompt
from graphrerank.language_models.strict_answers import ask_strictly, parse_object_answer
from graphrerank.text.names import normalize_entity
from graphrerank.utils.checks import UserError, check_counts

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
    # with the placeholders `{text}` and `{entities}`; it asks for the JSON of `parse_relations`; None for one request
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
        parse = parse_knowledge if self.relations is None else parse_names
        found = self._ask(self.prompt, [self.prompt.fill(text=text) for text in cut], parse)
        unusable = {row for row, knowledge in enumerate(found) if knowledge is None}
        if self.relations is not None:
            named = {row: knowledge for row, knowledge in enumerate(found) if knowledge and knowledge.names}
            listed = {row: "; ".join(knowledge.names) for row, knowledge in named.items()}
            questions = [self.relations.fill(text=cut[row], entities=names) for row, names in listed.items()]
            for row, related in zip(named, self._ask(self.relations, questions, parse_relations), strict=True):
                found[row] = _join(named[row].entities, related or ())
                unusable |= {row} if related is None else set()
        self.skipped += [text for row, text in enumerate(texts) if row in unusable]
        return [knowledge or Knowledge() for knowledge in found]

    def _ask(self, prompt: Prompt, questions: Sequence[str], parse: Callable[[str], Answer]) -> list[Answer | None]:
        settings: dict[str, Any] = {"system": prompt.instructions(), "tries": self.tries, "form": prompt.form}
        return ask_strictly(self.model, questions, parse=parse, **settings)


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
    """Parse an answer, strictly: one JSON object with ``entities`` and ``relations``.

    Names that :func:`~graphrerank.text.normalize_entity` makes equal are one entity, the one listed first. An end of a
    relation that is not listed becomes an entity, described by the relation, as in "LightRAG: Simple and Fast
    Retrieval-Augmented Generation", 2024. A relation of an entity with itself is left out.
    """
    answer = parse_object_answer(content, entities=list[_Entity], relations=list[_Relation])
    return _join(answer.entities, answer.relations)


def parse_names(content: str) -> Knowledge:
    """Parse the first answer, strictly: an object with ``entities``, names or described ones; one per entity."""
    rows = parse_object_answer(content, entities=list[_Name | _Entity]).entities
    return _join([Entity(row, "", "") if isinstance(row, str) else row for row in rows], ())


def parse_relations(content: str) -> list[Relation]:
    """Parse the second answer, strictly: an object with ``triples`` (lists of three texts) or ``relations``."""
    rows = Annotated[
        list[tuple[_Name, str, _Name] | _Relation], Field(validation_alias=AliasChoices("triples", "relations"))
    ]
    found = parse_object_answer(content, rows=rows).rows
    return [Relation(row[0], row[1], row[2], " ".join(row)) if isinstance(row, tuple) else row for row in found]


def parse_entities(content: str) -> Knowledge:
    """Parse an answer, strictly: a list of strings, or a JSON object with one, ``entities``, and nothing else.

    The list may be one of Python's, as GraphER's prompt asks for, and either may stand in a fence of code.
    """
    fenced = _FENCED.fullmatch(content.strip())
    text = fenced[1] if fenced else content.strip()
    try:
        answer = json.loads(text)
    except ValueError:
        try:
            answer = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            raise UserError(f"the answer must be JSON or a Python list, got {content[:80]!r}") from error
    if isinstance(answer, dict) and set(answer) == {"entities"}:
        answer = answer["entities"]
    return Knowledge.from_names(answer)


def _join(entities: Iterable[Entity], relations: Iterable[Relation]) -> Knowledge:
    """Merge equal names, and add the ends of relations that are not listed, described by the relation."""
    known: dict[str, Entity] = {}
    for entity in entities:
        known.setdefault(normalize_entity(entity.name), entity)
    joined: dict[tuple[str, str, str], Relation] = {}
    for row in relations:
        ends = (Entity(name, "", row.description) for name in (row.head, row.tail))
        head, tail = (known.setdefault(normalize_entity(end.name), end).name for end in ends)
        if head != tail:
            joined.setdefault((head, row.relation, tail), replace(row, head=head, tail=tail))
    return Knowledge(tuple(known.values()), tuple(joined.values()))


def _check_names(part: Any) -> Any:
    """Return a name, an entity or a relation; a ValueError if one of its names has no letter and no digit."""
    ends = (part.head, part.tail) if isinstance(part, Relation) else (getattr(part, "name", part),)
    if unnamed := [name for name in ends if not normalize_entity(name)]:
        raise UserError(f"a name must hold a letter or digit, got {unnamed[0]!r}")
    return part


_Name = Annotated[str, AfterValidator(_check_names)]
_Entity = Annotated[Entity, AfterValidator(_check_names)]
_Relation = Annotated[Relation, AfterValidator(_check_names)]
