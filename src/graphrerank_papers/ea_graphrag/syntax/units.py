"""Count the nine syntactic units in constituency trees, or estimate them from spaCy's dependency parse."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from graphrerank.utils.checks import UserError

_TOKEN = re.compile(r"[()]|[^\s()]+")
_FUNCTION = re.compile(r"^([^-=|]+)[-=|].*")  # reduces NP-SBJ-1 and NP=2 to NP, but does not match -LRB-
TREE_REQUIRED = "`brackets` must be one tree such as (ROOT (NP (NN tree)))"

#: Head rules of Collins (1999), appendix A. The head is the leftmost child with the first label that occurs.
HEAD_LABELS = {
    "S": ("TO", "IN", "VP", "S", "SBAR", "ADJP", "UCP", "NP"),
    "SBAR": ("WHNP", "WHPP", "WHADVP", "WHADJP", "IN", "DT", "S", "SQ", "SINV", "SBAR", "FRAG"),
    "SINV": ("VBZ", "VBD", "VBP", "VB", "MD", "VP", "S", "SINV", "ADJP", "NP"),
    "SQ": ("VBZ", "VBD", "VBP", "VB", "MD", "VP", "SQ"),
    "VP": ("TO", "VBD", "VBN", "MD", "VBZ", "VB", "VBG", "VBP", "VP", "ADJP", "NN", "NNS", "NP"),
}

CLAUSAL = frozenset({"S", "SINV", "SQ"})
SENTENTIAL = CLAUSAL | {"SBARQ"}
FINITE = frozenset({"MD", "VBZ", "VBP", "VBD"})
COORDINATED = frozenset({"ADJP", "ADVP", "NP", "VP"})
MODIFIERS = frozenset({"JJ", "POS", "PP", "S", "VBG"})
#: Tags of hyphens, emoticons, rows of stars and other symbols.
NOT_WORDS = frozenset({"HYPH", "NFP", "SYM"})
WH_WORDS = frozenset({"WDT", "WP", "WP$"})

# Dependency labels and parts of speech for the rules on dependency parses
SUBJECTS = frozenset({"nsubj", "nsubjpass", "csubj", "csubjpass", "expl"})
AUXILIARIES = frozenset({"aux", "auxpass"})
WITHIN_CLAUSE = AUXILIARIES | {"amod", "compound", "prep", "case", "nmod", "punct", "intj", "poss", "agent"}
SUBORDINATE = frozenset({"ccomp", "advcl", "relcl", "csubj", "csubjpass", "acl", "pcomp"})
WITHIN_NOMINAL = frozenset({"compound", "nmod", "poss", "appos", "amod", "nummod", "quantmod", "det"})
NOMINAL = frozenset({"NOUN", "PROPN", "PRON"})
PHRASAL = NOMINAL | {"NUM", "ADJ", "ADV", "VERB", "AUX"}
POSTMODIFIERS = frozenset({"prep", "relcl", "acl", "appos"})
ARGUMENTS = frozenset({"nsubj", "nsubjpass", "dobj", "pobj", "attr", "dative"})
#: Labels that turn a verbless root into a fragment, rather than a noun phrase, if they precede it.
FRAGMENTARY = frozenset({"intj", "cc", "neg"})
_REPORTING = "add added ask asked asks replied reply said say says tell think thought told write wrote"
REPORTING = frozenset(_REPORTING.split())
#: Version of the rules below. Increment it when a rule changes, so that cached features are computed again.
HEAD_RULES_VERSION = 1

#: Ratios of Lu (2010). MLS, MLT and MLC are the mean lengths of sentences, T-units and clauses.
RATIOS = {
    "MLS": "W/S",
    "MLT": "W/T",
    "MLC": "W/C",
    **{name: name for name in ("C/S", "VP/T", "C/T", "DC/C", "DC/T", "T/S", "CT/T", "CP/T", "CP/C", "CN/T", "CN/C")},
}


class Units(NamedTuple):
    """Number of syntactic units of each kind in a text.

    Attributes:
        W: Number of words: tokens other than punctuation and symbols.
        S: Number of sentences.
        VP: Number of verb phrases that are predicates of a clause, finite or not.
        C: Number of clauses: structures with a subject and a finite verb, and imperatives. A fragment without a clause
            counts as one.
        T: Number of T-units: a main clause with everything that depends on it.
        DC: Number of dependent clauses: finite adverbial, nominal and relative clauses.
        CT: Number of complex T-units: T-units with a dependent clause.
        CP: Number of coordinate phrases: adjective, adverb, noun and verb phrases with a conjunction.
        CN: Number of complex nominals: modified nouns, nominal clauses, and gerunds and infinitives as subjects.
    """

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
        """Return the fourteen ratios of Lu (2010), by the names in ``RATIOS``. A ratio with divisor 0 is 0."""
        counts = self._asdict()
        terms = ((name, *ratio.split("/")) for name, ratio in RATIOS.items())
        return {name: counts[above] / counts[below] if counts[below] else 0.0 for name, above, below in terms}


@dataclass(eq=False, slots=True)
class Tree:
    """Node of a constituency tree, with its subtree.

    Attributes:
        label: Phrase label without function tags; the part of speech for a leaf; ``ROOT`` for the root.
        children: Child nodes from left to right. Empty for a leaf.
        word: Token of a leaf. None for inner nodes.
        parent: Parent node. None for the root.
        index: Position among the parent's children.
    """

    label: str
    children: Sequence["Tree"] = ()
    word: str | None = None
    parent: "Tree | None" = field(default=None, init=False, repr=False)
    index: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        for index, child in enumerate(self.children):
            child.parent, child.index = self, index

    def nodes(self) -> Iterator["Tree"]:
        """Yield this node and its descendants in preorder."""
        stack = [self]
        while stack:  # no recursion, because a tree may be deeper than Python's stack
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def leaves(self) -> Iterator["Tree"]:
        """Return the leaves from left to right."""
        return (node for node in self.nodes() if node.word is not None)

    def following(self) -> Sequence["Tree"]:
        """Return the siblings to the right."""
        return () if self.parent is None else self.parent.children[self.index + 1 :]

    def head(self) -> "Tree | None":
        """Return the head child by the rules ``HEAD_LABELS``, the first child if none applies, or None for a leaf."""
        ruled = (child for label in HEAD_LABELS.get(self.label, ()) for child in self.children if child.label == label)
        return next(ruled, self.children[0] if self.children else None)


def read_tree(brackets: str) -> Tree:
    """Parse a constituency tree in bracket notation, such as ``(ROOT (S (NP-SBJ (PRP We)) (VP (VBP read)) (. .)))``.

    Function tags are removed. An outermost bracket without a label, as in the Penn Treebank, becomes ``ROOT``.

    Args:
        brackets: Tree in bracket notation.

    Returns:
        Root of the tree.

    Raises:
        ValueError: If ``brackets`` is not exactly one complete tree.

    Example:
        >>> [(leaf.label, leaf.word) for leaf in read_tree("((NP-SBJ (DT a) (NN tree)))").leaves()]
        [('DT', 'a'), ('NN', 'tree')]
    """
    open_nodes: list[list[str | Tree]] = [[]]  # completed trees, then the label and children of each open bracket
    for token in _TOKEN.findall(brackets):
        if token == "(":
            open_nodes.append([])
        elif token == ")" and len(open_nodes) > 1:
            label, *parts = open_nodes.pop() or [""]
            if isinstance(label, Tree):
                label, parts = "ROOT" if len(open_nodes) == 1 else "", [label, *parts]
            children = [part for part in parts if isinstance(part, Tree)]
            word = next((part for part in parts if isinstance(part, str)), None)
            if not label or len(parts) != max(len(children), 1):
                raise UserError(
                    f"{TREE_REQUIRED}, got a bracket that is neither a word nor a phrase in {brackets[:80]!r}"
                )
            open_nodes[-1].append(Tree(_FUNCTION.sub(r"\1", label), children, word))
        else:
            open_nodes[-1].append(token)
    complete, *left_open = open_nodes
    if left_open or len(complete) != 1 or not isinstance(tree := complete[0], Tree):
        raise UserError(
            f"{TREE_REQUIRED}, got {len(left_open)} unclosed brackets, or text outside of the tree, "
            f"in {brackets[:80]!r}"
        )
    return tree


def count_units(trees: Iterable[Tree]) -> Units:
    """Count the syntactic units of a text.

    Source: Lu, "Automatic analysis of syntactic complexity in second language writing", 2010, section 3.2.
    *Differences from the paper:* hyphens and symbols, which are separate tokens in newer treebanks, are not counted as
    words. A bare relative pronoun is treated as WHNP even if a treebank labels it NP.

    Args:
        trees: Constituency trees of the sentences.

    Returns:
        Units of all sentences together.

    Example:
        >>> count_units([read_tree("(ROOT (S (NP (PRP We)) (VP (VBP read)) (. .)))")])
        Units(W=2, S=1, VP=1, C=1, T=1, DC=0, CT=0, CP=0, CN=0)
    """
    return total_units(map(_count, trees))


def total_units(units: Iterable[Units]) -> Units:
    """Add up the units of sentences.

    Args:
        units: Units of each sentence.

    Returns:
        Units of all sentences together. All 0 if there are none.
    """
    return Units(*map(sum, zip(Units(0, 0, 0, 0, 0, 0, 0, 0, 0), *units, strict=True)))


def is_word(tag: str) -> bool:
    """Return whether a Penn part-of-speech tag denotes a word, rather than punctuation, a trace or a symbol.

    Args:
        tag: Part-of-speech tag.
    """
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
        CT=sum(any(map(_is_dependent_clause, unit.nodes())) for unit in t_units),
        CP=sum(node.label in COORDINATED and _has(node, "CC") for node in nodes),
        CN=sum(_is_complex_noun(node) or _is_nominal_clause(node) or _is_verbal_subject(node) for node in nodes),
    )


def _has(node: Tree, label: str) -> bool:
    return any(child.label == label for child in node.children)


def _is_headed_by(node: Tree, labels: Collection[str]) -> bool:
    head = node.head()
    return head is not None and head.label in labels


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
    if _is_headed_by(node, FINITE):  # in questions and inversions, the verb precedes its subject
        return True
    phrases = [child for child in node.children if child.label == "VP"]
    coordinate = [below for phrase in phrases if _has(phrase, "CC") for below in phrase.children if below.label == "VP"]
    if any(_is_headed_by(phrase, FINITE) for phrase in (*phrases, *coordinate)):
        return True
    first = node.children[0]
    imperative = first.label == "VP" and _is_headed_by(first, {"VB"})
    return imperative and node.parent is not None and node.parent.label == "ROOT"


def _is_dependent_clause(node: Tree) -> bool:
    return node.label == "SBAR" and any(map(_is_clause, node.children))


def _is_t_unit(node: Tree) -> bool:
    parent = node.parent
    if node.label not in SENTENTIAL or parent is None:
        return False
    if parent.label == "ROOT":
        return True
    if not any(sister.label in SENTENTIAL for sister in parent.children[: node.index]):
        return False  # not coordinate
    above: Tree | None = parent
    while above is not None and above.label not in {"SBAR", "VP"}:
        above = above.parent
    return above is None


def _is_complex_noun(node: Tree) -> bool:
    if node.label != "NP" or (node.parent is not None and node.parent.label == "NP"):
        return False
    for below in node.nodes():
        after = [sister.label for sister in below.following()] if below.label == "NP" else []
        if below is not node and (below.label in MODIFIERS or ("NP" in after and after[0] != "CC")):
            return True
    return False


def _precedes_vp(node: Tree) -> bool:
    return any(sister.label == "VP" for sister in node.following()[:1])


def _is_nominal_clause(node: Tree) -> bool:
    if node.label != "SBAR" or node.parent is None or (node.parent.label != "VP" and not _precedes_vp(node)):
        return False
    first, head = node.children[0], node.head()
    if first.label == "S" or head is None:
        return first.label == "S"
    if head.label == "IN":
        return (head.word or "").lower() in {"that", "for"}
    return head.label == "WHNP" or (first.label == "NP" and all(leaf.label in WH_WORDS for leaf in first.leaves()))


def _is_verbal_subject(node: Tree) -> bool:
    if node.label != "S" or not _precedes_vp(node):
        return False
    return any(child.label == "VP" and _is_headed_by(child, {"VBG", "TO"}) for child in node.children)


def approximate_units(document: Any) -> Units:
    """Estimate the syntactic units of a text from its dependency parse.

    The rules look for the head words of the phrases that :func:`count_units` counts. They were developed on the
    training trees of GUM. ``benchmarks/syntax_units.py`` measures their accuracy on its test trees.

    Args:
        document: Document parsed by spaCy, with the labels of ``en_core_web_sm`` (ClearNLP).

    Returns:
        Units of the text. All 0 if the text is empty.
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
        return _has_child(token, SUBJECTS)  # otherwise, it belongs to the clause of the preceding verb
    if token.dep_ == "acl":
        return _has_child(token, SUBJECTS | AUXILIARIES)  # "to see", but not "seen by us"
    return True


def _is_further_main(token: Any) -> bool:
    """Return whether a finite verb heads a further main clause, after a conjunction, comma or dash."""
    while token.dep_ == "conj" and _has_child(token, SUBJECTS):
        token = token.head
        if token.head.i == token.i:
            return True
    # a main clause may also be parsed as a complement of the other one: "It rained, we left"
    if token.head.dep_ != "ROOT" or token.dep_ not in {"ccomp", "parataxis"} or not _has_child(token, SUBJECTS):
        return False
    return not _is_marked(token) and token.head.lower_ not in REPORTING and _is_set_off(token)


def _is_set_off(token: Any) -> bool:
    if token.i < token.head.i:
        return True  # the complement precedes its head
    before = token.left_edge.i - 1
    return before > token.head.i and token.doc[before].is_punct and token.doc[before].text not in {'"', "“", "``"}


def _is_marked(token: Any) -> bool:
    return any(child.dep_ == "mark" or child.tag_[:1] == "W" for child in token.children)


def _is_dependent(token: Any) -> bool:
    if token.dep_ == "ROOT":
        return _has_child(token, {"mark"})  # "Because it rained."
    if token.dep_ == "ccomp":
        return _is_marked(token) or (token.i > token.head.i and not _is_set_off(token))  # otherwise direct speech
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
            return False  # belongs to the noun phrase of the preceding noun
    return any(below.tag_ in MODIFIERS or below.dep_ in POSTMODIFIERS for below in token.subtree)


def _heads_nominal_clause(token: Any) -> bool:
    if token.dep_ not in {"ccomp", "csubj", "csubjpass"} or not _is_verbal(token.head):
        return False
    return not any(
        child.tag_ == "WRB" or (child.dep_ == "mark" and child.lower_ not in {"that", "for"})  # "how", "whether"
        for child in token.children
    )
