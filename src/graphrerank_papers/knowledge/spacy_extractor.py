"""Extract entities and relations with spaCy's dependency parse, without a language model."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, Relation
from graphrerank.text.names import normalize_entity
from graphrerank.text.sentences import split_sentences
from graphrerank.text.spacy_pipeline import ENGLISH, load_spacy, spacy_versions
from graphrerank.utils.checks import UserError
from graphrerank_papers.knowledge.parsed_text import (
    BRACKETED_END,
    NAMES,
    Mention,
    Statement,
    find_phrases,
    find_statements,
)

#: Version of the rules. Increment it when the extracted knowledge changes.
EXTRACTION_VERSION = 2
MAX_TITLE_WORDS = 10
#: Number of texts per batch.
BATCH_SIZE = 64
#: Components of the spaCy pipeline that are loaded.
PIPELINE_COMPONENTS = ("transformer", "tok2vec", "tagger", "parser", "attribute_ruler", "lemmatizer", "ner")

#: Misplaced space, as in "Lambert( died after 938)".
_OPEN_BRACKET = re.compile(r"(?<=\w)\(\s+")
#: Misplaced space, as in "half- brother".
_SPLIT_HYPHEN = re.compile(r"(?<=\w)- (?!and\b|or\b|to\b)(?=[a-z])")


@dataclass(eq=False)
class SpacyKnowledgeExtractor:
    """Extract the entities of English passages, and the relations between them.

    - Entities are named entities and noun phrases. Pronouns, numbers and generic phrases such as "the study" are
      ignored. An entity is described by the first sentence that contains it.
    - Relations are statements about two entities: a subject, a verb and its direct or prepositional object; the agent
      of a passive; "X is Y"; an apposition; a possessor; or nouns joined by a preposition. Each member of an
      enumeration yields its own relation. A relation is described by its sentence.
    - The title of a text is an entity. It is the first line, or the first sentence of a text with a single line. It
      must be short, and either be capitalised like a name or occur again in the text. The subject of the first sentence
      is the same entity if it shares a word with the title: "Harnam Singh Rawail was ..." in the passage "H. S.
      Rawail".

    Source: the rules are original. The kinds of phrases are those of "EA-GraphRAG", 2026, section 3.4.2.

    Attributes:
        model: Import name or folder of an installed spaCy pipeline with a parser.
        titles: Whether texts start with their titles.
    """

    model: str = ENGLISH
    _: KW_ONLY
    titles: bool = True

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of spaCy, its pipeline, the rules and the settings. The final 0 was a setting of old versions."""
        return repr(("spacy knowledge", *spacy_versions(self.model), EXTRACTION_VERSION, NAMES, self.titles, 0))

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Extract the knowledge of each text.

        Args:
            texts: ``n`` English texts.

        Returns:
            Entities and relations of each text.

        Raises:
            ValueError: If the spaCy pipeline is not installed or has no parser.
        """
        split = [split_title(text) if self.titles else ("", text) for text in texts]
        bodies = [_SPLIT_HYPHEN.sub("-", _OPEN_BRACKET.sub(" (", body)) for _, body in split]
        documents = self._pipeline.pipe(bodies, batch_size=BATCH_SIZE)
        return [self._read(title, document) for (title, _), document in zip(split, documents, strict=True)]

    @cached_property
    def _pipeline(self) -> Any:
        pipeline = load_spacy(self.model, components=PIPELINE_COMPONENTS)
        if "parser" not in pipeline.pipe_names:
            raise UserError(f"`model` must be a pipeline with a parser, got {self.model!r} with {pipeline.pipe_names}")
        return pipeline

    def _read(self, title: str, document: Any) -> Knowledge:
        mentions = find_phrases(document, title=title)
        return _knowledge(title, document, mentions, find_statements(document, mentions))


def _knowledge(title: str, document: Any, mentions: dict[int, Mention], statements: Iterable[Statement]) -> Knowledge:
    """Merge the mentions of a passage into entities, and its statements into relations."""
    sentence_of = [index for index, sentence in enumerate(document.sents) for _ in sentence]
    sentences = [" ".join(sentence.text.split()) for sentence in document.sents]
    names: dict[str, str] = {}  # first spelling of each entity, by normalised name
    types: dict[str, str] = {}
    descriptions: dict[str, str] = {}
    relations: dict[tuple[str, str, str], str] = {}
    if title:
        names[normalize_entity(title)] = title
        for shorter in (BRACKETED_END.sub("", title), title.partition(",")[0]):
            names.setdefault(normalize_entity(shorter), title)
        if (opening := _opening_name(title, document, mentions)) is not None:
            names.setdefault(normalize_entity(opening.name), title)
        types[title] = ""
        descriptions[title] = sentences[0] if sentences else ""
    for mention in mentions.values():
        if " " in (name := normalize_entity(mention.name)):
            names.setdefault(name, mention.name)
    names |= _surnames(mentions, names)
    for token, mention in mentions.items():
        name = names.setdefault(normalize_entity(mention.name), mention.name)
        types[name] = types.get(name) or mention.label
        descriptions.setdefault(name, sentences[sentence_of[token]])
    for subject, relation, target, token in statements:
        head, tail = (names[normalize_entity(mentions[end].name)] for end in (subject, target))
        if head != tail:
            relations.setdefault((head, relation, tail), sentences[sentence_of[token]])
    return Knowledge(
        tuple(Entity(name, label, descriptions[name]) for name, label in types.items()),
        tuple(Relation(*parts, description) for parts, description in relations.items()),
    )


def split_title(text: str) -> tuple[str, str]:
    r"""Split a text into its title, which may be empty, and its body.

    Args:
        text: Text that may start with a title.

    Returns:
        Title and body.

    Example:
        >>> split_title("Gone with the Wind\nIt is a film of 1939.")
        ('Gone with the Wind', 'It is a film of 1939.')
    """
    stripped = text.strip()
    spans, line = split_sentences(stripped), stripped.partition("\n")[0]
    end = min(len(line), spans[0][1]) if spans else 0
    title, body = stripped[:end].rstrip(" ."), stripped[end:].lstrip()
    words = title.split()
    if not (body and 0 < len(words) <= MAX_TITLE_WORDS and normalize_entity(title)):
        return "", stripped
    repeated = f" {normalize_entity(BRACKETED_END.sub('', title))} " in f" {normalize_entity(body)} "
    return (title, body) if repeated or _is_name_like(words) else ("", stripped)


def _is_name_like(words: Sequence[str]) -> bool:
    """Return whether the first, the last and all long words are capitalised, as in "Gone with the Wind"."""
    ends = (0, len(words) - 1)
    decisive = [word.strip("()\"'") for index, word in enumerate(words) if len(word) > 4 or index in ends]
    return not any(word[:1].islower() for word in decisive)


def _opening_name(title: str, document: Any, mentions: dict[int, Mention]) -> Mention | None:
    """Return the subject of a first sentence of the form "X is ...", if X shares a word with the title."""
    sentence = next(document.sents, None)
    if sentence is None or sentence.root.lemma_ != "be":
        return None
    words = set(normalize_entity(title).split())
    for token in (child for child in sentence.root.children if child.dep_ == "nsubj"):
        mention = mentions.get(token.i)
        if mention is not None and mention.name[0].isupper() and words & set(normalize_entity(mention.name).split()):
            return mention
    return None


def _surnames(mentions: dict[int, Mention], names: dict[str, str]) -> dict[str, str]:
    """Map surnames to full names, for surnames that only one person in the passage has."""
    bearers: dict[str, set[str]] = {}
    for mention in mentions.values():
        name = normalize_entity(mention.name)
        if mention.label == "PERSON" and " " in name:
            bearers.setdefault(name.split()[-1], set()).add(names[name])
    return {surname: min(people) for surname, people in bearers.items() if len(people) == 1 and surname not in names}
