"""What spaCy says of a text, as plain lists: the one thing that all features are counted from."""

from collections import Counter
from typing import Any, NamedTuple

from graphrerank.syntax.units import is_word


class ParsedEntity(NamedTuple):
    """A named entity.

    Attributes:
        label: OntoNotes' kind, as ``PERSON``.
        size: Tokens.
        root: Number of the token that links it to the rest.
    """

    label: str
    size: int
    root: int


class ParsedText:
    """Tokens (white space left out), their dependency trees and the entities.

    Attributes:
        words: ``n`` tokens in lower case.
        shapes: ``n`` tokens as written.
        tags: Penn parts of speech.
        pos: Universal parts of speech.
        relations: Dependency labels to the heads.
        heads: Numbers of the heads; a root is its own.
        is_word: Whether a token is a word: no punctuation or sign.
        depth: Steps up to the root.
        num_children: Dependents.
        left: Tokens below that stand before.
        right: Tokens below that stand after.
        level_widths: Tokens on each level of each sentence's tree.
        counts: How often each dependency label comes.
        entities: Named entities.

    Args:
        document: spaCy's, with tags, dependencies and entities.
    """

    def __init__(self, document: Any) -> None:
        tokens = [token for token in document if not token.is_space]
        place = {token.i: number for number, token in enumerate(tokens)}
        self.shapes = [token.text for token in tokens]
        self.words = [shape.lower() for shape in self.shapes]
        self.tags = [token.tag_ for token in tokens]
        self.pos = [token.pos_ for token in tokens]
        self.relations = [token.dep_ for token in tokens]
        self.heads = [place.get(token.head.i, number) for number, token in enumerate(tokens)]
        self.is_word = [is_word(tag) for tag in self.tags]
        self.counts = Counter(self.relations)
        self.entities = [
            ParsedEntity(span.label_, len(span), place[span.root.i]) for span in document.ents if span.root.i in place
        ]
        self._climb()

    def __len__(self) -> int:
        return len(self.words)

    @property
    def num_words(self) -> int:
        """Tokens that are words."""
        return sum(self.is_word)

    def count(self, *relations: str) -> float:
        """How many tokens have one of these dependency labels."""
        return float(sum(self.counts[relation] for relation in relations))

    def _climb(self) -> None:
        """Find depths, subtree sizes and widths without recursion."""
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
