"""The passages of a corpus by number: their ids and texts, their words, read once, and their vectors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus.packed_strings import Integers, PackedStrings, chosen, kept_entries, renumbered, slots_of


class Vocabulary(Sequence[str]):
    """``V`` different words by number: ``num_sorted`` that ascend by their bytes, and others, which a dict looks up."""

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
    numbers: Integers | None = None  # `[N']` int32, the number of each text listed; -1: does not count. None: the same
    whole: "Postings | None" = None  # the ones whose numbers of texts and tokens count for BM25; None: these

    @cached_property
    def num_texts(self) -> int:
        """Number of texts, without removed ones."""
        return len(self.lengths) if self.numbers is None else int((self.numbers >= 0).sum())

    def select(self, nodes: npt.NDArray[np.int64], *, own_statistics: bool = True) -> "Postings":
        """Return the postings of some texts, ascending, as if there were no others."""
        lengths, numbers = self.lengths[nodes], renumbered(nodes, len(self.lengths), self.numbers)
        tokens, whole = int(lengths.sum(dtype=np.int64)), None if own_statistics else self.whole or self
        return replace(self, lengths=lengths, num_tokens=tokens, numbers=numbers, whole=whole)

    def compacted(self) -> "Postings":
        """Return the same postings without those of texts that do not count, over which no look-up then passes."""
        if self.numbers is None:
            return self
        ptr, kept = kept_entries(self.ptr, self.texts, self.numbers)
        texts, counts = self.numbers[self.texts[kept]], self.counts[kept]
        if (added := self.added) is not None:
            text = self.numbers[np.repeat(np.arange(added.first, added.first + len(added.ptr) - 1), np.diff(added.ptr))]
            more = text >= 0
            token = np.concatenate([np.repeat(np.arange(len(ptr) - 1), np.diff(ptr)), added.tokens[more]])
            order = np.argsort(token, kind="stable")
            ptr = np.searchsorted(token[order], np.arange(len(self.words) + 1))
            texts, counts = (
                np.concatenate(pair)[order] for pair in ((texts, text[more]), (counts, added.counts[more]))
            )
        return replace(self, ptr=ptr, texts=texts, counts=counts, added=None, numbers=None)

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
        if self.numbers is None:
            return texts, counts
        texts = self.numbers[texts]
        return texts[texts >= 0], counts[texts >= 0]


@dataclass(frozen=True, eq=False)
class TextStems:
    """The different stems of each of ``N`` texts, of ``V`` in all."""

    words: Vocabulary  # `V` stems
    ptr: Integers  # `[N + 1]` int64; text `i` holds `stems[ptr[i]:ptr[i + 1]]`
    stems: Integers  # `[P]` int32, ascending within a text
    in_lead: npt.NDArray[np.bool_]  # `[P]`, whether the stem stands in the text's lead
    texts_with: Integers  # `[V]` int64, number of texts that hold each stem, without removed ones
    num_texts: int  # without removed ones
    rows: Integers | None = None  # `[N']` int64, the row of each text; None: as its number

    def select(self, nodes: npt.NDArray[np.int64], *, own_statistics: bool = True) -> "TextStems":
        """Return the stems of some texts, as if there were no others."""
        rows = nodes if self.rows is None else self.rows[nodes]
        if not own_statistics:
            return replace(self, rows=rows)
        held = self.stems[slots_of(self.ptr[rows], self.ptr[rows + 1])[1]]
        texts_with = np.bincount(held, minlength=len(self.texts_with))
        return replace(self, texts_with=texts_with, num_texts=len(rows), rows=rows)


@dataclass(frozen=True, eq=False)
class WordIndex:
    """The words of a corpus's texts: ``tokens`` for BM25, ``stems`` for what a passage covers of a query."""

    tokens: Postings
    stems: TextStems

    def select(self, nodes: npt.NDArray[np.int64], **statistics: bool) -> "WordIndex":
        """Return the words of some texts, ascending, as if there were no others."""
        return WordIndex(self.tokens.select(nodes, **statistics), self.stems.select(nodes, **statistics))


@dataclass(frozen=True)
class Passages:
    """``N`` passages, in memory or mapped from a corpus folder."""

    ids: Sequence[str]  # unique
    texts: Sequence[str]
    title_lengths: Tensor | None = None  # `[N]` int32, characters of its title at the start of a text; None if unknown
    language: str = "english"  # in which words of texts and queries are matched (`graphrerank.text.languages`)
    words: WordIndex | None = None  # None if the texts have to be read for them
    removed: Tensor | None = None  # `[N]` bool, passages that keep their numbers, without edges, never ranked
    metadata: Metadata | None = None  # None where nothing is known of any

    def select(self, nodes: npt.NDArray[np.int64], **statistics: bool) -> "Passages":
        """Return some passages, ascending, none of them removed, as if there were no others."""
        return replace(
            self,
            ids=chosen(self.ids, nodes),
            texts=chosen(self.texts, nodes),
            title_lengths=None if self.title_lengths is None else self.title_lengths[nodes],
            words=None if self.words is None else self.words.select(nodes, **statistics),
            removed=None,
            metadata=None if self.metadata is None else self.metadata.select(nodes),
        )

    def compacted(self) -> "Passages":
        """Return the same passages, whose look-ups take no time for those of which they were selected."""
        words, metadata = self.words, self.metadata
        return replace(
            self,
            words=None if words is None else replace(words, tokens=words.tokens.compacted()),
            metadata=None if metadata is None else metadata.compacted(),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: str | torch.device) -> "Passages":
        """Return the same passages for scores on a device."""
        return self if self.removed is None else replace(self, removed=self.removed.to(device))

    def title(self, number: int) -> str:
        """Return the title of a passage; empty if unknown."""
        return "" if self.title_lengths is None else self.texts[number][: int(self.title_lengths[number])]

    def mask_removed(self, scores: Tensor) -> Tensor:
        """Return scores ``[B, N]`` of all passages with -inf for removed ones, which are then not ranked."""
        return scores if self.removed is None else scores.masked_fill(self.removed.to(scores.device), -torch.inf)


@dataclass(frozen=True)
class NodeVectors:
    """One vector per node. A node without one has zeros, and is found by its words and its neighbours."""

    embedding: Tensor  # `[N, d]` float32, or float16 on disk
    index: Path | None = None  # of FAISS over the first of the vectors; its suffix is its kind, `.ivf` or `.hnsw`
    content: str | None = None  # hash of ids, texts and vectors, if known

    def select(self, nodes: Tensor) -> "NodeVectors":
        """Return the vectors of some nodes, in memory."""
        return NodeVectors(self.embedding[nodes])

    def to(self, device: str | torch.device) -> "NodeVectors":
        """Return the same vectors on a device."""
        return replace(self, embedding=self.embedding.to(device))
