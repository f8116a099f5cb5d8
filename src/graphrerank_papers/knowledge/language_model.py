"""Extract entities and relations with an instruction-tuned language model behind an OpenAI-compatible endpoint."""

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
    """Extract entities and relations by asking a chat model about each text.

    With a ``relations`` prompt, there are two requests per text: one for the entities, and one for the relations
    between them. Answers that cannot be parsed are requested again
    (:func:`~graphrerank.language_models.strict_answers.ask_strictly`). If no answer about the entities can be parsed,
    the text yields nothing; if no answer about the relations can be parsed, it yields only entities. Such texts are
    added to ``skipped``. An endpoint that still fails after the retries of ``model`` raises an error. Wrap the
    extractor in a :class:`~graphrerank.knowledge.knowledge_cache.KnowledgeCache` so that no text is sent twice.

    Source: "LightRAG", 2024, for a single request. For two requests: "EA-GraphRAG", 2026, section 3.1, "a two-stage LLM
    prompting strategy" with OpenIE triples, as in HippoRAG 2; and "KET-RAG", 2025, Algorithm 1, with prompts that ask
    for descriptions.

    Attributes:
        model: Chat model.
        prompt: Prompt with the placeholder ``{text}``. It asks for the JSON that :func:`parse_knowledge` parses or, if
            there is a ``relations`` prompt, for the JSON that :func:`parse_names` parses.
        relations: Prompt with the placeholders ``{text}`` and ``{entities}``. It asks for the JSON that
            :func:`parse_relations` parses. If None, there is one request per text.
        tries: Maximum number of attempts per request to get an answer that can be parsed.
        max_characters: Maximum number of characters of a text. Longer texts are truncated.
        skipped: Texts without a usable answer, over all calls.
    """

    model: ChatModel
    _: KW_ONLY
    prompt: Prompt = field(default_factory=partial(shipped_prompt, "knowledge"))
    relations: Prompt | None = None
    tries: int = 3
    max_characters: int = 8000
    skipped: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        check_counts(tries=self.tries, max_characters=self.max_characters)
        self.prompt.fill(text="")
        if self.relations is not None:
            self.relations.fill(text="", entities="")

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the model, the prompts and ``max_characters``."""
        if self.relations is None:
            return repr(("language model knowledge", self.model.fingerprint, self.prompt.key, self.max_characters))
        prompts = (self.prompt.fingerprint, self.relations.fingerprint)
        return repr(("two-stage knowledge", self.model.fingerprint, *prompts, self.max_characters))

    @property
    def prompts(self) -> tuple[str, ...]:
        """Wording of the prompts that are sent with each text."""
        return (self.prompt.wording,) if self.relations is None else (self.prompt.wording, self.relations.wording)

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Extract the knowledge of each text.

        Args:
            texts: ``n`` texts.

        Returns:
            Entities and relations of each text. Empty for a skipped text.
        """
        cut = [text[: self.max_characters] for text in texts]
        parse = parse_knowledge if self.relations is None else parse_names
        extracted = self._ask(self.prompt, [self.prompt.fill(text=text) for text in cut], parse)
        unusable = {row for row, knowledge in enumerate(extracted) if knowledge is None}
        if self.relations is not None:
            named = {row: knowledge for row, knowledge in enumerate(extracted) if knowledge and knowledge.names}
            listed = {row: "; ".join(knowledge.names) for row, knowledge in named.items()}
            questions = [self.relations.fill(text=cut[row], entities=names) for row, names in listed.items()]
            for row, related in zip(named, self._ask(self.relations, questions, parse_relations), strict=True):
                extracted[row] = _join(named[row].entities, related or ())
                unusable |= {row} if related is None else set()
        self.skipped += [text for row, text in enumerate(texts) if row in unusable]
        return [knowledge or Knowledge() for knowledge in extracted]

    def _ask(self, prompt: Prompt, questions: Sequence[str], parse: Callable[[str], Answer]) -> list[Answer | None]:
        settings: dict[str, Any] = {"system": prompt.instructions(), "tries": self.tries, "form": prompt.form}
        return ask_strictly(self.model, questions, parse=parse, **settings)


class LanguageModelEntityExtractor:
    """Extract the names in each text by asking a chat model.

    Failed requests, and answers that :func:`parse_entities` cannot parse, are retried as described in
    :class:`~graphrerank.language_models.client.LanguageModel`. Wrap the extractor in a
    :class:`~graphrerank.knowledge.knowledge_cache.KnowledgeCache` so that no text is sent twice.

    Args:
        base_url: URL of an OpenAI-compatible endpoint, such as ``http://localhost:8000/v1``.
        model: Name of the model at the endpoint.
        max_characters: Maximum number of characters of a text. Longer texts are truncated.
        prompt: Prompt with the placeholder ``{text}``. If None, the shipped prompt ``entities`` is used, which asks for
            names without dates. The shipped prompt ``grapher_entities`` includes dates.
        **settings: Further arguments of :class:`~graphrerank.language_models.client.LanguageModel`.
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
        """Fingerprint of the model's name and settings, the prompt and ``max_characters``, but not of the endpoint."""
        model = self._model
        plain = model.fingerprint == LanguageModel(model.base_url, model.model).fingerprint
        further = () if plain else (model.fingerprint,)
        return repr(("language model", model.model, self.prompt.key, self.max_characters, *further))

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Extract the entities of each text.

        Args:
            texts: ``n`` texts.

        Returns:
            Entities of each text.
        """
        messages = [self.prompt.fill(text=text[: self.max_characters]) for text in texts]
        return self._model.ask(messages, system=self.prompt.instructions(), read=parse_entities)


def parse_knowledge(content: str) -> Knowledge:
    """Parse an answer that must be a JSON object with ``entities`` and ``relations``.

    Entities with the same normalised name (:func:`~graphrerank.text.normalize_entity`) are merged into the first one.
    If the head or tail of a relation is not among the entities, it is added as an entity with the description of the
    relation, as in "LightRAG", 2024. Relations of an entity with itself are ignored.

    Args:
        content: Answer of a language model.

    Returns:
        Entities and relations of the text.

    Raises:
        ValueError: If the answer has another form.
    """
    answer = parse_object_answer(content, entities=list[_Entity], relations=list[_Relation])
    return _join(answer.entities, answer.relations)


def parse_names(content: str) -> Knowledge:
    """Parse an answer that must be a JSON object with ``entities``, which are names or objects with descriptions.

    Args:
        content: First answer of a two-stage extraction.

    Returns:
        Entities of the text, without relations. Entities with the same normalised name are merged.

    Raises:
        ValueError: If the answer has another form.

    Example:
        >>> parse_names('{"entities": ["Metz", "Lothair II", "METZ"]}').names
        ['Metz', 'Lothair II']
    """
    rows = parse_object_answer(content, entities=list[_Name | _Entity]).entities
    return _join([Entity(row, "", "") if isinstance(row, str) else row for row in rows], ())


def parse_relations(content: str) -> list[Relation]:
    """Parse an answer that must be a JSON object with ``triples`` (lists of three strings) or ``relations``.

    Args:
        content: Second answer of a two-stage extraction.

    Returns:
        Relations of the text. A triple is described by its three strings.

    Raises:
        ValueError: If the answer has another form.

    Example:
        >>> parse_relations('{"triples": [["Lothair II", "died in", "Metz"]]}')[0].relation
        'died in'
    """
    form = Annotated[
        list[tuple[_Name, str, _Name] | _Relation], Field(validation_alias=AliasChoices("triples", "relations"))
    ]
    rows = parse_object_answer(content, rows=form).rows
    return [Relation(row[0], row[1], row[2], " ".join(row)) if isinstance(row, tuple) else row for row in rows]


def parse_entities(content: str) -> Knowledge:
    """Parse an answer that must be a list of strings, or a JSON object whose only key is ``entities`` with such a list.

    The list may also be a Python literal, which GraphER's prompt asks for. The answer may be a fenced code block.

    Args:
        content: Answer of a language model.

    Returns:
        Entities with these names.

    Raises:
        ValueError: If the answer has another form.

    Example:
        >>> parse_entities("['Metz', 'Lothair II']").names
        ['Metz', 'Lothair II']
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
    """Merge entities with the same normalised name, and add missing heads and tails with the relation's description."""
    by_name: dict[str, Entity] = {}
    for entity in entities:
        by_name.setdefault(normalize_entity(entity.name), entity)
    joined: dict[tuple[str, str, str], Relation] = {}
    for row in relations:
        ends = (Entity(name, "", row.description) for name in (row.head, row.tail))
        head, tail = (by_name.setdefault(normalize_entity(end.name), end).name for end in ends)
        if head != tail:
            joined.setdefault((head, row.relation, tail), replace(row, head=head, tail=tail))
    return Knowledge(tuple(by_name.values()), tuple(joined.values()))


def _check_names(value: Any) -> Any:
    """Return a name, entity or relation unchanged. Raises an error if one of its names has no letter or digit."""
    if isinstance(value, Relation):
        names = [value.head, value.tail]
    else:
        names = [value.name if isinstance(value, Entity) else value]
    if invalid := [name for name in names if not normalize_entity(name)]:
        raise UserError(f"a name must contain a letter or digit, got {invalid[0]!r}")
    return value


_Name = Annotated[str, AfterValidator(_check_names)]
_Entity = Annotated[Entity, AfterValidator(_check_names)]
_Relation = Annotated[Relation, AfterValidator(_check_names)]
