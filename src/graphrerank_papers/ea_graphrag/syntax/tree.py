"""Constituency trees in bracket notation, as in the Penn Treebank."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_TOKEN = re.compile(r"[()]|[^\s()]+")
_FUNCTION = re.compile(r"^([^-=|]+)[-=|].*")  # NP-SBJ-1, NP=2: the label is NP; -LRB- stays

HEADS = {  # Collins (1999), appendix A: the first label that some child has, from the left
    "S": ("TO", "IN", "VP", "S", "SBAR", "ADJP", "UCP", "NP"),
    "SBAR": ("WHNP", "WHPP", "WHADVP", "WHADJP", "IN", "DT", "S", "SQ", "SINV", "SBAR", "FRAG"),
    "SINV": ("VBZ", "VBD", "VBP", "VB", "MD", "VP", "S", "SINV", "ADJP", "NP"),
    "SQ": ("VBZ", "VBD", "VBP", "VB", "MD", "VP", "SQ"),
    "VP": ("TO", "VBD", "VBN", "MD", "VBZ", "VB", "VBG", "VBP", "VP", "ADJP", "NN", "NNS", "NP"),
}


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

    def below(self) -> Iterator["Tree"]:
        """Yield all nodes below this one."""
        nodes = self.nodes()
        next(nodes)
        return nodes

    def leaves(self) -> Iterator["Tree"]:
        """Yield the tokens, from left to right."""
        return (node for node in self.nodes() if node.word is not None)

    def ancestors(self) -> Iterator["Tree"]:
        """Yield the parent, its parent, and so on."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def next_sister(self) -> "Tree | None":
        """Return the parent's next child, or None."""
        if self.parent is None or self.index + 1 == len(self.parent.children):
            return None
        return self.parent.children[self.index + 1]

    def head(self) -> "Tree | None":
        """Return the head child by ``HEADS``, the first one if no rule applies, or None for a leaf."""
        for label in HEADS.get(self.label, ()):
            for child in self.children:
                if child.label == label:
                    return child
        return self.children[0] if self.children else None


def read_tree(brackets: str) -> Tree:
    """Parse one tree.

    Args:
        brackets: ``(ROOT (S (NP-SBJ (PRP We)) (VP (VBP read)) (. .)))``. Function tags are dropped; the outermost
            bracket may have no label (as in Penn's own files) and becomes ``ROOT``.

    Raises:
        ValueError: If the text is not one complete tree.

    Example:
        >>> [(leaf.label, leaf.word) for leaf in read_tree("((NP-SBJ (DT a) (NN tree)))").leaves()]
        [('DT', 'a'), ('NN', 'tree')]
    """
    open_nodes: list[tuple[str | None, list[Tree], str | None]] = []
    root: Tree | None = None
    tokens = _TOKEN.findall(brackets)
    for token in tokens:
        if root is not None or (token != "(" and not open_nodes):
            raise ValueError(_refused(brackets, "text outside the outermost bracket"))
        if token == "(":
            open_nodes.append((None, [], None))
            continue
        label, children, word = open_nodes.pop()
        if token != ")":
            if label is None and not children:
                open_nodes.append((_FUNCTION.sub(r"\1", token), children, None))
            elif word is None and not children:
                open_nodes.append((label, children, token))
            else:
                raise ValueError(_refused(brackets, f"a second word {token!r} in one bracket"))
            continue
        if not children and word is None:
            raise ValueError(_refused(brackets, "a bracket without word or phrase"))
        if label is None and open_nodes:
            raise ValueError(_refused(brackets, "an inner bracket without label"))
        if word is not None and children:
            raise ValueError(_refused(brackets, f"the word {word!r} beside a phrase"))
        node = Tree(label or "ROOT", children, word)
        if open_nodes:
            open_nodes[-1][1].append(node)
        else:
            root = node
    if root is None:
        raise ValueError(_refused(brackets, f"{len(open_nodes)} brackets left open"))
    return root


def _refused(brackets: str, problem: str) -> str:
    return f"`brackets` must be one tree such as (ROOT (NP (NN tree))), got {problem}: {brackets[:80]!r}"
