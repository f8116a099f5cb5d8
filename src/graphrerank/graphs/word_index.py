"""The words of a corpus, read once: what BM25 and the matching of words look up instead of texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from graphrerank.graphs.packed_strings import PackedStrings

Integers = npt.NDArray[np.signedinteger[Any]]


class Vocabulary(Sequence[str]):
    """``V`` different words by number: ``num_sorted`` that ascend by their bytes, and others, which a dict looks up.

    Example:
        >>> vocabulary = Vocabulary(PackedStrings.of(["b", "d", "a"]), 2)
        >>> [vocabulary.rank(word) for word in "abcd"]
        [2, 0, -1, 1]
    """

    def __init__(self, words: PackedStrings, num_sorted: int) -> None:
        self._words = words
        self._sorted = PackedStrings(words.offsets[: num_sorted + 1], words.content)
        self._added = {words[number]: number for number in range(num_sorted, len(words))}

    def __len__(self) -> int:
        return len(self._words)

    def __getitem__(self, index: Any) -> Any:
        return self._words[index]

    def rank(self, word: str) -> int:
        """Return the number of a word; -1 if it is none of them."""
        number = self._sorted.rank(word)
        return self._added.get(word, -1) if number < 0 else number


@dataclass(frozen=True, eq=False)
class AddedTokens:
    """The tokens of ``A`` texts that were added to a corpus, text by text."""

    first: int  # number of the first of these texts
    ptr: Integers  # `[A + 1]` int64; text `first + i` holds `tokens[ptr[i]:ptr[i + 1]]`
    tokens: Integers  # `[P]` int32, numbers of tokens, each once in a text
    counts: Integers  # `[P]` int32, how often the text holds it

    def held(self, token: int) -> tuple[Integers, Integers]:
        """Return the texts that hold a token, ascending, and how often."""
        ascending, text, counts = self._by_token
        place = slice(*np.searchsorted(ascending, [token, token + 1]))
        return text[place], counts[place]

    @cached_property
    def _by_token(self) -> tuple[Integers, Integers, Integers]:
        order = np.argsort(self.tokens, kind="stable")
        text = np.repeat(np.arange(self.first, self.first + len(self.ptr) - 1), np.diff(self.ptr))
        return self.tokens[order], text[order].astype(np.int32), self.counts[order]


@dataclass(frozen=True, eq=False)
class Postings:
    """Which of ``N`` texts hold each of ``V`` tokens of BM25, and how often."""

    words: Vocabulary  # `V` tokens
    ptr: Integers  # `[V' + 1]` int64; of the first `V'` tokens each is held by `texts[ptr[t]:ptr[t + 1]]`
    texts: Integers  # `[P]` int32, ascending within a token
    counts: Integers  # `[P]` int32, how often the text holds it
    lengths: Integers  # `[N]` int32, tokens of each text, repeats included
    num_tokens: int  # sum of the lengths, without removed texts
    added: AddedTokens | None = None  # further texts
    removed: npt.NDArray[np.bool_] | None = None  # `[N]`, texts that count no longer

    @cached_property
    def num_texts(self) -> int:
        """Number of texts, without removed ones."""
        return len(self.lengths) - (0 if self.removed is None else int(self.removed.sum()))

    def held(self, word: str) -> tuple[Integers, Integers]:
        """Return the texts that hold a word, ascending, and how often; both ``[p]`` int32."""
        token = self.words.rank(word)
        texts = counts = np.zeros(0, dtype=np.int32)
        if 0 <= token < len(self.ptr) - 1:
            place = slice(int(self.ptr[token]), int(self.ptr[token + 1]))
            texts, counts = self.texts[place], self.counts[place]
        if token >= 0 and self.added is not None:
            more, their_counts = self.added.held(token)
            texts, counts = np.concatenate([texts, more]), np.concatenate([counts, their_counts])
        if self.removed is None:
            return texts, counts
        kept = ~self.removed[texts]
        return texts[kept], counts[kept]


@dataclass(frozen=True, eq=False)
class TextStems:
    """The different stems of each of ``N`` texts, of ``V`` in all."""

    words: Vocabulary  # `V` stems
    ptr: Integers  # `[N + 1]` int64; text `i` holds `stems[ptr[i]:ptr[i + 1]]`
    stems: Integers  # `[P]` int32, ascending within a text
    in_lead: npt.NDArray[np.bool_]  # `[P]`, whether the stem stands in the text's lead
    texts_with: Integers  # `[V]` int64, number of texts that hold each stem, without removed ones
    order: Integers  # `[V]` int32, the place of each stem among all, in the order in which texts first hold them
    num_texts: int  # without removed ones


@dataclass(frozen=True, eq=False)
class WordIndex:
    """The words of a corpus's texts: ``tokens`` for BM25, ``stems`` for what a passage covers of a query."""

    tokens: Postings
    stems: TextStems
