"""The nine units of syntactic complexity, estimated from spaCy's dependency parse without a constituency parser."""

from typing import Any

from graphrerank_papers.ea_graphrag.syntax.constituency import FINITE, MODIFIERS, Units, is_word, total_units

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


def approximate_units(document: Any) -> Units:
    """Estimate the units of a text from the words that head the phrases counted by :func:`count_units`; all 0 if empty.

    ``document`` is spaCy's, with tags, dependencies and sentence ends labelled as by ``en_core_web_sm`` (ClearNLP). The
    rules were developed on GUM's training trees; ``benchmarks/syntax_units.py`` measures them on its test trees.
    """
    sentences = (([token for token in sentence if not token.is_space], sentence.root) for sentence in document.sents)
    return total_units(_of_sentence(tokens, root) for tokens, root in sentences if tokens)


def _of_sentence(tokens: list[Any], root: Any) -> Units:
    clauses = [token for token in tokens if _heads_clause(token)]
    finite = [token for token in clauses if _is_finite(token)]
    main = [token for token in finite if _is_further_main(token)]
    dependent = [token for token in finite if _is_dependent(token)]
    fragment = not finite and not _is_verbal(root) and any(child.dep_ in FRAGMENTARY for child in root.lefts)
    t_units = bool(root in clauses and not _has(root, {"mark"})) + len(main)
    complex_main = [token for token in main if any(token in below.ancestors for below in dependent)]
    return Units(
        W=sum(is_word(token.tag_) for token in tokens),
        S=1,
        VP=len(clauses),
        C=len(finite) + (fragment or _is_imperative(root)),
        T=t_units + (fragment and not t_units),
        DC=len(dependent),
        CT=bool(dependent and t_units) + len(complex_main),
        CP=sum(map(_joins_phrases, tokens)),
        CN=sum(map(_heads_complex_noun, tokens)) + sum(map(_is_nominal_clause, dependent)),
    )


def _has(token: Any, dependencies: frozenset[str] | set[str]) -> bool:
    return any(child.dep_ in dependencies for child in token.children)


def _is_verbal(token: Any) -> bool:
    return token.tag_[:2] == "VB" or token.tag_ == "MD"


def _heads_clause(token: Any) -> bool:
    if not _is_verbal(token) or token.dep_ in WITHIN_CLAUSE:
        return False
    if token.dep_ == "conj":
        return _has(token, SUBJECTS)  # else it shares the clause of the verb before it
    if token.dep_ == "acl":
        return _has(token, SUBJECTS | AUXILIARIES)  # "to see", but not "seen by us"
    return True


def _is_finite(token: Any) -> bool:
    return token.tag_ in FINITE or any(c.dep_ in AUXILIARIES and c.tag_ in FINITE for c in token.children)


def _is_imperative(root: Any) -> bool:
    return root.tag_ == "VB" and not _has(root, SUBJECTS | AUXILIARIES)


def _is_further_main(token: Any) -> bool:
    """Return whether a finite verb heads another main clause than the root's: after a conjunction, comma or dash."""
    while token.dep_ == "conj" and _has(token, SUBJECTS):
        token = token.head
        if token.head.i == token.i:
            return True
    return _is_spliced(token) and token.head.dep_ == "ROOT"


def _is_spliced(token: Any) -> bool:
    """Return whether a clause parsed as a complement is coordinate with its head: "It rained, we left"."""
    if token.dep_ not in {"ccomp", "parataxis"} or not _has(token, SUBJECTS) or _is_marked(token):
        return False
    return token.head.lower_ not in REPORTING and _is_set_off(token)


def _is_set_off(token: Any) -> bool:
    if token.i < token.head.i:
        return True  # a complement that comes first
    before = token.left_edge.i - 1
    return before > token.head.i and token.doc[before].is_punct and token.doc[before].text not in {'"', "“", "``"}


def _is_marked(token: Any) -> bool:
    return any(child.dep_ == "mark" or child.tag_[:1] == "W" for child in token.children)


def _is_dependent(token: Any) -> bool:
    if token.dep_ == "ROOT":
        return _has(token, {"mark"})  # "Because it rained."
    if token.dep_ == "ccomp":
        return _is_marked(token) or (token.i > token.head.i and not _is_set_off(token))  # else direct speech
    return token.dep_ in SUBORDINATE and _has(token, SUBJECTS)


def _joins_phrases(conjunction: Any) -> bool:
    head = conjunction.head
    if conjunction.dep_ != "cc" or head.pos_ not in PHRASAL:
        return False
    joined = next((child for child in head.children if child.dep_ == "conj" and child.i > conjunction.i), None)
    return joined is not None and not (_is_verbal(joined) and _has(joined, SUBJECTS))


def _heads_complex_noun(token: Any) -> bool:
    if token.dep_ not in ARGUMENTS:
        if token.pos_ not in NOMINAL or token.dep_ in WITHIN_NOMINAL:
            return False
        if token.dep_ == "conj" and token.head.pos_ in NOMINAL:
            return False  # within the noun phrase of the noun before it
    return any(below.tag_ in MODIFIERS or below.dep_ in POSTMODIFIERS for below in token.subtree)


def _is_nominal_clause(token: Any) -> bool:
    if token.dep_ not in {"ccomp", "csubj", "csubjpass"} or not _is_verbal(token.head):
        return False
    return not any(
        child.tag_ == "WRB" or (child.dep_ == "mark" and child.lower_ not in {"that", "for"})  # "how", "whether"
        for child in token.children
    )
