"""Inverted index of the words of a corpus: which texts contain which tokens and stems, and how often."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from graphrerank.corpus.packed_strings import IntegerArray, PackedStrings, kept_entries, renumbered, slots_of


class Vocabulary(Sequence[str]):
    """Distinct words, each identified by its index.

    The words of the prepared corpus are sorted by their bytes and found by binary search. Words of passages that were
    added later follow in any order and are found with a dictionary.

    Args:
        words: All ``V`` words.
        num_sorted: Number of words at the start that are sorted by their bytes.
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
        """Return the index of a word, or -1 if the vocabulary does not contain it.

        Args:
            word: Word to look up.
        """
        number = self._sorted.rank(word)
        return self._added.get(word, -1) if number < 0 else number


@dataclass(frozen=True, eq=False)
class AddedTokens:
    """Tokens of ``A`` texts that were added to a prepared corpus, in the order of the texts.

    Attributes:
        first: Index of the first added text.
        ptr: Row pointers ``[A + 1]``, int64. Text ``first + i`` contains ``tokens[ptr[i]:ptr[i + 1]]``.
        tokens: Token indices ``[P]``, int32, unique per text.
        counts: Number of occurrences of the token in the text, ``[P]`` int32.
    """

    first: int
    ptr: IntegerArray
    tokens: IntegerArray
    counts: IntegerArray

    def lookup(self, token: int) -> tuple[IntegerArray, IntegerArray]:
        """Return the texts that contain a token, in ascending order, and its number of occurrences in each.

        Args:
            token: Index of the token.
        """
        sorted_tokens, texts, counts = self._by_token
        rows = slice(*np.searchsorted(sorted_tokens, [token, token + 1]))
        return texts[rows], counts[rows]

    @cached_property
    def _by_token(self) -> tuple[IntegerArray, IntegerArray, IntegerArray]:
        order = np.argsort(self.tokens, kind="stable")
        return self.tokens[order], self.text_of_token[order].astype(np.int32), self.counts[order]

    @property
    def text_of_token(self) -> IntegerArray:
        """Index of the text of each entry, ``[P]`` int64."""
        return np.repeat(np.arange(self.first, self.first + len(self.ptr) - 1), np.diff(self.ptr))


@dataclass(frozen=True, eq=False)
class Postings:
    """Postings for BM25: which of ``N`` texts contain each of ``V`` tokens, and how often.

    Attributes:
        words: Vocabulary of the ``V`` tokens.
        ptr: Row pointers ``[V' + 1]``, int64. The first ``V'`` tokens have postings: token ``t`` occurs in
            ``texts[ptr[t]:ptr[t + 1]]``.
        texts: Text indices ``[P]``, int32, ascending within a token.
        counts: Number of occurrences of the token in the text, ``[P]`` int32.
        lengths: Number of tokens of each text, including repetitions, ``[N]`` int32.
        num_tokens: Sum of the lengths, without removed texts.
        added: Tokens of texts that were added after the preparation. None if there are none.
        numbers: Index of each text of ``texts`` in a selection, ``[N']`` int32, or -1 if it is not selected. None if
            all texts are selected and keep their indices.
        whole: Postings whose numbers of texts and tokens BM25 uses. None to use those of this object.
    """

    words: Vocabulary
    ptr: IntegerArray
    texts: IntegerArray
    counts: IntegerArray
    lengths: IntegerArray
    num_tokens: int
    added: AddedTokens | None = None
    numbers: IntegerArray | None = None
    whole: "Postings | None" = None

    @cached_property
    def num_texts(self) -> int:
        """Number of texts, without removed texts."""
        return len(self.lengths) if self.numbers is None else int((self.numbers >= 0).sum())

    def select(self, nodes: npt.NDArray[np.int64], *, own_statistics: bool = True) -> "Postings":
        """Return the postings of the given texts. Other texts do not influence the result.

        Args:
            nodes: Indices of the texts, in ascending order.
            own_statistics: Whether BM25 uses the numbers of texts and tokens of the selection. If False, it uses those
                of the whole corpus.
        """
        lengths = self.lengths[nodes]
        numbers = renumbered(nodes, len(self.lengths), self.numbers)
        num_tokens = int(lengths.sum(dtype=np.int64))
        statistics = None if own_statistics else self.whole or self
        return replace(self, lengths=lengths, num_tokens=num_tokens, numbers=numbers, whole=statistics)

    def compacted(self) -> "Postings":
        """Return the postings without entries of unselected texts, so that look-ups need not skip them."""
        if self.numbers is None:
            return self
        ptr, selected = kept_entries(self.ptr, self.texts, self.numbers)
        texts, counts = self.numbers[self.texts[selected]], self.counts[selected]
        if self.added is not None:
            ptr, texts, counts = self._with_added(self.added, self.numbers, ptr, texts, counts)
        return replace(self, ptr=ptr, texts=texts, counts=counts, added=None, numbers=None)

    def _with_added(
        self, added: AddedTokens, numbers: IntegerArray, ptr: IntegerArray, texts: IntegerArray, counts: IntegerArray
    ) -> tuple[IntegerArray, IntegerArray, IntegerArray]:
        """Merge the selected entries of added texts into compacted postings."""
        added_texts = numbers[added.text_of_token]
        selected = added_texts >= 0
        tokens = np.concatenate([np.repeat(np.arange(len(ptr) - 1), np.diff(ptr)), added.tokens[selected]])
        order = np.argsort(tokens, kind="stable")
        merged_ptr = np.searchsorted(tokens[order], np.arange(len(self.words) + 1))
        merged_texts = np.concatenate([texts, added_texts[selected]])[order]
        merged_counts = np.concatenate([counts, added.counts[selected]])[order]
        return merged_ptr, merged_texts, merged_counts

    def lookup(self, word: str) -> tuple[IntegerArray, IntegerArray]:
        """Return the texts that contain a word, in ascending order, and its number of occurrences in each.

        Args:
            word: Word to look up.

        Returns:
            Text indices ``[p]`` and counts ``[p]``, int32.
        """
        token = self.words.rank(word)
        texts = counts = np.zeros(0, dtype=np.int32)
        if 0 <= token < len(self.ptr) - 1:
            rows = slice(int(self.ptr[token]), int(self.ptr[token + 1]))
            texts, counts = self.texts[rows], self.counts[rows]
        if token >= 0 and self.added is not None:
            added_texts, added_counts = self.added.lookup(token)
            texts = np.concatenate([texts, added_texts])
            counts = np.concatenate([counts, added_counts])
        if self.numbers is None:
            return texts, counts
        texts = self.numbers[texts]
        return texts[texts >= 0], counts[texts >= 0]


@dataclass(frozen=True, eq=False)
class TextStems:
    """Distinct stems of each of ``N`` texts.

    Attributes:
        words: Vocabulary of the ``V`` stems.
        ptr: Row pointers ``[N + 1]``, int64. Row ``i`` contains ``stems[ptr[i]:ptr[i + 1]]``.
        stems: Stem indices ``[P]``, int32, ascending within a row.
        in_lead: Whether the stem occurs in the first sentence of the text, ``[P]`` bool.
        texts_with: Number of texts that contain each stem, without removed texts, ``[V]`` int64.
        num_texts: Number of texts, without removed texts.
        rows: Row of each text of a selection, ``[N']`` int64. None if text ``i`` is row ``i``.
    """

    words: Vocabulary
    ptr: IntegerArray
    stems: IntegerArray
    in_lead: npt.NDArray[np.bool_]
    texts_with: IntegerArray
    num_texts: int
    rows: IntegerArray | None = None

    def select(self, nodes: npt.NDArray[np.int64], *, own_statistics: bool = True) -> "TextStems":
        """Return the stems of the given texts. Other texts do not influence the result.

        Args:
            nodes: Indices of the texts, in ascending order.
            own_statistics: Whether stem frequencies are those of the selection. If False, they are those of the whole
                corpus.
        """
        rows = nodes if self.rows is None else self.rows[nodes]
        if not own_statistics:
            return replace(self, rows=rows)
        selected_stems = self.stems[slots_of(self.ptr[rows], self.ptr[rows + 1])[1]]
        texts_with = np.bincount(selected_stems, minlength=len(self.texts_with))
        return replace(self, texts_with=texts_with, num_texts=len(rows), rows=rows)


@dataclass(frozen=True, eq=False)
class WordIndex:
    """Words of the texts of a corpus.

    Attributes:
        tokens: Postings of the tokens, for BM25.
        stems: Stems of each text, for text-match features.
    """

    tokens: Postings
    stems: TextStems

    def select(self, nodes: npt.NDArray[np.int64], **statistics: bool) -> "WordIndex":
        """Return the words of the given texts. See :meth:`Postings.select` and :meth:`TextStems.select`.

        Args:
            nodes: Indices of the texts, in ascending order.
            **statistics: Option ``own_statistics``, whether word frequencies are those of the selected texts.
        """
        return WordIndex(self.tokens.select(nodes, **statistics), self.stems.select(nodes, **statistics))
