"""spaCy's analysis of a text as plain lists, from which all features are computed."""

from collections import Counter
from typing import Any, NamedTuple

from graphrerank_papers.ea_graphrag.syntax.units import is_word


class ParsedEntity(NamedTuple):
    """A named entity."""

    label: str  # OntoNotes' entity type, such as `PERSON`
    size: int  # number of tokens
    root: int  # index of its head token


class ParsedText:
    """Tokens (white space left out), their dependency trees and the entities."""

    def __init__(self, document: Any) -> None:
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
        self.entities = [
            ParsedEntity(span.label_, len(span), index[span.root.i]) for span in document.ents if span.root.i in index
        ]
        self._measure_trees()

    def __len__(self) -> int:
        return len(self.words)

    @property
    def num_words(self) -> int:
        """Number of tokens that are words."""
        return sum(self.is_word)

    def count(self, *relations: str) -> float:
        """Return how many tokens have one of these dependency labels."""
        return float(sum(self.counts[relation] for relation in relations))

    def _measure_trees(self) -> None:
        """Compute depths, subtree sizes and widths without recursion."""
        size = len(self)
        root, self.depth = [-1] * size, [0] * size
        for start in range(size):
            path, node = [], start
            while root[node] < 0 and self.heads[node] != node:
                path.append(node)
                node = self.heads[node]
            if root[node] < 0:
                root[node] = node
            for below in reversed(path):
                root[below], self.depth[below] = root[node], self.depth[self.heads[below]] + 1
        self.num_children, self.left, self.right = [0] * size, [0] * size, [0] * size
        for node in sorted(range(size), key=self.depth.__getitem__, reverse=True):
            head = self.heads[node]
            if head != node:
                below = 1 + self.left[node] + self.right[node]
                self.num_children[head] += 1
                if node < head:
                    self.left[head] += below
                else:
                    self.right[head] += below
        self.level_widths = list(Counter(zip(root, self.depth, strict=True)).values())
