"""The names of passages in a corpus folder: who bears a name, and which names stand in a text."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from graphrerank.data.corpus_folder.columns import Column, Columns, write_column
from graphrerank.data.corpus_folder.node_numbers import hash_strings
from graphrerank.data.corpus_folder.term_index import Integers, TermIndex, write_terms
from graphrerank.data.enrichment.mentions import Owner, names_of

NAMES = "names"
BASE = np.uint64(0x9E3779B97F4A7C15)  # of hashes of sequences of words
Record = tuple[
    int, int
]  # number of a passage, and a code: tier, and whether first and last word have a capital initial
Bearers = Mapping[int, Owner]


def names_and_codes(title: str, text: str) -> tuple[list[str], list[int]]:
    """List the names of a passage, their words joined by blanks, and the code of each."""
    names = names_of(title, text)
    codes = [tier << 2 | owner.first_capital << 1 | owner.last_capital for (tier, _), owner in names.items()]
    return [" ".join(name) for _, name in names], codes


def bearers(records: Iterable[Record]) -> dict[int, Owner]:
    """Return the passages that bear a name most strongly, of all that bear it."""
    rows = sorted(records)
    strongest = min((code >> 2 for _, code in rows), default=0)
    return {node: Owner(bool(code & 2), bool(code & 1)) for node, code in rows if code >> 2 == strongest}


class NameIndex(TermIndex):
    """The names of ``N`` passages, each with the passages that bear it.

    Args:
        columns: The columns of a corpus folder.
        num_nodes: ``N``.
        new: Names that are about to be added.
    """

    def __init__(self, columns: Columns, num_nodes: int, new: Iterable[str] = ()) -> None:
        super().__init__(columns, NAMES, num_nodes)
        self._hashes, self._by_hash = (columns.array(f"{NAMES}.{name}", "<i8") for name in ("hashes", "by_hash"))
        self.added = list(dict.fromkeys([*self.words[len(self._by_hash) :], *new]))
        hashes = hash_names(self.added)
        order = np.argsort(hashes, kind="stable")
        self._added_hashes, self._added_order = hashes[order], order
        self._lengths = sorted({*columns.array(f"{NAMES}.lengths", "<i4").tolist(), *lengths_of(self.added)})

    def occurring(self, texts: Sequence[Sequence[str]]) -> tuple[Integers, list[str]]:
        """List the names whose words, in lower case, follow each other in some texts.

        Args:
            texts: The words of each text, in lower case.

        Returns:
            For each name that occurs the number of the text, ascending, and the name; each name once in a text.
        """
        number = {word: place for place, word in enumerate({word for words in texts for word in words})}
        if not number:
            return np.zeros(0, dtype=np.int64), []
        word_hash = hash_strings(list(number)).view(np.uint64)
        words = word_hash[np.array([number[word] for text in texts for word in text], dtype=np.int64)]
        stop = np.cumsum([len(text) for text in texts])
        text_of = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
        left = stop[text_of] - np.arange(len(words))  # words from here to the text's end
        rolling = np.zeros(len(words), dtype=np.uint64)
        found: list[tuple[Integers, Integers]] = []
        for length in range(1, max(self._lengths, default=0) + 1):
            here = left >= length
            rolling[here] = rolling[here] * BASE + words[np.flatnonzero(here) + length - 1]
            if length in self._lengths:
                found.extend(self._with_hash(text_of[here], rolling[here].view(np.int64)))
        prepared, size = len(self._by_hash), max(1, len(self._by_hash) + len(self.added))
        keys = [np.zeros(0, dtype=np.int64), *(text * size + name for text, name in found)]
        text, name = np.divmod(np.unique(np.concatenate(keys)), size)
        return text, [self.words[n] if n < prepared else self.added[n - prepared] for n in name.tolist()]

    def _with_hash(self, text: Integers, wanted: Integers) -> Iterable[tuple[Integers, Integers]]:
        for hashes, by_hash, first in (
            (self._hashes, self._by_hash, 0),
            (self._added_hashes, self._added_order, len(self._by_hash)),
        ):
            start, stop = (np.searchsorted(hashes, wanted, side=side) for side in ("left", "right"))
            while (some := start < stop).any():
                yield text[some], by_hash[start[some]] + first
                start = start + some


def hash_names(names: Sequence[str]) -> Integers:
    """Hash names, ``[n]`` int64: by the hashes of their words, so that those in a text are found by few products."""
    words = [name.split(" ") for name in names]
    number = {word: place for place, word in enumerate({word for row in words for word in row})}
    hashes = np.zeros(len(names), dtype=np.uint64)
    if not number:
        return hashes.view(np.int64)
    word_hash = hash_strings(list(number)).view(np.uint64)
    flat = np.array([number[word] for row in words for word in row], dtype=np.int64)
    ptr = np.cumsum([0, *map(len, words)])
    length = np.diff(ptr)
    for place in range(int(length.max())):
        here = np.flatnonzero(length > place)
        hashes[here] = hashes[here] * BASE + word_hash[flat[ptr[here] + place]]
    return hashes.view(np.int64)


def lengths_of(names: Iterable[str]) -> set[int]:
    """Return how many words names have."""
    return {name.count(" ") + 1 for name in names}


def write_names(
    folder: Path, rows: Sequence[tuple[list[str], list[int]]], counts: Mapping[str, int]
) -> dict[str, Column]:
    """Write the names of passages (:func:`names_and_codes`), and how many passages mention each."""
    columns = write_terms(
        folder, NAMES, (names for names, _ in rows), codes=(codes for _, codes in rows), counts=counts
    )
    words = sorted({name.encode("utf-8", "surrogatepass") for names, _ in rows for name in names})
    names = [word.decode("utf-8", "surrogatepass") for word in words]
    hashes = hash_names(names)
    order = np.argsort(hashes, kind="stable")
    for name, dtype, array in (
        ("hashes", "<i8", hashes[order]),
        ("by_hash", "<i8", order),
        ("lengths", "<i4", np.array(sorted(lengths_of(names)), dtype=np.int64)),
    ):
        columns[f"{NAMES}.{name}"] = write_column(folder, f"{NAMES}.{name}", dtype, (), [array])
    return columns
