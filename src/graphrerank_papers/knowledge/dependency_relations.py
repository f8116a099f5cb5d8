"""Statements of a parsed text: subject, relation and object, from the dependency tree."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphrerank_papers.knowledge.noun_phrases import Mention, is_of

MAX_SHARED = 4  # verbs between an omitted subject and the verb that has it
MAX_PASSED = 2  # nouns before a mention: "a number of members of ..."

_SUBJECTS = ("nsubj", "nsubjpass")
_RELATIVE = frozenset({"WDT", "WP"})
_PERSONAL = frozenset({"he", "she", "it", "they"})
_PLACES = frozenset({"FAC", "GPE", "LOC"})
_GROUP = frozenset({"aux", "auxpass", "neg", "prt"})


# token of the subject (None for a pronoun that refers to the title), relation, token of the object, one of its sentence
Statement = tuple[int | None, str, int, int]


@dataclass(frozen=True)
class _End:
    """One end of a statement; ``words`` precede it, as "king" precedes "Metz"."""

    token: int | None
    words: str = ""


def find_statements(document: Any, mentions: Mapping[int, Mention], *, pronoun_sentences: int) -> Iterator[Statement]:
    """Yield the statements between two mentions of a parsed text, in its order: (subject, relation, object, token).

    ``mentions`` are by the index of their head token. In the first ``pronoun_sentences`` a personal pronoun as a
    subject refers to the title. A relation is the words between the two, in lower case.
    """
    starts = [sentence.start for sentence in document.sents]
    reader = _Reader(mentions, starts[pronoun_sentences] if pronoun_sentences < len(starts) else len(document))
    for token in document:
        if token.pos_ in ("VERB", "AUX"):
            yield from reader.verb(token)
        elif token.pos_ in ("NOUN", "PROPN"):
            yield from reader.noun(token)


@dataclass(frozen=True)
class _Reader:
    mentions: Mapping[int, Mention]
    pronouns_until: int

    def verb(self, verb: Any) -> Iterator[Statement]:
        """Join the subjects of a verb with its objects, direct and prepositional."""
        objects = list(self._objects(verb))
        if not objects:
            return
        words = verb_words(verb)
        for subject in self._subjects(verb, MAX_SHARED):
            for token, preposition in objects:
                for end in self._ends(token, MAX_PASSED):
                    yield _statement(subject, _join(words, preposition), end, verb)

    def noun(self, noun: Any) -> Iterator[Statement]:
        """Join a noun with its appositions, its possessor, names within it, and its prepositional objects."""
        for subject in self._ends(noun, MAX_PASSED, conjuncts=False):
            for child in noun.children:
                if child.dep_ == "appos":
                    for end in self._ends(child, MAX_PASSED):
                        if "DATE" not in self._labels(subject, end):
                            is_in = self._labels(subject, end) <= _PLACES
                            yield _statement(subject, "in" if is_in else "is", end, noun)
                elif child.dep_ == "prep" and not (subject.words and is_of(child)):
                    for target, preposition in _prepositional(child, ""):
                        for end in self._ends(target, MAX_PASSED):
                            yield _statement(subject, preposition, end, noun)
                elif child.dep_ in ("poss", "compound", "nmod") and not subject.words and self._is_within(child, noun):
                    yield _statement(subject, "of", _End(child.i), noun)

    def _is_within(self, child: Any, noun: Any) -> bool:
        return child.i in self.mentions and self.mentions[child.i].name in self.mentions[noun.i].name

    def _labels(self, *ends: _End) -> set[str]:
        return {self.mentions[end.token].label for end in ends if end.token is not None}

    def _subjects(self, verb: Any, depth: int) -> Iterator[_End]:
        """Find the subjects of a verb, its own or those that it shares with the verb or noun that it depends on."""
        subjects = [child for child in verb.children if child.dep_ in (*_SUBJECTS, "csubj", "csubjpass", "expl")]
        if subjects:
            for subject in subjects:
                if subject.dep_ in _SUBJECTS:
                    yield from self._subject(verb, subject)
        elif depth == 0:
            return
        elif verb.dep_ in ("acl", "relcl") and not (verb.dep_ == "relcl" and _has_relative_object(verb)):
            if verb.dep_ == "acl" and verb.tag_ in ("VBN", "VBG", "VBD"):
                yield from self._ends(verb.head, MAX_PASSED, conjuncts=False)
        elif verb.dep_ == "xcomp" and (controller := _object_of(verb.head)) is not None:
            yield from self._ends(controller, MAX_PASSED)
        elif verb.dep_ in ("conj", "xcomp", "advcl") and verb.head.pos_ in ("VERB", "AUX"):
            yield from self._subjects(verb.head, depth - 1)

    def _subject(self, verb: Any, subject: Any) -> Iterator[_End]:
        if subject.tag_ in _RELATIVE:
            noun = next((token for token in (verb, *verb.ancestors) if token.dep_ == "relcl"), None)
            if noun is not None:
                yield from self._ends(noun.head, MAX_PASSED, conjuncts=False)
        elif subject.lower_ in _PERSONAL:
            if subject.i < self.pronouns_until:
                yield _End(None)
        else:
            yield from self._ends(subject, MAX_PASSED)

    def _objects(self, verb: Any) -> Iterator[tuple[Any, str]]:
        """Find the objects of a verb with the words before each; "plays a role" leads to the object of "role"."""
        passed = ""
        for child in verb.children:
            if child.dep_ in ("dobj", "attr", "oprd") and child.tag_ not in _RELATIVE:
                yield child, ""
                if child.pos_ == "NOUN" and not any(True for _ in self._ends(child, MAX_PASSED, conjuncts=False)):
                    passed = child.lower_
                    for preposition in child.children:
                        if preposition.dep_ == "prep":
                            yield from _prepositional(preposition, passed)
            elif child.dep_ in ("prep", "agent", "dative"):
                yield from _prepositional(child, passed)
            elif child.dep_ == "acomp":
                for preposition in child.children:
                    if preposition.dep_ == "prep":
                        yield from _prepositional(preposition, child.lower_)

    def _ends(self, token: Any, depth: int, *, conjuncts: bool = True) -> Iterator[_End]:
        """Find the mentions that a noun stands for: itself, Metz for "king of Metz", and the rest of its list."""
        if token.i in self.mentions:
            yield _End(token.i)
        elif token.pos_ == "NOUN" and depth:
            for child in token.children:
                targets = [target for target, _ in _prepositional(child, "")] if is_of(child) else []
                if child.dep_ == "poss" and child.pos_ == "PROPN":
                    targets = [child]
                for target in targets:
                    for end in self._ends(target, depth - 1):
                        yield _End(end.token, " of ".join(filter(None, (token.lower_, end.words))))
        if conjuncts:
            for other in token.conjuncts:
                if other.i > token.i and other.pos_ in ("NOUN", "PROPN"):
                    yield from self._ends(other, depth, conjuncts=False)


def verb_words(verb: Any) -> str:
    """Return a verb with its auxiliaries, negation and particle, and the verb that it completes: "was found to be".

    A verb that shares the auxiliaries of an earlier verb ("was isolated and cloned") is returned alone.
    """
    group = [child for child in verb.children if child.dep_ in _GROUP]
    words = " ".join(token.lower_ for token in sorted([*group, verb], key=lambda token: token.i))
    if verb.dep_ == "xcomp" and verb.head.pos_ in ("VERB", "AUX") and _object_of(verb.head) is None:
        return f"{verb_words(verb.head)} {words}"
    return words


def _statement(subject: _End, relation: str, end: _End, token: Any) -> Statement:
    assert end.token is not None
    return subject.token, _join(subject.words, relation, f"{end.words} of" if end.words else ""), end.token, token.i


def _join(*parts: str) -> str:
    return " ".join(filter(None, parts))


def _prepositional(preposition: Any, words: str) -> Iterator[tuple[Any, str]]:
    """Find the objects of a preposition, each with the words before it."""
    words = _join(words, preposition.lower_)
    for child in preposition.children:
        if child.dep_ == "pobj" and child.tag_ not in _RELATIVE:
            yield child, words
        elif child.dep_ == "prep":
            yield from _prepositional(child, words)


def _object_of(verb: Any) -> Any | None:
    return next((child for child in verb.children if child.dep_ == "dobj"), None)


def _has_relative_object(verb: Any) -> bool:
    return any(child.dep_ == "dobj" and child.tag_ in _RELATIVE for child in verb.children)
