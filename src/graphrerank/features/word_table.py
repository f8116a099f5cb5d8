r"""Texts as numbers: BM25's tokens and the stems of :mod:`graphrerank.text.stems`, each word analysed once.

A run of word characters (``\w+``) determines its tokens and its stems, so that a table from runs to numbers replaces
lower-casing, stop words and stemming: a text costs one split and one look-up per run. The one exception is the Greek
capital sigma, whose lower case depends on what follows the run; texts that hold one are put into lower case before
their tokens are read, as ``bm25s`` does.
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

KEPT_BYTES = 1 << 26  # of runs, and of texts with their words, that a process keeps
RUN_BYTES, TEXT_BYTES = 500, 700  # of Python objects for each, in addition to characters and numbers
BLOCK_TEXTS = 128  # that are split at once
PRIVATE_CHARS = 1 << 20  # texts of more characters are read by a separate table, and not kept

Integers = npt.NDArray[np.int64]

_RUN, _TOKEN = re.compile(r"\w+"), re.compile(r"\w\w+")
_ASCII_GAPS = {code: " " for code in range(128) if not _RUN.match(chr(code))}
_STOP_WORDS = frozenset(STOPWORDS_EN)
_SIGMA = "\u03a3"


@dataclass(frozen=True, eq=False)
class TextWords:
    """Words of texts, by their numbers in a table, one text after the other, repeats included."""

    num_texts: int
    tokens: Integers  # `[L]`, of BM25
    text_of_token: Integers  # `[L]`
    stems: Integers  # `[S]`
    text_of_stem: Integers  # `[S]`
    in_lead: npt.NDArray[np.bool_]  # `[S]`, whether it stands in its text's `graphrerank.text.stems.lead`


class _SplitText(NamedTuple):
    """Words of one text."""

    tokens: Integers
    stems: Integers
    num_in_lead: int  # stems, the first ones


class WordTable:
    """Numbers tokens and stems, each from 0; for use by many threads at once.

    Tokens are those of ``bm25s.tokenize(texts, stopwords="en")`` in NFKC, or of another language
    (:mod:`~graphrerank.text.languages`), stems those of :func:`~graphrerank.text.stems.words`.

    Example:
        >>> table = WordTable()
        >>> found = table.read(["Red apples. A pear", "pears"])
        >>> found.tokens.tolist(), found.stems.tolist(), found.in_lead.tolist()
        ([0, 1, 2, 3], [0, 1, 2, 2], [True, True, False, True])
    """

    def __init__(self, language: str = ENGLISH) -> None:
        self._lock = Lock()
        self._language = language_of(language)
        self._runs, self._tokens, self._stems = _Numbers(), _Numbers(), _Numbers()
        self._tokens_of_run, self._stems_of_run = _Rows(), _Rows()
        self.num_bytes = 0  # about

    @property
    def num_stems(self) -> int:
        """One more than the largest number of a stem."""
        return len(self._stems)

    @property
    def token_words(self) -> list[str]:
        """The tokens, by number."""
        return list(self._tokens)

    @property
    def stem_words(self) -> list[str]:
        """The stems, by number."""
        return list(self._stems)

    def read(self, texts: Sequence[str]) -> TextWords:
        """Split texts into words."""
        return _joined(self.entries(texts))

    def entries(self, texts: Sequence[str]) -> list[_SplitText]:
        """Split texts into words, each by itself."""
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
        """Return the numbers of the runs of all parts, and where each part ends among them."""
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
    """Numbers words from 0 as they are looked up."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class _Rows:
    """Rows of numbers, one after the other."""

    def __init__(self) -> None:
        self._starts, self._numbers = array("q", [0]), array("q")

    def __len__(self) -> int:
        return len(self._starts) - 1

    def append(self, row: Iterable[int]) -> None:
        self._numbers.extend(row)
        self._starts.append(len(self._numbers))

    def take(self, rows: Integers, ends: Sequence[int]) -> tuple[Integers, list[int]]:
        """Return the numbers of rows, and where the first ``ends`` rows of them end."""
        all_starts = np.asarray(self._starts)
        starts = all_starts[rows]
        counts = all_starts[rows + 1] - starts
        before = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(before[-1]) + np.repeat(starts - before[:-1], counts)
        return np.asarray(self._numbers)[places], before[ends].tolist()


def _joined(entries: Sequence[_SplitText]) -> TextWords:
    texts = np.arange(len(entries))
    tokens, stems = [entry.tokens for entry in entries], [entry.stems for entry in entries]
    text_of_token, text_of_stem = (np.repeat(texts, [len(part) for part in parts]) for parts in (tokens, stems))
    place = np.arange(len(text_of_stem)) - np.searchsorted(text_of_stem, texts)[text_of_stem]
    none = np.zeros(0, np.int64)  # what is joined must not be empty
    return TextWords(
        len(entries),
        np.concatenate([none, *tokens]),
        text_of_token,
        np.concatenate([none, *stems]),
        text_of_stem,
        place < np.array([entry.num_in_lead for entry in entries], np.int64)[text_of_stem],
    )


class SharedWords:
    """Reads texts by one table, and keeps what it read: passages come again, in other requests.

    For use by many threads at once. It starts over when it keeps ``KEPT_BYTES``.
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
        """Split texts into words; as :func:`words_of`."""
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
    """Split a request's texts by a table that all requests in a language share, or a new one if they are long."""
    if sum(map(len, texts)) <= PRIVATE_CHARS:
        return (_SHARED.get(language) or _SHARED.setdefault(language, SharedWords(language))).read(texts)
    table = WordTable(language)
    return table.read(texts), table


def first_of_equals(ascending: Integers) -> npt.NDArray[np.bool_]:
    """Mark the first of each run of equal numbers.

    Example:
        >>> first_of_equals(np.array([3, 3, 5])).tolist()
        [True, False, True]
    """
    is_first = np.ones(len(ascending), dtype=bool)
    np.not_equal(ascending[1:], ascending[:-1], out=is_first[1:])
    return is_first
