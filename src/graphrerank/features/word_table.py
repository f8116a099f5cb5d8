r"""Conversion of texts to indices of BM25 tokens and stems, in which each distinct word is analysed only once.

A run of word characters (``\w+``) determines its tokens and its stems. A table from runs to numbers therefore replaces
lower-casing, stop-word removal and stemming, so a text costs one split and one look-up per run. The only exception is
the Greek capital sigma, whose lower case depends on the characters after the run. Texts that contain it are converted
to lower case before their tokens are read, as in ``bm25s``.
"""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from bm25s.stopwords import STOPWORDS_EN

from graphrerank.text.characters import matched_form
from graphrerank.text.languages import ENGLISH, language_of
from graphrerank.text.stems import lead, words

#: Largest number of bytes of cached runs and texts in a process.
KEPT_BYTES = 1 << 26
#: Estimated bytes of the Python objects of a cached run and of a cached text, besides their characters and numbers.
RUN_BYTES, TEXT_BYTES = 500, 700
#: Number of texts that are split before the lock is released.
BLOCK_TEXTS = 128
#: Requests with more characters use a table of their own and are not cached.
PRIVATE_CHARS = 1 << 20

Integers = npt.NDArray[np.int64]

_RUN, _TOKEN = re.compile(r"\w+"), re.compile(r"\w\w+")
_ASCII_GAPS = {code: " " for code in range(128) if not _RUN.match(chr(code))}
_STOP_WORDS = frozenset(STOPWORDS_EN)
_SIGMA = "\u03a3"


@dataclass(frozen=True, eq=False)
class TextWords:
    """Words of texts as indices in a table, with repetitions, one text after the other.

    Attributes:
        num_texts: Number of texts.
        tokens: BM25 tokens ``[L]``.
        text_of_token: Index of the text of each token, ``[L]``.
        stems: Stems ``[S]``.
        text_of_stem: Index of the text of each stem, ``[S]``.
        in_lead: Whether a stem is in the first sentence of its text (see :func:`graphrerank.text.lead`), ``[S]`` bool.
    """

    num_texts: int
    tokens: Integers
    text_of_token: Integers
    stems: Integers
    text_of_stem: Integers
    in_lead: npt.NDArray[np.bool_]


class _SplitText(NamedTuple):
    """Words of one text.

    Attributes:
        tokens: Indices of the BM25 tokens.
        stems: Indices of the stems.
        num_in_lead: Number of stems in the first sentence, which come first.
    """

    tokens: Integers
    stems: Integers
    num_in_lead: int


class WordTable:
    """Table that numbers tokens and stems from 0. It can be used by several threads at once.

    English tokens are those of ``bm25s.tokenize(texts, stopwords="en")`` after NFKC normalisation. For other languages
    see :mod:`~graphrerank.text.languages`. Stems are those of :func:`~graphrerank.text.stems.words`.

    Args:
        language: Language of the texts.

    Example:
        >>> table = WordTable()
        >>> split = table.read(["Red apples. A pear", "pears"])
        >>> split.tokens.tolist(), split.stems.tolist(), split.in_lead.tolist()
        ([0, 1, 2, 3], [0, 1, 2, 2], [True, True, False, True])
    """

    def __init__(self, language: str = ENGLISH) -> None:
        self._lock = Lock()
        self._language = language_of(language)
        self._runs, self._tokens, self._stems = _Numbers(), _Numbers(), _Numbers()
        self._tokens_of_run, self._stems_of_run = _Rows(), _Rows()
        self.num_bytes = 0  # estimated size of the table

    @property
    def num_stems(self) -> int:
        """Number of distinct stems."""
        return len(self._stems)

    @property
    def token_words(self) -> list[str]:
        """Tokens in the order of their indices."""
        return list(self._tokens)

    @property
    def stem_words(self) -> list[str]:
        """Stems in the order of their indices."""
        return list(self._stems)

    def read(self, texts: Sequence[str]) -> TextWords:
        """Split texts into words.

        Args:
            texts: Texts to split into words.

        Returns:
            Words of all texts.
        """
        return _joined(self.entries(texts))

    def entries(self, texts: Sequence[str]) -> list[_SplitText]:
        """Split texts into words, with a separate entry for each text.

        Args:
            texts: Texts to split into words.

        Returns:
            Words of each text.
        """
        entries: list[_SplitText] = []
        for start in range(0, len(texts), BLOCK_TEXTS):
            with self._lock:
                entries += self._entries(texts[start : start + BLOCK_TEXTS])
        return entries

    def _entries(self, texts: Sequence[str]) -> Iterator[_SplitText]:
        parts, texts = [], [matched_form(text) for text in texts]
        for text in texts:
            title = lead(text)
            parts += [title, text[len(title) :]]
        runs, ends = self._numbered(parts)
        stems, ends_of_stems = self._stems_of_run.take(runs, ends)
        if any(_SIGMA in text for text in texts):
            runs, ends = self._numbered([part.lower() for part in parts])
        tokens, ends_of_tokens = self._tokens_of_run.take(runs, ends)
        start = begin = 0
        for end, title_end, stop in zip(ends_of_tokens[1::2], ends_of_stems[::2], ends_of_stems[1::2], strict=True):
            yield _SplitText(tokens[start:end], stems[begin:stop], title_end - begin)
            start, begin = end, stop

    def _numbered(self, parts: Sequence[str]) -> tuple[Integers, list[int]]:
        """Return the indices of the runs of all parts of texts, and the end of each part among them."""
        numbers, ends = array("q"), []
        for part in parts:
            runs = part.translate(_ASCII_GAPS).split() if part.isascii() else _RUN.findall(part)
            numbers.extend(map(self._runs.__getitem__, runs))
            ends.append(len(numbers))
        if num_new := len(self._runs) - len(self._stems_of_run):
            self._analyse([*islice(reversed(self._runs), num_new)][::-1])
        return np.asarray(numbers), ends

    def _analyse(self, runs: Sequence[str]) -> None:
        self.num_bytes += sum(RUN_BYTES + 4 * len(run) for run in runs)
        for run in runs:
            if self._language.name == ENGLISH:
                tokens = [token for token in _TOKEN.findall(run.lower()) if token not in _STOP_WORDS]
            else:
                tokens = self._language.tokens(run)
            self._tokens_of_run.append(map(self._tokens.__getitem__, tokens))
            self._stems_of_run.append(map(self._stems.__getitem__, words(run, self._language.name)))


class _Numbers(dict[str, int]):
    """Dictionary that numbers words from 0 when they are first looked up."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class _Rows:
    """Rows of numbers of different lengths, stored contiguously."""

    def __init__(self) -> None:
        self._starts, self._numbers = array("q", [0]), array("q")

    def __len__(self) -> int:
        return len(self._starts) - 1

    def append(self, row: Iterable[int]) -> None:
        self._numbers.extend(row)
        self._starts.append(len(self._numbers))

    def take(self, rows: Integers, ends: Sequence[int]) -> tuple[Integers, list[int]]:
        """Return the concatenated numbers of rows, and for each of ``ends`` the length of the first ``end`` rows."""
        all_starts = np.asarray(self._starts)
        starts = all_starts[rows]
        counts = all_starts[rows + 1] - starts
        before = np.concatenate([[0], np.cumsum(counts)])
        positions = np.arange(before[-1]) + np.repeat(starts - before[:-1], counts)
        return np.asarray(self._numbers)[positions], before[ends].tolist()


def _joined(entries: Sequence[_SplitText]) -> TextWords:
    texts = np.arange(len(entries))
    tokens, stems = [entry.tokens for entry in entries], [entry.stems for entry in entries]
    text_of_token, text_of_stem = (np.repeat(texts, [len(part) for part in parts]) for parts in (tokens, stems))
    position = np.arange(len(text_of_stem)) - np.searchsorted(text_of_stem, texts)[text_of_stem]
    none = np.zeros(0, np.int64)  # np.concatenate needs at least one array
    return TextWords(
        len(entries),
        np.concatenate([none, *tokens]),
        text_of_token,
        np.concatenate([none, *stems]),
        text_of_stem,
        position < np.array([entry.num_in_lead for entry in entries], np.int64)[text_of_stem],
    )


class SharedWords:
    """Cache of texts that were split into words, for passages that occur in several requests.

    It can be used by several threads at once. When it exceeds ``KEPT_BYTES``, it is cleared.

    Args:
        language: Language of the texts.
    """

    def __init__(self, language: str = ENGLISH) -> None:
        self._lock = Lock()
        self._language = language
        self._start()

    def _start(self) -> None:
        self._table = WordTable(self._language)
        self._entries: dict[str, _SplitText] = {}
        self._num_bytes = 0

    def read(self, texts: Sequence[str]) -> tuple[TextWords, WordTable]:
        """Split texts into words.

        Args:
            texts: Texts to split into words.

        Returns:
            Words of the texts, and the table that numbers them.
        """
        with self._lock:
            if self._num_bytes + self._table.num_bytes > KEPT_BYTES:
                self._start()
            table = self._table
            if new := [text for text in dict.fromkeys(texts) if text not in self._entries]:
                for text, entry in zip(new, table.entries(new), strict=True):
                    self._entries[text] = entry
                    self._num_bytes += TEXT_BYTES + 4 * len(text) + 8 * (len(entry.tokens) + len(entry.stems))
            return _joined([self._entries[text] for text in texts]), table


_SHARED = {ENGLISH: SharedWords()}


def words_of(texts: Sequence[str], *, language: str = ENGLISH) -> tuple[TextWords, WordTable]:
    """Split the texts of a request into words.

    Short requests in the same language share one table. A request with more than ``PRIVATE_CHARS`` characters has its
    own.

    Args:
        texts: Texts of the request.
        language: Language of the texts.

    Returns:
        Words of the texts, and the table that numbers them.
    """
    if sum(map(len, texts)) <= PRIVATE_CHARS:
        return (_SHARED.get(language) or _SHARED.setdefault(language, SharedWords(language))).read(texts)
    table = WordTable(language)
    return table.read(texts), table


def first_of_equals(ascending: Integers) -> npt.NDArray[np.bool_]:
    """Mark the first element of each run of equal numbers.

    Args:
        ascending: Sorted numbers ``[n]``.

    Returns:
        Boolean mask ``[n]``.

    Example:
        >>> first_of_equals(np.array([3, 3, 5])).tolist()
        [True, False, True]
    """
    is_first = np.ones(len(ascending), dtype=bool)
    np.not_equal(ascending[1:], ascending[:-1], out=is_first[1:])
    return is_first
