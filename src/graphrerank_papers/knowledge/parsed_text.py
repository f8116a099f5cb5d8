"""Find the mentions in a parsed text (names and specific noun phrases), and the statements that relate them."""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

#: Entity types that can be mentions.
NAMES = ("DATE", "EVENT", "FAC", "GPE", "LANGUAGE", "LAW", "LOC", "NORP", "ORG", "PERSON", "PRODUCT", "WORK_OF_ART")
#: Maximum number of words of a mention. Longer phrases are more often parser errors than names.
MAX_PHRASE_LENGTH = 8

_AMOUNTS = frozenset({"CARDINAL", "DATE", "MONEY", "ORDINAL", "PERCENT", "QUANTITY", "TIME"})
#: Entity types, such as "American" and "1974", that belong to the phrase that they modify.
_MODIFIERS = frozenset({"DATE", "LANGUAGE", "NORP"})
#: Disambiguation at the end of a title, such as "(1976 film)".
BRACKETED_END = re.compile(r"\s*\([^()]*\)$")
_BRACKET = re.compile(r"[()\[\]{}]")
_LOWER_WORD = re.compile(r"\b(?!the\b|of\b|th\b|st\b)[a-z]{2,}\b")
_QUOTE = re.compile(r"[\"“”‘]|’(?=\s|$)")  # noqa: RUF001
_YEAR = re.compile(r"\b1\d{3}\b|\b20\d{2}\b")
_LEADING = frozenset({"DET", "PRON", "PUNCT", "NUM", "SYM", "CCONJ", "ADV", "ADP", "PART", "SPACE", "X"})
_TRAILING = frozenset({"PUNCT", "SPACE", "DET", "CCONJ", "ADP", "PART", "SYM"})

#: Maximum number of verbs between a verb without a subject and the verb whose subject it shares.
MAX_SHARED = 4
#: Maximum number of nouns that lead to a mention, as in "a number of members of ...".
MAX_PASSED = 2

_SUBJECTS = ("nsubj", "nsubjpass")
_RELATIVE = frozenset({"WDT", "WP"})
_PERSONAL = frozenset({"he", "she", "it", "they"})
_PLACES = frozenset({"FAC", "GPE", "LOC"})
_GROUP = frozenset({"aux", "auxpass", "neg", "prt"})


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


# Lists of English words that do not make a name
#: Determiners of a noun that refers to something mentioned before, or not named at all.
ANAPHORIC = _words("any each every her his its my no our such that their these this those what which whose your")
#: Adjectives and adverbs that do not make a noun phrase specific.
WEAK = _words("""
    additional available best better certain clear common consistent corresponding current different distinct due
    entire existing few final first following further general given good great greater high higher important
    increased independent individual initial interesting key known large larger last late later latter least less
    like likely little low lower main major many more most much multiple necessary new next novel numerous
    observed old only other overall own particular possible potential present previous previously prior recent
    recently related relative relevant remaining respective same second several significant significantly similar
    similarly single small so-called special specific strong subsequent such sufficient third total typical unique
    unknown useful usual various very whole wide widely
""")
#: Generic nouns that stay generic after an adjective, as in "an important role".
VAGUE = _words("""
    ability advance advantage aim amount analysis approach aspect assessment assumption attempt attention basis
    change characteristic circumstance comparison conclusion consequence contribution criterion data datum
    decrease detail difference difficulty direction discussion effect estimate evidence example experience
    explanation extent fact factor fashion feature finding focus form goal idea implication importance
    improvement increase indication information insight instance interest issue item kind knowledge level
    limitation lot magnitude majority manner matter mean meaning method minority need note notion number
    objective observation opportunity option outcome part phenomenon possibility potential presence principle
    problem procedure process property proportion purpose quantity question range rate reason reduction report
    requirement resource respect result review role scope sense series set shape side significance similarity
    situation size step strategy study subset success suggestion sum summary support task technique tendency
    thing time type understanding use utility value variation variety view way
""")
#: Nouns that are generic without a modifier.
GENERIC = (VAGUE - {"assumption"}) | _words("""
    absence access account act action activity addition age answer application area argument article author
    average band base baseline beginning behavior behaviour benefit body book brother capability capacity case
    category cause cell challenge chance character child choice city class club combination component concept
    concern condition context contrast control copy correlation country couple course date daughter day death
    decade decision definition degree demand description design development dimension discovery disease
    distinction distribution drug duration effort element end episode era evaluation event exception existence
    experiment expression failure family father field figure film following format formation frequency function
    future game gene generation ground group growth half hand head help history home host hour human husband
    hypothesis identification impact incidence inclusion individual influence interaction interval intervention
    introduction investigation journal lack layer length life limit line link list literature loss man measure
    measurement mechanism member minute mode model modification molecule month mother movement multitude name
    nature object occasion occurrence one onset operation order organism organization origin output overview
    paper paradigm parameter parent participant participation passage past path patient pattern people percent
    percentage performance period person perspective phase place plan play player point policy population
    position power practice present pressure product production program progress project proposal prospect
    protein quality ratio recommendation record reference regard region relation relationship release
    reliability research response responsibility rest right rise risk rule sample scale scenario scene score
    season second section selection sequence setting share show sister site solution son song sort source space
    species specificity stage standard start state statement status story strength structure subject survey
    system target team technology term test theme theory therapy thought title today tool top topic total town
    treatment trend trial turn unit user variable variant version vitro vivo week widow wife woman word work
    world year
""")
#: Months and days of the week.
MONTHS = _words("""
    january february march april may june july august september october november december monday tuesday wednesday
    thursday friday saturday sunday
""")
#: Headings of structured abstracts, which the parser often attaches to the next sentence.
HEADINGS = _words("""
    AIM AIMS BACKGROUND CONCLUSION CONCLUSIONS CONTEXT DESIGN DISCUSSION FINDINGS INTERPRETATION INTRODUCTION
    MATERIALS MEASUREMENTS METHODS OBJECTIVE OBJECTIVES PARTICIPANTS PATIENTS PURPOSE RATIONALE RESULTS SETTING
    SIGNIFICANCE SUMMARY
""")


class Mention(NamedTuple):
    """Name or noun phrase that a text mentions.

    Attributes:
        name: Text of the phrase, on one line.
        label: Entity type of spaCy. Empty for other noun phrases.
    """

    name: str
    label: str


def find_phrases(document: Any, *, title: str = "") -> dict[int, Mention]:
    """Find the names and noun phrases that a text mentions.

    - If the head of a noun phrase belongs to a named entity, the mention is that entity. A description before a name
      refers to the named person, as in "film director Frank Borzage".
    - A name within a longer phrase is also a mention, unless it is a nationality or a year: "Batman films" mentions
      "Batman" and "Batman films".
    - Names joined by "of" are one mention. "Adalbert II of Tuscany" is a mention, and so is "Tuscany".
    - A common noun without a modifier before "of", or a generic noun after its possessor, is not a mention: "king of
      Metz" and "Metz's country" mention only "Metz".
    - Leading determiners, numbers and words like "several" are removed. A date must have a year.

    Args:
        document: Document parsed by spaCy.
        title: Title of the text. Every occurrence of the title is a mention, with or without the brackets at its end.

    Returns:
        Mentions by the index of their head token, ascending.
    """
    mentions: dict[int, Mention] = {}
    entity_of = {token.i: entity for entity in document.ents for token in entity}
    for entity in document.ents:
        if entity.label_ in NAMES and _stands_alone(entity):
            _add(mentions, entity.root, _trim(list(entity)), entity.label_)
    for chunk in document.noun_chunks:
        root = chunk.root
        entity = entity_of.get(root.i)
        if entity is not None and (entity.label_ in _AMOUNTS or (root != entity.root and root.dep_ != "pobj")):
            continue  # skip amounts and parts of names
        if root.i not in mentions and not _is_empty(chunk):
            _add(mentions, root, _trim(list(chunk)), "")
    for token in sorted(mentions):
        if token in mentions:
            _join(document, document[token], mentions)
    for token in sorted(mentions):
        named = document[token]
        is_called = named.dep_ == "appos" and named.head.pos_ == "NOUN" and named.left_edge.i == named.head.i + 1
        if is_called and mentions[token].label and (mentions[token].label == "PERSON" or named.head.i not in mentions):
            mentions[named.head.i] = mentions[token]
    if title:
        _add_title(document, title, mentions)
    return dict(sorted(mentions.items()))


def is_of(preposition: Any) -> bool:
    """Return whether a token is the preposition "of".

    Args:
        preposition: Token of spaCy.
    """
    return preposition.dep_ == "prep" and preposition.lower_ == "of"


def _stands_alone(entity: Any) -> bool:
    root = entity.root
    if entity.label_ == "DATE" and (_YEAR.search(entity.text) is None or _LOWER_WORD.search(entity.text)):
        return False
    if root.dep_ not in ("amod", "compound", "nmod", "nummod", "poss") or root.head in entity:
        return root.lower_ not in MONTHS or entity.label_ == "DATE"
    if len(entity) == 1 and sum(char.isupper() for char in entity.text) != 1:
        return root.dep_ == "poss"  # "RNA" of "RNA transcript"
    return entity.label_ not in _MODIFIERS


def _is_empty(chunk: Any) -> bool:
    """Return whether a noun phrase is not a mention, such as a pronoun, a number, "this gene" or "king (of Metz)"."""
    root = chunk.root
    if root.pos_ not in ("NOUN", "PROPN") or root.is_stop or root.lower_ in MONTHS or root.text in HEADINGS:
        return True
    if root.pos_ == "PROPN":
        return False
    words = [token for token in _trim(list(chunk)) if token.dep_ != "case"]
    others = [token for token in words if token != root]
    lemma = root.lemma_.lower()
    if any(token.dep_ == "nummod" for token in chunk) and len(root) < 4:
        return True  # "2 kb"
    if any(token.dep_ == "poss" and token.pos_ == "PROPN" for token in others):
        return lemma in GENERIC and lemma != "disease" and all(token.pos_ == "PROPN" for token in others)
    if not others:
        demonstrative = any(token.lower_ in ANAPHORIC for token in chunk if token.i < root.i)
        return demonstrative or lemma in GENERIC or any(is_of(child) for child in root.children)
    return lemma in VAGUE and all(token.pos_ in ("ADJ", "ADV", "VERB", "PUNCT", "NUM") for token in others)


def _trim(tokens: list[Any]) -> list[Any]:
    """Remove tokens that are not part of a name: determiners, numbers, weak adjectives and bracketed text."""
    tokens = list(_without_brackets(tokens))
    while len(tokens) > 1 and (
        (tokens[0].pos_ in _LEADING and not (tokens[0].pos_ in ("NUM", "X", "ADV") and _belongs(tokens)))
        or tokens[0].text in HEADINGS
        or (tokens[0].pos_ != "PROPN" and tokens[0].lower_ in WEAK and tokens[0].head.dep_ not in ("amod", "compound"))
    ):
        tokens = tokens[1:]
    while len(tokens) > 1 and tokens[-1].pos_ in _TRAILING:
        tokens = tokens[:-1]
    return tokens


def _belongs(tokens: list[Any]) -> bool:
    """Return whether a leading number or adverb belongs to a name, as in "20th Century Fox" and "5-HT receptor"."""
    first, second = tokens[0], tokens[1]
    if first.ent_type_ in ("ORG", "WORK_OF_ART", "FAC", "EVENT", "PRODUCT", "LAW", "DATE"):
        return second.text[:1].isupper() or first.ent_type_ == "DATE"
    return second.text == "-" or (first.pos_ == "ADV" and second.dep_ == "amod" and first.head == second)


def _without_brackets(tokens: list[Any]) -> Iterator[Any]:
    depth = 0
    for token in tokens:
        if token.text in "([{":
            depth += 1
        elif token.text in ")]}":
            depth -= 1
        elif depth == 0:
            yield token


def _add(mentions: dict[int, Mention], root: Any, tokens: list[Any], label: str) -> None:
    if not 0 < len(tokens) <= MAX_PHRASE_LENGTH or (
        len(tokens) == 1 and (tokens[0].is_stop or tokens[0].pos_ == "DET")
    ):
        return
    name = "".join(
        token.text_with_ws if after.i == token.i + 1 else f"{token.text} "
        for token, after in zip(tokens, [*tokens[1:], tokens[-1]], strict=True)
    )
    name = " ".join(_QUOTE.sub(" ", name).split()).strip(" '*.,;:%-–")  # noqa: RUF001
    is_informative = len(name) > 1 and any(map(str.isalpha, name))
    if _BRACKET.search(name) is None and (is_informative or label == "DATE"):
        mentions[root.i] = Mention(name, label)


def _add_title(document: Any, title: str, mentions: dict[int, Mention]) -> None:
    """Replace mentions within the title, such as "Planet" and "Apes" in a film title, by a mention of the title."""
    name = BRACKETED_END.sub("", title)
    for match in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", document.text):
        span = document.char_span(*match.span())
        if span is not None:
            inside = [mentions.pop(token.i) for token in span if token.i in mentions]
            label = next((mention.label for mention in inside if mention.name == name), "")
            mentions[span.root.i] = Mention(title, label)


def _join(document: Any, token: Any, mentions: dict[int, Mention]) -> None:
    """Extend a name by "of" and another name, or by "the" and an epithet, as in "Boso the Elder"."""
    name, link = mentions[token.i], token.i + 1
    if token.pos_ != "PROPN" or link + 1 >= len(document) or not name.name.endswith(token.text):
        return
    word = document[link].lower_
    for child in document[link].children if word == "of" else token.children:
        other = mentions.get(child.i)
        if other is None or not other.name[0].isupper() or child.left_edge.i not in (link, link + 1):
            continue
        is_name = child.dep_ == "pobj" and child.pos_ == "PROPN" if word == "of" else child.dep_ == "appos"
        if word in ("of", "the") and is_name and len(name.name.split()) + len(other.name.split()) < MAX_PHRASE_LENGTH:
            mentions[token.i] = Mention(f"{name.name} {word} {other.name}", name.label)
            if word == "the":
                del mentions[child.i]
            return


#: Head token of the subject, relation, head token of the object, and a token of the sentence.
Statement = tuple[int, str, int, int]


class _End(NamedTuple):
    """Subject or object of a statement. ``words`` lead to the mention, as "king" leads to "Metz" in "king of Metz"."""

    token: int
    words: str = ""


def find_statements(document: Any, mentions: Mapping[int, Mention]) -> Iterator[Statement]:
    """Yield the statements that relate two mentions of a text, in text order.

    Args:
        document: Document parsed by spaCy.
        mentions: Mentions by the index of their head token.

    Yields:
        Head token of the subject, relation, head token of the object, and a token of the sentence. The relation
        consists of the words that connect subject and object, in lower case.
    """
    reader = _Reader(mentions)
    for token in document:
        if token.pos_ in ("VERB", "AUX"):
            yield from reader.verb(token)
        elif token.pos_ in ("NOUN", "PROPN"):
            yield from reader.noun(token)


class _Reader(NamedTuple):
    mentions: Mapping[int, Mention]

    def verb(self, verb: Any) -> Iterator[Statement]:
        """Relate the subjects of a verb to its direct and prepositional objects."""
        objects = list(self._objects(verb))
        if not objects:
            return
        words = verb_words(verb)
        for subject in self._subjects(verb, MAX_SHARED):
            for token, preposition in objects:
                for end in self._ends(token, MAX_PASSED):
                    yield _statement(subject, _joined(words, preposition), end, verb)

    def noun(self, noun: Any) -> Iterator[Statement]:
        """Relate a noun to its appositions, its possessor, the names within it, and its prepositional objects."""
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
        return {self.mentions[end.token].label for end in ends}

    def _subjects(self, verb: Any, depth: int) -> Iterator[_End]:
        """Yield the subjects of a verb: its own subjects, or those of the verb or noun on which it depends."""
        if subjects := [c for c in verb.children if c.dep_ in (*_SUBJECTS, "csubj", "csubjpass", "expl")]:
            for subject in subjects:
                if subject.dep_ in _SUBJECTS:
                    yield from self._subject(verb, subject)
        elif depth == 0:
            return
        elif verb.dep_ == "acl":
            if verb.tag_ in ("VBN", "VBG", "VBD"):
                yield from self._ends(verb.head, MAX_PASSED, conjuncts=False)
        elif verb.dep_ == "xcomp" and (controller := _object_of(verb.head)) is not None:
            yield from self._ends(controller, MAX_PASSED)
        elif verb.dep_ in ("conj", "xcomp", "advcl") and verb.head.pos_ in ("VERB", "AUX"):
            yield from self._subjects(verb.head, depth - 1)

    def _subject(self, verb: Any, subject: Any) -> Iterator[_End]:
        if subject.tag_ in _RELATIVE:
            for noun in islice((token for token in (verb, *verb.ancestors) if token.dep_ == "relcl"), 1):
                yield from self._ends(noun.head, MAX_PASSED, conjuncts=False)
        elif subject.lower_ not in _PERSONAL:
            yield from self._ends(subject, MAX_PASSED)

    def _objects(self, verb: Any) -> Iterator[tuple[Any, str]]:
        """Yield the objects of a verb with the words before each. In "plays a role in X", the object is X."""
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
        """Yield the mentions to which a noun refers, such as Metz for "king of Metz", and those coordinated with it."""
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
    """Return a verb with its auxiliaries, negation and particle, and the verb that it complements: "was found to be".

    A verb that shares the auxiliaries of an earlier verb ("was isolated and cloned") is returned without them.

    Args:
        verb: Token of spaCy.
    """
    group = [child for child in verb.children if child.dep_ in _GROUP]
    words = " ".join(token.lower_ for token in sorted([*group, verb], key=lambda token: token.i))
    if verb.dep_ == "xcomp" and verb.head.pos_ in ("VERB", "AUX") and _object_of(verb.head) is None:
        return f"{verb_words(verb.head)} {words}"
    return words


def _statement(subject: _End, relation: str, end: _End, token: Any) -> Statement:
    return subject.token, _joined(subject.words, relation, f"{end.words} of" if end.words else ""), end.token, token.i


def _joined(*parts: str) -> str:
    return " ".join(filter(None, parts))


def _prepositional(preposition: Any, words: str) -> Iterator[tuple[Any, str]]:
    """Yield the objects of a preposition, each with the words before it."""
    words = _joined(words, preposition.lower_)
    for child in preposition.children:
        if child.dep_ == "pobj" and child.tag_ not in _RELATIVE:
            yield child, words
        elif child.dep_ == "prep":
            yield from _prepositional(child, words)


def _object_of(verb: Any) -> Any | None:
    return next((child for child in verb.children if child.dep_ == "dobj"), None)
