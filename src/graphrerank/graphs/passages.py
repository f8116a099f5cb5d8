"""The passages of a corpus by number: their ids and texts, their words, read once, and their vectors."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Integers = npt.NDArray[np.signedinteger[Any]]


class PackedStrings(Sequence[str]):
    """``N`` strings in UTF-8, a lone surrogate included: ``content[offsets[i]:offsets[i + 1]]``, or to ``stops[i]``.

    Example:
        >>> strings = PackedStrings.of(["b", "", "c\u00e9"])
        >>> strings[2], strings[1:], len(strings)
        ('cé', ['', 'cé'], 3)
    """

    def __init__(
        self,
        offsets: npt.NDArray[np.int64],
        content: npt.NDArray[np.uint8],
        stops: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self.offsets = offsets
        self.content = content
        self._stops = offsets[1:] if stops is None else stops

    @classmethod
    def of(cls, strings: Iterable[str]) -> "PackedStrings":
        """Pack strings in memory."""
        return cls.of_encoded([string.encode("utf-8", "surrogatepass") for string in strings])

    @classmethod
    def of_encoded(cls, encoded: Sequence[bytes]) -> "PackedStrings":
        """Pack strings that are in UTF-8 already."""
        offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return cls(offsets, np.frombuffer(bytearray(b"".join(encoded)), dtype=np.uint8))

    def chosen(self, places: npt.NDArray[np.int64]) -> "PackedStrings":
        """Return some of the strings, without a copy of their bytes."""
        return PackedStrings(np.append(self.offsets[places], 0), self.content, self._stops[places])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"`index` must lie in 0 to {len(self) - 1}, got {index}")
        return self._encoded(index % len(self)).decode("utf-8", "surrogatepass")

    def rank(self, string: str) -> int:
        """Return the place of a string among these, which ascend by their bytes; -1 if it is none of them."""
        wanted = string.encode("utf-8", "surrogatepass")
        place = bisect_left(range(len(self)), wanted, key=self._encoded)
        return place if place < len(self) and self._encoded(place) == wanted else -1

    def _encoded(self, place: int) -> bytes:
        return self.content[self.offsets[place] : self._stops[place]].tobytes()


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


@dataclass(frozen=True)
class Passages:
    """``N`` passages, in memory or mapped from a corpus folder."""

    ids: Sequence[str]  # unique
    texts: Sequence[str]
    title_lengths: Tensor | None = None  # `[N]` int32, characters of its title at the start of a text; None if unknown
    language: str = "english"  # in which words of texts and queries are matched (`graphrerank.text.languages`)
    words: WordIndex | None = None  # None if the texts have to be read for them
    removed: Tensor | None = None  # `[N]` bool, passages that keep their numbers, without edges, never ranked

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

    def to(self, device: str | torch.device) -> "NodeVectors":
        """Return the same vectors on a device."""
        return replace(self, embedding=self.embedding.to(device))
