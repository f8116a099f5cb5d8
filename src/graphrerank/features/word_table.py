r"""Texts as numbers: BM25's tokens and the stems of :mod:`graphrerank.text.stems`, each word analysed once.

- A run of word characters (``\w+``) determines its tokens and its stems, so that a table from runs to numbers replaces
  lower-casing, stop words and stemming: a text costs one split and one look-up per run.
- The one exception is the Greek capital sigma, whose lower case depends on what follows the run; texts that hold one
  are put into lower case before their tokens are read, as ``bm25s`` does.
"""

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock

import numpy as np
import numpy.typing as npt
from bm25s.stopwords import STOPWORDS_EN

from graphrerank.text.languages import ENGLISH, language_of
from graphrerank.text.stems import STOP_WORDS, lead, spelled_words, stems, words

BLOCK_CHARS = 1 << 18  # of texts that are split at once
FULL_RUNS = 1 << 17  # different runs in a table that is full, or
FULL_CHARS = 1 << 21  # characters of them: some 40 MiB in all
KEPT_BYTES = 1 << 25  # of texts and their words that a process keeps
ENTRY_BYTES = 700  # of Python objects for each of these texts, in addition to its characters and numbers
PRIVATE_CHARS = 1 << 20  # texts of more characters are read by a separate table, and not kept

Integers = npt.NDArray[np.int64]

_END = "\0"  # of a lead, and of a text: in turns
_RUN = re.compile(rf"\w+|{_END}")
_TOKEN = re.compile(rf"\w\w+|{_END}")
_ASCII_GAPS = {code: " " for code in range(1, 128) if not re.match(r"\w", chr(code))}
_SIGMA = "\u03a3"
_STOP_WORD, _NO_NUMBER = -1, -2


@dataclass(frozen=True, eq=False)
class TextWords:
    """Words of texts, by their numbers in a table, one text after the other, repeats included."""

    num_texts: int
    tokens: Integers  # `[L]`, of BM25
    text_of_token: Integers  # `[L]`
    stems: Integers  # `[S]`
    text_of_stem: Integers  # `[S]`
    in_lead: npt.NDArray[np.bool_]  # `[S]`, whether it stands in its text's `graphrerank.text.stems.lead`


class WordTable:
    """Numbers tokens and stems, each from 0; for use by many threads at once.

    Tokens are those of ``bm25s.tokenize(texts, stopwords="en")``, or of another language
    (:mod:`~graphrerank.text.languages`), stems those of :func:`~graphrerank.text.stems.words`.

    Args:
        language: Of the texts.

    Example:
        >>> table = WordTable()
        >>> found = table.read(["Red apples. A pear", "pears"])
        >>> found.tokens.tolist(), found.stems.tolist(), found.in_lead.tolist()
        ([0, 1, 2, 3], [0, 1, 2, 2], [True, True, False, True])
    """

    def __init__(self, language: str = ENGLISH) -> None:
        self._lock = Lock()
        self._language = language_of(language)
        self._runs = _Runs()
        stop_words = STOPWORDS_EN if language == ENGLISH else ()
        self._token_numbers = _Numbers({**dict.fromkeys(stop_words, _STOP_WORD), _END: _NO_NUMBER})
        self._stem_numbers = _Numbers({})
        self._tokens, self._stems = _Rows(), _Rows()  # of each run
        self._num_chars = 0

    @property
    def num_stems(self) -> int:
        """One more than the largest number of a stem."""
        return self._stem_numbers.count

    @property
    def token_words(self) -> list[str]:
        """The tokens, by number."""
        return [word for word, number in self._token_numbers.items() if number >= 0]

    @property
    def stem_words(self) -> list[str]:
        """The stems, by number."""
        return list(self._stem_numbers)

    @property
    def is_full(self) -> bool:
        """Whether the table has grown beyond what is kept between requests."""
        return len(self._runs) > FULL_RUNS or self._num_chars > FULL_CHARS

    def read(self, texts: Sequence[str]) -> TextWords:
        """Split texts into words."""
        parts = []
        for block in _blocks(texts):
            with self._lock:
                parts.append(self._read(block))
        return parts[0] if len(parts) == 1 else _joined(parts)

    def _read(self, texts: Sequence[str]) -> TextWords:
        runs, part, has_sigma = self._split(texts)
        stem_of, found_stems = self._stems.take(runs)
        part_of_stem = part[stem_of]
        if has_sigma:
            runs, part, _ = self._split([text.lower() for text in texts])
        token_of, found_tokens = self._tokens.take(runs)
        return TextWords(
            len(texts), found_tokens, part[token_of] >> 1, found_stems, part_of_stem >> 1, (part_of_stem & 1) == 0
        )

    def _split(self, texts: Sequence[str]) -> tuple[Integers, Integers, bool]:
        """List the runs of texts by their numbers, and for each its part: twice its text, plus 1 behind the lead.

        Also returns whether there is a capital sigma.
        """
        spelled = []
        for text in texts:
            clean = text.replace(_END, "\1") if _END in text else text  # neither is part of a word or ends a lead
            title = lead(clean)
            spelled += [title, clean[len(title) :]]
        joined = f" {_END} ".join(spelled)
        found = joined.translate(_ASCII_GAPS).split() if joined.isascii() else _RUN.findall(joined)
        runs = np.fromiter(map(self._runs.__getitem__, found), np.int64, len(found))
        if added := self._runs.take_added():
            self._analyse(added)
        is_run = runs >= 0
        part: Integers = np.cumsum(~is_run)
        return runs[is_run], part[is_run], _SIGMA in joined

    def _analyse(self, runs: Sequence[str]) -> None:
        """Find the tokens and stems of new runs."""
        self._num_chars += sum(map(len, runs))
        if self._language.name != ENGLISH:
            tokens_of = [self._language.tokens(run) for run in runs]
            stems_of = [words(run, self._language.name) for run in runs]
            for rows, numbered, terms_of in (
                (self._tokens, self._token_numbers, tokens_of),
                (self._stems, self._stem_numbers, stems_of),
            ):
                entries = np.array([numbered[term] for terms in terms_of for term in terms], dtype=np.int64)
                rows.append(np.repeat(np.arange(len(runs)), list(map(len, terms_of))), entries, len(runs))
            return
        found = _TOKEN.findall(_END.join(runs).lower())  # which lowers each run by itself
        tokens = np.fromiter(map(self._token_numbers.__getitem__, found), np.int64, len(found))
        is_token = tokens >= 0
        self._tokens.append(np.cumsum(tokens == _NO_NUMBER)[is_token], tokens[is_token], len(runs))
        run_of_word: list[int] = []
        plain: list[str] = []
        for index, run in enumerate(runs):
            for word in map(str.lower, spelled_words(run)):
                if word not in STOP_WORDS:
                    run_of_word.append(index)
                    plain.append(word)
        numbers = np.fromiter(map(self._stem_numbers.__getitem__, stems(plain)), np.int64, len(plain))
        self._stems.append(np.array(run_of_word, dtype=np.int64), numbers, len(runs))


class _Numbers(dict[str, int]):
    """Numbers words from 0 as they are looked up; ``fixed`` ones have other numbers."""

    def __init__(self, fixed: Mapping[str, int]) -> None:
        super().__init__(fixed)
        self.count = 0

    def __missing__(self, word: str) -> int:
        number = self[word] = self.count
        self.count += 1
        return number


class _Runs(_Numbers):
    """Numbers runs, and remembers which were new."""

    def __init__(self) -> None:
        super().__init__({_END: _NO_NUMBER})
        self._added: list[str] = []

    def __missing__(self, word: str) -> int:
        self._added.append(word)
        return super().__missing__(word)

    def take_added(self) -> list[str]:
        """Return the runs that were new since the last call."""
        added, self._added = self._added, []
        return added


class _Rows:
    """Rows of numbers, to which rows are added in time proportional to them on average."""

    def __init__(self) -> None:
        self._ends, self._entries = array("q", [0]), array("q", [0])  # of which the first ones are no row's

    def append(self, row: Integers, entries: Integers, num_rows: int) -> None:
        """Add ``num_rows`` rows with entries ``[P]``, of the new ``row [P]``, ascending, from 0."""
        ends = len(self._entries) - 1 + np.cumsum(np.bincount(row, minlength=num_rows))
        self._ends.frombytes(ends.tobytes())
        self._entries.frombytes(entries.tobytes())

    def take(self, rows: Integers) -> tuple[Integers, Integers]:
        """Return the place of the row of each entry in ``rows``, and the entries of these rows."""
        all_ends, all_entries = (np.frombuffer(held, dtype=np.int64) for held in (self._ends, self._entries))
        start, count = all_ends[rows], all_ends[rows + 1] - all_ends[rows]
        ends = np.cumsum(count)
        origin = np.repeat(np.arange(len(rows)), count)
        return origin, all_entries[np.arange(1, len(origin) + 1) + (start - ends + count)[origin]]


def _blocks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split texts into blocks of some characters; at least one block."""
    start = chars = 0
    for end, text in enumerate(texts):
        if chars + len(text) > BLOCK_CHARS and end > start:
            yield texts[start:end]
            start, chars = end, 0
        chars += len(text)
    yield texts[start:]


def first_of_equals(ascending: Integers) -> npt.NDArray[np.bool_]:
    """Mark the first of each run of equal numbers.

    Example:
        >>> first_of_equals(np.array([3, 3, 5])).tolist()
        [True, False, True]
    """
    is_first = np.ones(len(ascending), dtype=bool)
    np.not_equal(ascending[1:], ascending[:-1], out=is_first[1:])
    return is_first


def _joined(parts: Sequence[TextWords]) -> TextWords:
    starts = np.cumsum([0, *(part.num_texts for part in parts)])
    return TextWords(
        int(starts[-1]),
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.text_of_token + start for part, start in zip(parts, starts, strict=False)]),
        np.concatenate([part.stems for part in parts]),
        np.concatenate([part.text_of_stem + start for part, start in zip(parts, starts, strict=False)]),
        np.concatenate([part.in_lead for part in parts]),
    )


Entry = tuple[Integers, Integers, int]  # tokens and stems of a text, how many of these are the lead's


class SharedWords:
    """Reads texts by one table, and keeps what it read: passages come again, in other requests.

    For use by many threads at once. It starts over when the table is full, or it keeps ``KEPT_BYTES``.
    """

    def __init__(self, language: str = ENGLISH) -> None:
        self._lock = Lock()
        self._language = language
        self._start()

    def _start(self) -> None:
        self.table = WordTable(self._language)
        self._entries: dict[str, Entry] = {}
        self._num_bytes = 0

    def read(self, texts: Sequence[str]) -> tuple[TextWords, WordTable]:
        """Split texts into words; as :func:`words_of`."""
        with self._lock:
            if self.table.is_full or self._num_bytes > KEPT_BYTES:
                self._start()
            table, entries = self.table, self._entries
            if new := [text for text in dict.fromkeys(texts) if text not in entries]:
                read = _entries(table.read(new))
                entries.update(zip(new, read, strict=True))
                self._num_bytes += sum(8 * (len(tokens) + len(stems)) + ENTRY_BYTES for tokens, stems, _ in read)
                self._num_bytes += 4 * sum(map(len, new))
            found = [entries[text] for text in texts]
        return _together(found), table


_SHARED = {ENGLISH: SharedWords()}


def words_of(texts: Sequence[str], *, language: str = ENGLISH) -> tuple[TextWords, WordTable]:
    """Split a request's texts, one at least, by a table that all requests in a language share; long ones by another.

    Returns:
        The words, and the table that numbered them.
    """
    if sum(map(len, texts)) <= PRIVATE_CHARS:
        return (_SHARED.get(language) or _SHARED.setdefault(language, SharedWords(language))).read(texts)
    table = WordTable(language)
    return table.read(texts), table


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
