"""The nine units of syntactic complexity, estimated from spaCy's dependency parse."""

from collections.abc import Iterable
from typing import Any, NamedTuple

FINITE = frozenset({"MD", "VBZ", "VBP", "VBD"})
MODIFIERS = frozenset({"JJ", "POS", "PP", "S", "VBG"})
NOT_WORDS = frozenset({"HYPH", "NFP", "SYM"})  # hyphens, emoticons, rows of stars and other symbols

# of dependencies
SUBJECTS = frozenset({"nsubj", "nsubjpass", "csubj", "csubjpass", "expl"})
AUXILIARIES = frozenset({"aux", "auxpass"})
WITHIN_CLAUSE = AUXILIARIES | {"amod", "compound", "prep", "case", "nmod", "punct", "intj", "poss", "agent"}
SUBORDINATE = frozenset({"ccomp", "advcl", "relcl", "csubj", "csubjpass", "acl", "pcomp"})
WITHIN_NOMINAL = frozenset({"compound", "nmod", "poss", "appos", "amod", "nummod", "quantmod", "det"})
NOMINAL = frozenset({"NOUN", "PROPN", "PRON"})
PHRASAL = NOMINAL | {"NUM", "ADJ", "ADV", "VERB", "AUX"}
POSTMODIFIERS = frozenset({"prep", "relcl", "acl", "appos"})
ARGUMENTS = frozenset({"nsubj", "nsubjpass", "dobj", "pobj", "attr", "dative"})
FRAGMENTARY = frozenset({"intj", "cc", "neg"})  # before a verbless root, they make it more than a noun phrase
_REPORTING = "add added ask asked asks replied reply said say says tell think thought told write wrote"
REPORTING = frozenset(_REPORTING.split())
RULES = 1  # increment when a rule below changes: cached features are then computed again

RATIOS = {  # Lu's names: MLS, MLT and MLC are mean lengths of sentences, T-units and clauses
    "MLS": "W/S",
    "MLT": "W/T",
    "MLC": "W/C",
    **{name: name for name in ("C/S", "VP/T", "C/T", "DC/C", "DC/T", "T/S", "CT/T", "CP/T", "CP/C", "CN/T", "CN/C")},
}


class Units(NamedTuple):
    """Number of each unit in a text."""

    W: int  # words: tokens other than punctuation and symbols
    S: int  # sentences
    VP: int  # verb phrases that are predicates of a clause, finite or not
    C: int  # clauses: structures with a subject and a finite verb, imperatives, and fragments without any
    T: int  # T-units: a main clause with everything that depends on it
    DC: int  # dependent clauses: finite adverbial, nominal and relative ones
    CT: int  # complex T-units: those with a dependent clause
    CP: int  # coordinate phrases: adjective, adverb, noun and verb phrases with a conjunction
    CN: int  # complex nominals: modified nouns, nominal clauses, gerunds and infinitives as subjects

    def ratios(self) -> dict[str, float]:
        """Return the fourteen ratios of Lu (2010), by the names in ``RATIOS``; 0 for a divisor of 0."""
        counts = self._asdict()
        parts = ((name, *ratio.split("/")) for name, ratio in RATIOS.items())
        return {name: counts[above] / counts[below] if counts[below] else 0.0 for name, above, below in parts}


def total_units(units: Iterable[Units]) -> Units:
    """Add the units of sentences."""
    return Units(*map(sum, zip(Units(0, 0, 0, 0, 0, 0, 0, 0, 0), *units, strict=True)))


def is_word(tag: str) -> bool:
    """Return whether a Penn part of speech is a word's rather than that of punctuation, a trace or a symbol."""
    return tag[:1].isalpha() and tag not in NOT_WORDS


def approximate_units(document: Any) -> Units:
    """Estimate the units of a text from the words that head Lu's phrases (2010, section 3.2); all 0 if empty.

    ``document`` is spaCy's, with the labels of ``en_core_web_sm`` (ClearNLP). The rules were developed on GUM's
    training trees; ``benchmarks/syntax_units.py`` measures them on its test trees.
    """
    sentences = (([token for token in sentence if not token.is_space], sentence.root) for sentence in document.sents)
    return total_units(_of_sentence(tokens, root) for tokens, root in sentences if tokens)


def _of_sentence(tokens: list[Any], root: Any) -> Units:
    clauses = [token for token in tokens if _heads_clause(token)]
    finite = [
        token
        for token in clauses
        if token.tag_ in FINITE or any(c.dep_ in AUXILIARIES and c.tag_ in FINITE for c in token.children)
    ]
    main = [token for token in finite if _is_further_main(token)]
    dependent = [token for token in finite if _is_dependent(token)]
    fragment = not finite and not _is_verbal(root) and any(child.dep_ in FRAGMENTARY for child in root.lefts)
    t_units = bool(root in clauses and not _has_child(root, {"mark"})) + len(main)
    complex_main = [token for token in main if any(token in below.ancestors for below in dependent)]
    return Units(
        W=sum(is_word(token.tag_) for token in tokens),
        S=1,
        VP=len(clauses),
        C=len(finite) + (fragment or (root.tag_ == "VB" and not _has_child(root, SUBJECTS | AUXILIARIES))),
        T=t_units + (fragment and not t_units),
        DC=len(dependent),
        CT=bool(dependent and t_units) + len(complex_main),
        CP=sum(map(_joins_phrases, tokens)),
        CN=sum(map(_heads_complex_noun, tokens)) + sum(map(_heads_nominal_clause, dependent)),
    )


def _has_child(token: Any, dependencies: frozenset[str] | set[str]) -> bool:
    return any(child.dep_ in dependencies for child in token.children)


def _is_verbal(token: Any) -> bool:
    return token.tag_[:2] == "VB" or token.tag_ == "MD"


def _heads_clause(token: Any) -> bool:
    if not _is_verbal(token) or token.dep_ in WITHIN_CLAUSE:
        return False
    if token.dep_ == "conj":
        return _has_child(token, SUBJECTS)  # else it shares the clause of the verb before it
    if token.dep_ == "acl":
        return _has_child(token, SUBJECTS | AUXILIARIES)  # "to see", but not "seen by us"
    return True


def _is_further_main(token: Any) -> bool:
    """Return whether a finite verb heads another main clause than the root's: after a conjunction, comma or dash."""
    while token.dep_ == "conj" and _has_child(token, SUBJECTS):
        token = token.head
        if token.head.i == token.i:
            return True
    # or parsed as a complement that is coordinate with its head: "It rained, we left"
    if token.head.dep_ != "ROOT" or token.dep_ not in {"ccomp", "parataxis"} or not _has_child(token, SUBJECTS):
        return False
    return not _is_marked(token) and token.head.lower_ not in REPORTING and _is_set_off(token)


def _is_set_off(token: Any) -> bool:
    if token.i < token.head.i:
        return True  # a complement that comes first
    before = token.left_edge.i - 1
    return before > token.head.i and token.doc[before].is_punct and token.doc[before].text not in {'"', "“", "``"}


def _is_marked(token: Any) -> bool:
    return any(child.dep_ == "mark" or child.tag_[:1] == "W" for child in token.children)


def _is_dependent(token: Any) -> bool:
    if token.dep_ == "ROOT":
        return _has_child(token, {"mark"})  # "Because it rained."
    if token.dep_ == "ccomp":
        return _is_marked(token) or (token.i > token.head.i and not _is_set_off(token))  # else direct speech
    return token.dep_ in SUBORDINATE and _has_child(token, SUBJECTS)


def _joins_phrases(conjunction: Any) -> bool:
    head = conjunction.head
    if conjunction.dep_ != "cc" or head.pos_ not in PHRASAL:
        return False
    joined = next((child for child in head.children if child.dep_ == "conj" and child.i > conjunction.i), None)
    return joined is not None and not (_is_verbal(joined) and _has_child(joined, SUBJECTS))


def _heads_complex_noun(token: Any) -> bool:
    if token.dep_ not in ARGUMENTS:
        if token.pos_ not in NOMINAL or token.dep_ in WITHIN_NOMINAL:
            return False
        if token.dep_ == "conj" and token.head.pos_ in NOMINAL:
            return False  # within the noun phrase of the noun before it
    return any(below.tag_ in MODIFIERS or below.dep_ in POSTMODIFIERS for below in token.subtree)


def _heads_nominal_clause(token: Any) -> bool:
    if token.dep_ not in {"ccomp", "csubj", "csubjpass"} or not _is_verbal(token.head):
        return False
    return not any(
        child.tag_ == "WRB" or (child.dep_ == "mark" and child.lower_ not in {"that", "for"})  # "how", "whether"
        for child in token.children
    )
