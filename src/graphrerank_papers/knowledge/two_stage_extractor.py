"""Entities first, then the relations between them: two requests of a language model for each text."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

from graphrerank.checks import check_counts
from graphrerank.knowledge.passage_knowledge import Entity, Knowledge
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.strict_answers import ask_strictly, read_json
from graphrerank_papers.knowledge.language_model_extractor import comparable, entities_by_name, join_relations


@dataclass(eq=False)
class TwoStageKnowledgeExtractor:
    """Asks a chat model for the entities of a text, then for what the text says of them.

    Source: "EA-GraphRAG", 2026, section 3.1: entities by "a two-stage LLM prompting strategy" with OpenIE triples, as
    HippoRAG 2; KET-RAG, 2025, Algorithm 1, with the prompts ``ket_entities`` and ``ket_relations``, which ask for
    descriptions too. A text without usable entities has no knowledge, one without usable relations its entities alone;
    both are listed in ``skipped``.
    """

    model: ChatModel
    _: KW_ONLY
    # with the place `{text}`; it asks for `{"entities": [...]}`: names, or objects of `name`, `type` and `description`
    entities: Prompt = field(default_factory=partial(shipped_prompt, "ea_graphrag_entities"))
    # with the places `{text}` and `{entities}`; it asks for `{"triples": [[head, relation, tail], ...]}`, or for
    # `{"relations": [...]}` with objects of `head`, `relation`, `tail` and `description`
    relations: Prompt = field(default_factory=partial(shipped_prompt, "ea_graphrag_triples"))
    tries: int = 3  # see `ask_strictly`, of each request
    max_characters: int = 8000  # longer texts are cut
    skipped: list[str] = field(default_factory=list, init=False)  # texts without a usable answer, over all calls

    def __post_init__(self) -> None:
        check_counts(tries=self.tries, max_characters=self.max_characters)
        self.entities.fill(text="")
        self.relations.fill(text="", entities="")

    @property
    def fingerprint(self) -> str:
        """The model's fingerprint, the prompts and ``max_characters``."""
        prompts = (self.entities.fingerprint, self.relations.fingerprint)
        return repr(("two-stage knowledge", self.model.fingerprint, *prompts, self.max_characters))

    @property
    def prompts(self) -> tuple[str, ...]:
        """What the model is told with each text, both times."""
        return self.entities.wording, self.relations.wording

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Extract the knowledge of each text."""
        cut = [text[: self.max_characters] for text in texts]
        named = self._ask(self.entities, [self.entities.fill(text=text) for text in cut], parse_names)
        rows = [row for row, entities in enumerate(named) if entities]
        listed = {row: "; ".join(entity.name for entity in (named[row] or {}).values()) for row in rows}
        asked = [self.relations.fill(text=cut[row], entities=listed[row]) for row in rows]
        related = dict(zip(rows, self._ask(self.relations, asked, parse_relations), strict=True))
        extracted = []
        for row, text in enumerate(texts):
            entities = named[row]
            if entities is None or (entities and related[row] is None):
                self.skipped.append(text)
            extracted.append(join_relations(dict(entities or {}), related.get(row) or []))
        return extracted

    def _ask(self, prompt: Prompt, questions: Sequence[str], parse: Any) -> list[Any]:
        return ask_strictly(
            self.model, questions, system=prompt.instructions(), parse=parse, tries=self.tries, form=prompt.form
        )


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


def _only(content: str, *keys: str) -> list[Any]:
    """Return the list that is all that an answer has, under one of the keys."""
    answer = read_json(content)
    if isinstance(answer, dict) and len(answer) == 1:
        ((key, rows),) = answer.items()
        if key in keys and isinstance(rows, list):
            return rows
    raise ValueError(f'the answer must be {{"{keys[0]}": [...]}}, got {content[:80]!r}')
