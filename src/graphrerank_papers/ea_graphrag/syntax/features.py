"""Syntax features of texts, computed with spaCy and cached on disk.

The nine syntactic units are counted in Stanza's constituency trees, or estimated from spaCy's dependency parse. The
functions below list each feature with its formula. Source: Dong et al., "Use Graph When It Needs" (EA-GraphRAG), 2026,
section 3.2, which names the families of features and gives examples of each.
"""

import importlib.metadata
import math
import pickle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphrerank.installation.extras import require_extra
from graphrerank.text.spacy_pipeline import ENGLISH, load_spacy, spacy_versions
from graphrerank.utils.caching import BlobStore, fill, hash_text, short_hash
from graphrerank.utils.checks import UserError, check_choice
from graphrerank.utils.files import hash_files
from graphrerank_papers.ea_graphrag.syntax.units import (
    FINITE,
    HEAD_RULES_VERSION,
    Tree,
    Units,
    approximate_units,
    count_units,
    is_word,
    read_tree,
)

#: Components of the spaCy pipeline that are loaded.
PARSER_COMPONENTS = ("tok2vec", "transformer", "tagger", "parser", "attribute_ruler", "ner")
#: Batch size of spaCy.
BATCH_TEXTS = 64
#: Batch size of Stanza.
BATCH_SENTENCES = 50
#: Number of texts between two writes to the cache. An interruption loses at most this much work.
SHARD_TEXTS = 256
ROW_DTYPE = np.dtype("<f4")
RESOURCES = '{"en": {"lang_name": "English", "packages": {}}}'

#: Version of the features. Increment it when a feature changes, so that cached features are computed again.
FEATURES_VERSION = 1

#: Number of tokens above which a dependency is long-range.
LONG_DEPENDENCY = 5
VERY_LONG = 10
#: Type-token ratio at which a segment of text ends (McCarthy and Jarvis, 2010).
MTLD_RATIO = 0.72

#: Features that count the words with any of the given dependency labels (ClearNLP).
DEPENDENCY_COUNTS = {
    "num_subjects": ("nsubj", "nsubjpass", "csubj", "csubjpass", "expl"),
    "num_objects": ("dobj", "pobj", "dative", "iobj", "oprd"),
    "num_modifiers": ("amod", "advmod", "nummod", "npadvmod", "nmod", "quantmod"),
    "num_adjective_modifiers": ("amod",),
    "num_adverb_modifiers": ("advmod", "npadvmod"),
    "num_prepositions": ("prep", "agent"),
    "num_conjuncts": ("conj",),
    "num_subordinate_clauses": ("ccomp", "advcl", "relcl", "csubj", "csubjpass", "acl", "pcomp"),
    "num_relative_clauses": ("relcl",),
    "num_adverbial_clauses": ("advcl",),
    "num_complement_clauses": ("ccomp",),
    "num_open_complements": ("xcomp",),
    "num_noun_clauses": ("acl",),
    "num_compounds": ("compound",),
    "num_possessives": ("poss",),
    "num_appositions": ("appos",),
    "num_auxiliaries": ("aux", "auxpass"),
    "num_determiners": ("det", "predet"),
}
#: Features that count the named entities with any of the given types (OntoNotes).
ENTITY_COUNTS = {
    "num_persons": ("PERSON",),
    "num_organizations": ("ORG",),
    "num_locations": ("GPE", "LOC", "FAC"),
    "num_dates": ("DATE", "TIME"),
    "num_groups": ("NORP", "LANGUAGE"),
    "num_works_and_events": ("WORK_OF_ART", "EVENT", "PRODUCT", "LAW"),
    "num_quantities": ("CARDINAL", "ORDINAL", "QUANTITY", "PERCENT", "MONEY"),
}
#: Dependency labels of times and places.
ADJUNCT = frozenset({"pobj", "npadvmod", "nummod", "advmod"})
CONTENT_TAGS = frozenset({"NOUN", "PROPN", "VERB", "ADJ", "ADV", "NUM"})
PROPOSITIONAL = frozenset({"VERB", "ADJ", "ADV", "ADP", "CCONJ", "SCONJ"})
#: Parts of speech whose shares are features.
SHARE_TAGS = ("NOUN", "PROPN", "VERB", "ADJ", "ADV", "PRON")
#: Names of the features with the shares of ``SHARE_TAGS``.
SHARE_FEATURES = (
    "share_nouns",
    "share_proper_nouns",
    "share_verbs",
    "share_adjectives",
    "share_adverbs",
    "share_pronouns",
)
_CONNECTIVES = """
after also although as because before besides but consequently finally furthermore hence however if instead meanwhile
moreover nevertheless otherwise since so still then therefore though thus unless until when whereas whether while yet
"""
CONNECTIVES = frozenset(_CONNECTIVES.split())
QUESTION_WORDS = ("who", "what", "which", "when", "where", "why", "how")
_ASKED_BY = {word: word for word in QUESTION_WORDS} | {"whom": "who", "whose": "who"}


class ParsedText:
    """Tokens with their dependency trees and entities, as plain lists. Whitespace tokens are ignored.

    Args:
        document: Document parsed by spaCy, or another iterable of its tokens.
        entities: Named entities of the document, as spaCy spans.
    """

    def __init__(self, document: Iterable[Any], entities: Iterable[Any]) -> None:
        tokens = [token for token in document if not token.is_space]
        index = {token.i: position for position, token in enumerate(tokens)}
        self.shapes = [token.text for token in tokens]
        self.words = [shape.lower() for shape in self.shapes]
        self.tags = [token.tag_ for token in tokens]
        self.pos = [token.pos_ for token in tokens]
        self.relations = [token.dep_ for token in tokens]
        self.heads = [index.get(token.head.i, position) for position, token in enumerate(tokens)]
        self.is_word = [is_word(tag) for tag in self.tags]
        self.counts = Counter(self.relations)
        # OntoNotes type, number of tokens and head token of each entity
        self.entities = [(span.label_, len(span), index[span.root.i]) for span in entities if span.root.i in index]
        # number of ancestors, of children, and of descendants to the left and to the right of each token
        self.depth, self.num_children, self.left, self.right = ([0] * len(self) for _ in range(4))
        roots = list(range(len(self)))
        for token in range(len(self)):
            self.num_children[self.heads[token]] += self.heads[token] != token
            while (head := self.heads[roots[token]]) != roots[token]:
                side = self.left if roots[token] < head else self.right
                side[head] += 1
                self.depth[token] += 1
                roots[token] = head
        self.level_widths = Counter(zip(roots, self.depth, strict=True)).values()

    def __len__(self) -> int:
        return len(self.words)

    def count(self, *relations: str) -> int:
        """Return the number of tokens with any of the given dependency labels.

        Args:
            *relations: Dependency labels.
        """
        return sum(self.counts[relation] for relation in relations)


def _features(text: ParsedText, units: Units) -> dict[str, float]:
    """Return the value of each of ``FEATURES``. All values are finite, and 0 for an empty text."""
    features: dict[str, float] = {**units._asdict(), **units.ratios()}
    for family in (_dependency, _entities, _roles, _lexical, _question, _markers, _tree):
        features |= family(text)
    return features | _interactions(text, features)


def _dependency(text: ParsedText) -> dict[str, float]:
    """Return dependency distances, counts of relations, and the imbalance between left and right descendants."""
    steps = [token - head for token, head in enumerate(text.heads) if head != token and text.is_word[token]]
    distances = [abs(step) for step in steps]
    mean = _mean(distances)
    imbalance = [abs(left - right) / max(1, left + right) for left, right in zip(text.left, text.right, strict=True)]
    root = next((token for token, head in enumerate(text.heads) if token == head), 0)
    num_long = sum(distance > LONG_DEPENDENCY for distance in distances)
    return {
        "max_dependency_distance": max(distances, default=0),
        "mean_dependency_distance": mean,
        "std_dependency_distance": math.sqrt(_mean([(distance - mean) ** 2 for distance in distances])),
        "num_long_dependencies": num_long,
        "num_very_long_dependencies": sum(distance > VERY_LONG for distance in distances),
        "share_long_dependencies": num_long / max(1, len(distances)),
        "share_head_final": sum(step < 0 for step in steps) / max(1, len(steps)),
        "root_position": root / max(1, len(text) - 1),  # position of the first root, from 0 to 1
        "num_relation_types": len(text.counts),
        **{name: text.count(*labels) for name, labels in DEPENDENCY_COUNTS.items()},
        "mean_imbalance": _mean([imbalance[token] for token, children in enumerate(text.num_children) if children]),
        "root_imbalance": imbalance[root] if imbalance else 0.0,
    }


def _tree(text: ParsedText) -> dict[str, float]:
    """Return the depth, width and branching of the dependency trees."""
    inner = [children for children in text.num_children if children]
    num_leaves = len(text) - len(inner)
    max_depth, max_width = max(text.depth, default=0), max(text.level_widths, default=0)
    return {
        "max_depth": max_depth,
        "mean_depth": _mean(text.depth),
        "max_width": max_width,  # largest number of tokens on a level of a sentence's tree
        "num_leaves": num_leaves,
        "leaf_ratio": num_leaves / max(1, len(inner)),
        "mean_branching": _mean(inner),
        "max_branching": max(inner, default=0),
        "depth_width_ratio": max_depth / max(1, max_width),
    }


def _mean(numbers: list[int] | list[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


def _entities(text: ParsedText) -> dict[str, float]:
    """Return the number of named entities by type, and their share of the text."""
    labels = [label for label, _, _ in text.entities]
    size = sum(num_tokens for _, num_tokens, _ in text.entities)
    return {
        "num_entities": len(labels),
        **{name: sum(label in kinds for label in labels) for name, kinds in ENTITY_COUNTS.items()},
        "num_entity_kinds": len(set(labels)),
        "entity_density": size / max(1, len(text)),  # share of the tokens that belong to an entity
        "mean_entity_size": size / max(1, len(labels)),
    }


def _roles(text: ParsedText) -> dict[str, float]:
    """Return the number of semantic roles, approximated by dependency labels."""
    adjuncts = Counter(label for label, _, root in text.entities if text.relations[root] in ADJUNCT)
    roles = {
        "num_agents": text.count("nsubj", "agent"),
        "num_patients": text.count("dobj", "nsubjpass"),
        "num_recipients": text.count("dative", "iobj"),
        "num_attributes": text.count("attr", "acomp", "oprd"),  # predicate nouns and adjectives
        "num_temporal": sum(adjuncts[kind] for kind in ENTITY_COUNTS["num_dates"]),
        "num_locative": sum(adjuncts[kind] for kind in ENTITY_COUNTS["num_locations"]),
    }
    return {**roles, "num_role_types": sum(count > 0 for count in roles.values())}


def _lexical(text: ParsedText) -> dict[str, float]:
    """Return lexical diversity, word lengths, and shares of the parts of speech."""
    words = [word for word, counted in zip(text.words, text.is_word, strict=True) if counted]
    kinds = Counter(kind for kind, counted in zip(text.pos, text.is_word, strict=True) if counted)
    frequency, total = Counter(words), max(1, len(words))
    content = sum(kinds[kind] for kind in CONTENT_TAGS)
    function = len(words) - content
    return {
        "type_token_ratio": len(frequency) / total,
        "root_type_token_ratio": len(frequency) / total**0.5,  # Guiraud's index
        "mtld": mtld(words),
        "share_hapaxes": sum(count == 1 for count in frequency.values()) / total,
        "mean_word_length": sum(map(len, words)) / total,
        "share_long_words": sum(len(word) >= 7 for word in words) / total,
        "num_content_words": content,
        "num_function_words": function,
        "content_function_ratio": content / max(1, function),
        "information_density": content / max(1, len(text)),  # per token, punctuation included
        "propositional_density": sum(kinds[kind] for kind in PROPOSITIONAL) / total,
        **{name: kinds[kind] / total for name, kind in zip(SHARE_FEATURES, SHARE_TAGS, strict=True)},
        "num_numbers": kinds["NUM"],
        "num_capitalized": sum(shape[:1].isupper() for shape in text.shapes[1:]),  # without the first token
    }


def _question(text: ParsedText) -> dict[str, float]:
    """Return whether the text is a question, by its question mark or word order, and its first question word."""
    first = next((i for i, tag in enumerate(text.tags) if tag[:1] == "W" and text.words[i] in _ASKED_BY), len(text))
    is_question = "?" in text.words or (len(text) > 1 and (first == 0 or _inverted(text)))
    word = _ASKED_BY.get(text.words[first], "") if is_question and first < len(text) else ""
    after = "".join(text.tags[first + 1 : first + 2])
    return {
        "is_question": is_question,
        **{f"asks_{name}": word == name for name in QUESTION_WORDS},
        "asks_how_many": word == "how" and after in {"JJ", "RB"},  # "how" before "many", "much" or another adjective
        "asks_yes_no": is_question and not word,
        "num_question_words": sum(tag[:1] == "W" for tag in text.tags),
    }


def _markers(text: ParsedText) -> dict[str, float]:
    """Return the number of words and punctuation marks that indicate complexity."""
    tags = Counter(text.tags)
    joining = sum(
        relation in {"cc", "mark"} or (relation == "advmod" and word in CONNECTIVES)
        for relation, word in zip(text.relations, text.words, strict=True)
    )
    return {
        "num_coordinators": tags["CC"],
        "num_subordinators": text.count("mark"),
        "num_negations": text.count("neg"),
        "num_passives": text.count("auxpass"),
        "num_modals": tags["MD"],
        "num_comparatives": tags["JJR"] + tags["RBR"],
        "num_superlatives": tags["JJS"] + tags["RBS"],
        "num_connectors": joining,  # coordinating and subordinating conjunctions, and conjunctive adverbs
        "num_commas": tags[","] + tags[":"],
        "num_quotes_and_brackets": tags["``"] + tags["''"] + tags["-LRB-"] + tags["-RRB-"],
    }


def mtld(words: list[str]) -> float:
    """Return the measure of textual lexical diversity (MTLD).

    Source: McCarthy and Jarvis, "MTLD, vocd-D, and HD-D: A validation study of sophisticated approaches to lexical
    diversity assessment", 2010. *Differences from the paper:* if no word is repeated, MTLD is undefined and the number
    of words is returned.

    Args:
        words: Words in lower case.

    Example:
        >>> round(mtld("the cat saw the dog and the dog saw the cat".split()), 2)  # (11 / 1 + 11 / 1.893) / 2
        8.41
        >>> mtld("one two three".split())
        3.0
    """
    counts = [_num_segments(words), _num_segments(words[::-1])]
    return sum(len(words) / count if count else len(words) for count in counts) / 2


def _num_segments(words: list[str]) -> float:
    """Return the number of segments of a text, with a fraction for the incomplete last segment."""
    ended, seen, size = 0.0, set[str](), 0
    for word in words:
        seen.add(word)
        size += 1
        if len(seen) / size < MTLD_RATIO:
            ended, seen, size = ended + 1, set(), 0
    return ended + ((1 - len(seen) / size) / (1 - MTLD_RATIO) if size else 0.0)


def _inverted(text: ParsedText) -> bool:
    """Return whether the text starts with a finite verb that precedes its subject."""
    if text.tags[0] not in FINITE:
        return False
    verb = text.heads[0] if text.relations[0] in {"aux", "auxpass"} else 0
    pairs = zip(text.relations, text.heads, strict=True)
    return any(relation.startswith("nsubj") and head == verb for relation, head in pairs)


def _interactions(text: ParsedText, features: Mapping[str, float]) -> dict[str, float]:
    """Return features that combine two others. Ratios per clause are per text if there is no clause."""
    tokens, clauses = max(1, len(text)), max(1.0, features["C"])
    nouns = sum(kind in {"NOUN", "PROPN"} for kind in text.pos)
    return {
        "tokens_per_clause": len(text) / clauses,
        "entities_per_token": features["num_entities"] / tokens,
        "entities_per_clause": features["num_entities"] / clauses,
        "depth_per_token": features["max_depth"] / tokens,
        "connectors_per_clause": features["num_connectors"] / clauses,
        "modifiers_per_noun": features["num_modifiers"] / max(1, nouns),
        "prepositions_per_token": features["num_prepositions"] / tokens,
        "depth_times_clauses": features["max_depth"] * features["C"],
        "depth_times_entities": features["max_depth"] * features["num_entities"],
        "distance_times_dependent_clauses": features["mean_dependency_distance"] * features["DC"],
        "entities_times_dependent_clauses": features["num_entities"] * features["DC"],
        "nominals_times_entities": features["CN"] * features["num_entities"],
    }


#: Names of the features, in order.
FEATURES = tuple(_features(ParsedText([], []), Units(*[0] * len(Units._fields))))


class SyntaxFeatures:
    """Extractor of the syntax features ``FEATURES``. Empty texts and texts in other languages are accepted.

    Args:
        syntax: Source of the syntactic units: ``stanza`` (Stanza's constituency trees) or ``dependency`` (estimates
            from spaCy's dependency parse).
        stanza_folder: Folder of Stanza's models, as in :class:`StanzaParser`. Only allowed with ``stanza``. If None,
            Stanza's default folder is used.
        cache: Folder where features are cached, with one file per fingerprint. If None, features are not cached.
        device: Device of Stanza's parser. If None, the CPU. spaCy's parser always runs on the CPU.

    Raises:
        ValueError: If ``syntax`` is unknown, ``stanza_folder`` is used without ``stanza``, or Stanza is not installed.
    """

    def __init__(
        self,
        syntax: str,
        *,
        stanza_folder: str | Path | None = None,
        cache: str | Path | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        check_choice(("stanza", "dependency"), syntax=syntax)
        if syntax == "dependency" and stanza_folder is not None:
            raise UserError(f"`stanza_folder` is only allowed with syntax=stanza, got {stanza_folder} with {syntax}")
        self.name = syntax
        self._stanza = StanzaParser(stanza_folder, device=device) if syntax == "stanza" else None
        self._cache = cache

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the parser that counts syntactic units, of spaCy and its pipeline, and of the features."""
        units = f"dependency rules {HEAD_RULES_VERSION}" if self._stanza is None else self._stanza.fingerprint
        return repr(("syntax", FEATURES_VERSION, units, *spacy_versions(ENGLISH), FEATURES))

    def extract(self, texts: Sequence[str]) -> Tensor:
        """Compute the features of texts, or read them from the cache. Runs of whitespace are replaced by a space.

        Args:
            texts: ``n`` texts.

        Returns:
            Features ``[n, F]`` float32 on the CPU, all finite. A text without words has only zeros.

        Raises:
            ValueError: If the spaCy pipeline or Stanza's model is not installed.
        """
        name = f"{self.name}-{short_hash(self.fingerprint)}.sqlite"
        store = BlobStore(None if self._cache is None else Path(self._cache) / name, "features")
        keys = [hash_text(text) for text in texts]
        fill(store, keys, texts, self._rows, shard_size=SHARD_TEXTS, length=len)
        return store.rows(keys, len(FEATURES), ROW_DTYPE)

    def _rows(self, texts: Sequence[str]) -> list[bytes]:
        cleaned = [" ".join(text.encode("utf-8", "replace").decode().split()) for text in texts]
        documents = list(load_spacy(ENGLISH, components=PARSER_COMPONENTS).pipe(cleaned, batch_size=BATCH_TEXTS))
        stanza = self._stanza
        units = map(approximate_units, documents) if stanza is None else map(count_units, stanza.parse(documents))
        parsed = (ParsedText(document, document.ents) for document in documents)
        features = (_features(*pair).values() for pair in zip(parsed, units, strict=True))
        return [np.array([*row], dtype=ROW_DTYPE).tobytes() for row in features]


class StanzaParser:
    """Stanza's constituency parser for English. The model is loaded on first use.

    Sentences, tokens and Penn tags come from spaCy (``constituency_pretagged`` in Stanza), so units and all other
    features refer to the same tokens.

    Args:
        folder: Folder written by ``stanza.download``; or a folder with one ``*constituency*.pt`` file, another ``.pt``
            file with word vectors, and Stanza's ``resources.json``. If None, Stanza's default folder is used
            (``STANZA_RESOURCES_DIR`` or ``~/stanza_resources``).
        device: Device of the parser. If None, the CPU.

    Raises:
        ValueError: If the files are missing from ``folder``, or Stanza is not installed.
    """

    def __init__(self, folder: str | Path | None = None, *, device: str | torch.device | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self.device = torch.device(device or "cpu")
        self._files: dict[str, str] = {}
        if self.folder is not None and not (self.folder / "en").is_dir():
            models = sorted(self.folder.glob("*constituency*.pt"))
            vectors = sorted(set(self.folder.glob("*.pt")) - set(models))
            if len(models) != 1 or len(vectors) != 1 or not (self.folder / "resources.json").is_file():
                raise UserError(
                    f"`folder` must contain en/ as written by Stanza, or one *constituency*.pt file, another .pt file "
                    f"with word vectors and resources.json ({RESOURCES}), got {folder} with "
                    f"{sorted(path.name for path in self.folder.glob('*'))[:9]}"
                )
            self._files = {"constituency_model_path": str(models[0]), "constituency_pretrain_path": str(vectors[0])}
        require_extra("syntax", "`syntax=stanza`, unlike syntax=dependency,")

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of Stanza's version and the model files."""
        config = self._files or self._pipeline.config
        named = [key for key in sorted(config) if key.startswith("constituency_") and key.endswith("_path")]
        version = importlib.metadata.version("stanza")
        return repr(("stanza", version, hash_files([Path(config[key]) for key in named])))

    def parse(self, documents: Sequence[Any]) -> list[list[Tree]]:
        """Parse documents. Sentences of different documents share batches.

        Args:
            documents: Documents parsed by spaCy.

        Returns:
            Trees of each document, one for each sentence that has tokens.

        Raises:
            ValueError: If Stanza's model is missing or cannot be loaded.
        """
        sentences = []  # pairs of a document index and the tokens of a sentence
        for index, document in enumerate(documents):
            for sentence in document.sents:
                words = enumerate((token for token in sentence if not token.is_space), 1)
                tokens = [{"id": i, "text": token.text, "upos": token.tag_, "xpos": token.tag_} for i, token in words]
                sentences += [(index, tokens)] if tokens else []
        trees: list[list[Tree]] = [[] for _ in documents]
        if sentences:
            pipeline = self._pipeline
            from stanza.models.common.doc import Document

            parsed = pipeline(Document([tokens for _, tokens in sentences]))
            for (index, _), sentence in zip(sentences, parsed.sentences, strict=True):
                trees[index].append(read_tree(str(sentence.constituency)))
        return trees

    @cached_property
    def _pipeline(self) -> Any:
        import stanza

        folder = {} if self.folder is None else {"dir": str(self.folder)}
        try:
            return stanza.Pipeline(
                "en",
                processors="tokenize,constituency",
                tokenize_pretokenized=True,
                constituency_pretagged=True,
                constituency_batch_size=BATCH_SENTENCES,
                download_method=None,
                device=str(self.device),
                verbose=False,
                **folder,
                **self._files,
            )
        except (OSError, ValueError, KeyError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            location = "Stanza's default folder" if self.folder is None else str(self.folder)
            raise UserError(
                f"`syntax=stanza` needs Stanza's English constituency model in {location}; download it with "
                f"stanza.download('en') or choose syntax=dependency ({type(error).__name__}: {error})"
            ) from error
