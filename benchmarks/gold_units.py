"""Gold counts of the nine units of syntactic complexity from bracketed trees: the oracle of the estimate."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from graphrerank.checks import UserError
from graphrerank_papers.ea_graphrag.syntax.units import FINITE, MODIFIERS, Units, is_word, total_units

_TOKEN = re.compile(r"[()]|[^\s()]+")
_FUNCTION = re.compile(r"^([^-=|]+)[-=|].*")  # NP-SBJ-1, NP=2: the label is NP; -LRB- stays
REQUIRED = "`brackets` must be one tree such as (ROOT (NP (NN tree)))"
HEADS = {  # Collins (1999), appendix A: the first label that some child has, from the left
    "S": ("TO", "IN", "VP", "S", "SBAR", "ADJP", "UCP", "NP"),
    "SBAR": ("WHNP", "WHPP", "WHADVP", "WHADJP", "IN", "DT", "S", "SQ", "SINV", "SBAR", "FRAG"),
    "SINV": ("VBZ", "VBD", "VBP", "VB", "MD", "VP", "S", "SINV", "ADJP", "NP"),
    "SQ": ("VBZ", "VBD", "VBP", "VB", "MD", "VP", "SQ"),
    "VP": ("TO", "VBD", "VBN", "MD", "VBZ", "VB", "VBG", "VBP", "VP", "ADJP", "NN", "NNS", "NP"),
}
CLAUSAL = frozenset({"S", "SINV", "SQ"})
SENTENTIAL = CLAUSAL | {"SBARQ"}
COORDINATED = frozenset({"ADJP", "ADVP", "NP", "VP"})
WH_WORDS = frozenset({"WDT", "WP", "WP$"})


@dataclass(eq=False, slots=True)
class Tree:
    """A node of a constituency tree with its subtree."""

    label: str  # phrase label without function tags, or a leaf's part of speech; `ROOT` above a sentence
    children: Sequence["Tree"] = ()  # empty for a leaf
    word: str | None = None  # a leaf's token; None for inner nodes
    parent: "Tree | None" = field(default=None, init=False, repr=False)  # None for the root
    index: int = field(default=0, init=False, repr=False)  # index among the parent's children

    def __post_init__(self) -> None:
        for index, child in enumerate(self.children):
            child.parent, child.index = self, index

    def nodes(self) -> Iterator["Tree"]:
        """Yield this node and all below it, parents first, from left to right."""
        stack = [self]
        while stack:  # no recursion: a tree may be deeper than Python's stack
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def leaves(self) -> Iterator["Tree"]:
        """Yield the tokens, from left to right."""
        return (node for node in self.nodes() if node.word is not None)

    def following(self) -> Sequence["Tree"]:
        """Return the parent's children after this one."""
        return () if self.parent is None else self.parent.children[self.index + 1 :]

    def head(self) -> "Tree | None":
        """Return the head child by ``HEADS``, the first one if no rule applies, or None for a leaf."""
        ruled = (child for label in HEADS.get(self.label, ()) for child in self.children if child.label == label)
        return next(ruled, self.children[0] if self.children else None)


def read_tree(brackets: str) -> Tree:
    """Parse one tree such as ``(ROOT (S (NP-SBJ (PRP We)) (VP (VBP read)) (. .)))``.

    Function tags are dropped; the outermost bracket may have no label (as in Penn's files) and becomes ``ROOT``.

    Example:
        >>> [(leaf.label, leaf.word) for leaf in read_tree("((NP-SBJ (DT a) (NN tree)))").leaves()]
        [('DT', 'a'), ('NN', 'tree')]
    """
    open_nodes: list[list[str | Tree]] = [[]]  # label and children of each open bracket, below what is complete
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
                raise UserError(f"{REQUIRED}, got a bracket that is neither word nor phrase: {brackets[:80]!r}")
            open_nodes[-1].append(Tree(_FUNCTION.sub(r"\1", label), children, word))
        else:
            open_nodes[-1].append(token)
    complete, *left_open = open_nodes
    if left_open or len(complete) != 1 or not isinstance(tree := complete[0], Tree):
        raise UserError(f"{REQUIRED}, got {len(left_open)} open brackets, or text outside: {brackets[:80]!r}")
    return tree


def count_units(trees: Iterable[Tree]) -> Units:
    """Count the units of a text.

    Source: Lu, Automatic analysis of syntactic complexity in second language writing, 2010, section 3.2. *Where we
    differ:* hyphens and symbols, tokens in newer treebanks, are no words; a bare relative pronoun counts as WHNP even
    where a treebank labels it NP.

    Example:
        >>> count_units([read_tree("(ROOT (S (NP (PRP We)) (VP (VBP read)) (. .)))")])
        Units(W=2, S=1, VP=1, C=1, T=1, DC=0, CT=0, CP=0, CN=0)
    """
    return total_units(map(_count, trees))


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
    if _is_headed_by(node, FINITE):  # questions and inversions: the verb precedes its subject
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
