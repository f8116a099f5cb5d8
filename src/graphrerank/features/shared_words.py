"""Words of requests' texts, which a process keeps: passages come again, in other requests."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from threading import Lock

import numpy as np
import numpy.typing as npt

from graphrerank.features.word_table import TextWords, WordTable
from graphrerank.text.languages import ENGLISH

KEPT_BYTES = 1 << 25  # of texts and their words
ENTRY_BYTES = 700  # of Python objects for each text, in addition to its characters and numbers
PRIVATE_CHARS = 1 << 20  # texts of more characters are read by a separate table, and not kept

Entry = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]  # tokens, stems, how many of these are the lead's


class SharedWords:
    """Reads texts by one table, and keeps up to ``KEPT_BYTES`` of what it read; for use by many threads at once.

    It starts over when the table is full.
    """

    def __init__(self, language: str = ENGLISH) -> None:
        self._lock = Lock()
        self._language = language
        self._start()

    def _start(self) -> None:
        self.table = WordTable(self._language)
        self._entries: dict[str, Entry] = {}
        self._num_bytes = 0

    def read(self, texts: Sequence[str], *, check: Callable[[], None]) -> tuple[TextWords, WordTable]:
        """Split texts into words; as :func:`words_of`."""
        with self._lock:
            if self.table.is_full:
                self._start()
            table, entries = self.table, self._entries
        found = [entries.get(text) for text in texts]
        if None in found:
            new = list(dict.fromkeys(text for text, entry in zip(texts, found, strict=True) if entry is None))
            read = dict(zip(new, _entries(table.read(new, check=check)), strict=True))
            self._keep(read, entries)
            found = [entry or read[text] for text, entry in zip(texts, found, strict=True)]
        return _together([entry for entry in found if entry is not None]), table

    def _keep(self, read: dict[str, Entry], entries: dict[str, Entry]) -> None:
        num_bytes = sum(
            4 * len(text) + 8 * (len(entry[0]) + len(entry[1])) + ENTRY_BYTES for text, entry in read.items()
        )
        with self._lock:
            if entries is not self._entries:  # of a table that another thread has replaced
                return
            if self._num_bytes + num_bytes > KEPT_BYTES:
                self._entries.clear()
                self._num_bytes = 0
            self._entries.update(read)
            self._num_bytes += num_bytes


_SHARED = {ENGLISH: SharedWords()}


def words_of(
    texts: Sequence[str], *, language: str = ENGLISH, check: Callable[[], None] = lambda: None
) -> tuple[TextWords, WordTable]:
    """Split a request's texts, one at least, by a table that all requests in a language share; long ones by another.

    Returns:
        The words, and the table that numbered them; ``check`` is as of :meth:`WordTable.read`.
    """
    if sum(map(len, texts)) <= PRIVATE_CHARS:
        shared = _SHARED.get(language) or _SHARED.setdefault(language, SharedWords(language))
        return shared.read(texts, check=check)
    table = WordTable(language)
    return table.read(texts, check=check), table


def _entries(words: TextWords) -> list[Entry]:
    ends = np.arange(words.num_texts + 1)
    tokens = pairwise(np.searchsorted(words.text_of_token, ends).tolist())
    stems = pairwise(np.searchsorted(words.text_of_stem, ends).tolist())
    leads = np.bincount(words.text_of_stem[words.in_lead], minlength=words.num_texts).tolist()
    return [
        (words.tokens[slice(*of_tokens)], words.stems[slice(*of_stems)], in_lead)
        for of_tokens, of_stems, in_lead in zip(tokens, stems, leads, strict=True)
    ]


def _together(entries: Sequence[Entry]) -> TextWords:
    tokens, stems, leads = zip(*entries, strict=True)
    texts = np.arange(len(entries))
    length = np.fromiter(map(len, stems), np.int64, len(stems))
    text_of_stem = np.repeat(texts, length)
    place = np.arange(len(text_of_stem)) - (np.cumsum(length) - length)[text_of_stem]
    return TextWords(
        len(entries),
        np.concatenate(tokens),
        np.repeat(texts, np.fromiter(map(len, tokens), np.int64, len(tokens))),
        np.concatenate(stems),
        text_of_stem,
        place < np.array(leads)[text_of_stem],
    )
