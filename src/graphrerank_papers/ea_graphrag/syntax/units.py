"""The nine units of syntactic complexity in constituency trees, and their fourteen ratios."""

from collections.abc import Iterable
from typing import NamedTuple

from graphrerank_papers.ea_graphrag.syntax.tree import Tree

CLAUSAL = frozenset({"S", "SINV", "SQ"})
SENTENTIAL = CLAUSAL | {"SBARQ"}
FINITE = frozenset({"MD", "VBZ", "VBP", "VBD"})
COORDINATED = frozenset({"ADJP", "ADVP", "NP", "VP"})
MODIFIERS = frozenset({"JJ", "POS", "PP", "S", "VBG"})
NOT_WORDS = frozenset({"HYPH", "NFP", "SYM"})  # hyphens, emoticons, rows of stars and other symbols
WH_WORDS = frozenset({"WDT", "WP", "WP$"})

UNIT_NAMES = {
    "W": "Words: tokens other than punctuation and symbols.",
    "S": "Sentences.",
    "VP": "Verb phrases that are predicates of a clause, finite or not.",
    "C": "Clauses: structures with a subject and a finite verb, imperatives, and fragments without any.",
    "T": "T-units: a main clause with everything that depends on it.",
    "DC": "Dependent clauses: finite adverbial, nominal and relative ones.",
    "CT": "Complex T-units: those with a dependent clause.",
    "CP": "Coordinate phrases: adjective, adverb, noun and verb phrases with a conjunction.",
    "CN": "Complex nominals: modified nouns, nominal clauses, gerunds and infinitives as subjects.",
}
RATIO_NAMES = {
    "MLS": "Mean length of sentence: W / S.",
    "MLT": "Mean length of T-unit: W / T.",
    "MLC": "Mean length of clause: W / C.",
    "C/S": "Clauses per sentence.",
    "VP/T": "Verb phrases per T-unit.",
    "C/T": "Clauses per T-unit.",
    "DC/C": "Dependent clauses per clause.",
    "DC/T": "Dependent clauses per T-unit.",
    "T/S": "T-units per sentence.",
    "CT/T": "Complex T-units per T-unit.",
    "CP/T": "Coordinate phrases per T-unit.",
    "CP/C": "Coordinate phrases per clause.",
    "CN/T": "Complex nominals per T-unit.",
    "CN/C": "Complex nominals per clause.",
}
_LENGTHS = {"MLS": "W/S", "MLT": "W/T", "MLC": "W/C"}


class Units(NamedTuple):
    """Number of each unit in a text; ``UNIT_NAMES`` describes them."""

    W: int
    S: int
    VP: int
    C: int
    T: int
    DC: int
    CT: int
    CP: int
    CN: int

    def ratios(self) -> dict[str, float]:
        """Return the fourteen ratios of Lu (2010), by the names in ``RATIO_NAMES``; 0 for a divisor of 0."""
        ratios = {}
        for name in RATIO_NAMES:
            above, below = _LENGTHS.get(name, name).split("/")
            divisor = getattr(self, below)
            ratios[name] = getattr(self, above) / divisor if divisor else 0.0
        return ratios


def count_units(trees: Iterable[Tree]) -> Units:
    """Count the units of a text.

    Source: Lu, Automatic analysis of syntactic complexity in second language writing, 2010, section 3.2: his
    definitions, as our own predicates. *Where we differ:* hyphens and symbols, tokens in newer treebanks, are no words;
    a bare relative pronoun counts as WHNP even where a treebank labels it NP.

    Example:
        >>> from graphrerank_papers.ea_graphrag.syntax.tree import read_tree
        >>> count_units([read_tree("(ROOT (S (NP (PRP We)) (VP (VBP read)) (. .)))")])
        Units(W=2, S=1, VP=1, C=1, T=1, DC=0, CT=0, CP=0, CN=0)
    """
    return total_units(map(_count, trees))


def total_units(units: Iterable[Units]) -> Units:
    """Add the units of sentences."""
    return Units(*map(sum, zip(Units(0, 0, 0, 0, 0, 0, 0, 0, 0), *units, strict=True)))


def is_word(tag: str) -> bool:
    """Return whether a Penn part of speech is a word's rather than that of punctuation, a trace or a symbol."""
    return tag[:1].isalpha() and tag not in NOT_WORDS


def _count(root: Tree) -> Units:
    nodes = list(root.nodes())
    t_units = [node for node in nodes if _is_t_unit(node)]
    clauses = sum(map(_is_clause, nodes))
    fragment = any(node.label == "FRAG" for node in root.children)
    return Units(
        W=sum(node.word is not None and is_word(node.label) for node in nodes),
        S=1,
        VP=sum(map(_is_predicate, nodes)),
        C=clauses + (fragment and not clauses),
        T=len(t_units) + (fragment and not t_units),
        DC=sum(map(_is_dependent_clause, nodes)),
        CT=sum(any(map(_is_dependent_clause, unit.below())) for unit in t_units),
        CP=sum(node.label in COORDINATED and _has(node, "CC") for node in nodes),
        CN=sum(_is_complex_noun(node) or _is_nominal_clause(node) or _is_verbal_subject(node) for node in nodes),
    )


def _has(node: Tree, label: str) -> bool:
    return any(child.label == label for child in node.children)


def _head_label(node: Tree) -> str:
    head = node.head()
    return "" if head is None else head.label


def _is_predicate(node: Tree) -> bool:
    parent = node.parent
    if parent is None:
        return False
    if node.label == "VP":
        return parent.label in CLAUSAL
    return node.label in FINITE and parent.label == "SQ" and not _has(parent, "VP")  # (SQ (VBZ is) (NP he) ...)


def _is_clause(node: Tree) -> bool:
    if node.label not in CLAUSAL:
        return False
    if _head_label(node) in FINITE:  # questions and inversions: the verb precedes its subject
        return True
    if any(child.label == "VP" and _is_finite(child) for child in node.children):
        return True
    first = node.children[0]
    imperative = first.label == "VP" and _head_label(first) == "VB"
    return imperative and node.parent is not None and node.parent.label == "ROOT"


def _is_finite(phrase: Tree) -> bool:
    if _head_label(phrase) in FINITE:
        return True
    return _has(phrase, "CC") and any(c.label == "VP" and _head_label(c) in FINITE for c in phrase.children)


def _is_dependent_clause(node: Tree) -> bool:
    return node.label == "SBAR" and any(map(_is_clause, node.children))


def _is_t_unit(node: Tree) -> bool:
    parent = node.parent
    if node.label not in SENTENTIAL or parent is None:
        return False
    if parent.label == "ROOT":
        return True
    coordinated = any(sister.label in SENTENTIAL for sister in parent.children[: node.index])
    return coordinated and not any(above.label in {"SBAR", "VP"} for above in node.ancestors())


def _is_complex_noun(node: Tree) -> bool:
    if node.label != "NP" or (node.parent is not None and node.parent.label == "NP"):
        return False
    return any(below.label in MODIFIERS or _has_apposition(below) for below in node.below())


def _has_apposition(node: Tree) -> bool:
    if node.label != "NP" or node.parent is None:
        return False
    after = node.parent.children[node.index + 1 :]
    return any(sister.label == "NP" for sister in after) and after[0].label != "CC"


def _is_nominal_clause(node: Tree) -> bool:
    if node.label != "SBAR" or node.parent is None:
        return False
    following = node.next_sister()
    if node.parent.label != "VP" and (following is None or following.label != "VP"):
        return False
    first, head = node.children[0], node.head()
    if first.label == "S" or head is None:
        return first.label == "S"
    if head.label == "IN":
        return (head.word or "").lower() in {"that", "for"}
    return head.label == "WHNP" or (first.label == "NP" and all(leaf.label in WH_WORDS for leaf in first.leaves()))


def _is_verbal_subject(node: Tree) -> bool:
    following = node.next_sister()
    if node.label != "S" or following is None or following.label != "VP":
        return False
    return any(child.label == "VP" and _head_label(child) in {"VBG", "TO"} for child in node.children)
