"""Which passages hold which terms, on disk and in both directions; passages that are added follow behind."""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphrerank.data.corpus_folder.columns import Array, Column, Columns, write_column
from graphrerank.graphs import PackedStrings, Vocabulary

Integers = npt.NDArray[np.int64]
Append = Callable[[str, Array], None]  # rows to a column
HELD = (("held.ptr", "<i8"), ("held", "<i4"))
NONE = np.zeros(0, dtype=np.int64)


class TermIndex:
    """The terms of ``N`` passages.

    Args:
        columns: The columns of a corpus folder.
        name: What :func:`write_terms` called them.
        num_nodes: ``N``.
    """

    def __init__(self, columns: Columns, name: str, num_nodes: int) -> None:
        self.name = name
        self._columns = columns
        self._ptr, self._more_ptr = (columns.array(f"{name}.{column}", "<i8") for column in ("ptr", "added.ptr"))
        self._texts, self._more = (columns.array(f"{name}.{column}", "<i4") for column in ("texts", "added"))
        self.words = columns.strings(f"{name}.words")
        self.terms = Vocabulary(self.words, len(self._ptr) - 1)
        self.first = num_nodes - (len(self._more_ptr) - 1)  # number of the first passage that was added

    @cached_property
    def counts(self) -> Integers:
        """``[V]`` int64, a number of each term, as :func:`write_terms` was given it and changes were appended."""
        changes = self._columns.array(f"{self.name}.changes", "<i8", (2,))
        counts = np.zeros(len(self.words), dtype=np.int64)
        counts[: len(self._ptr) - 1] = self._columns.array(f"{self.name}.counts", "<i4")
        np.add.at(counts, changes[:, 0], changes[:, 1])
        return counts

    def terms_of(self, nodes: Integers) -> tuple[Integers, Integers]:
        """List the terms of some passages: for each the place of its passage in ``nodes``, ascending, and its number.

        Args:
            nodes: ``[n]`` int64, ascending. The index must be written ``both_ways``.
        """
        split = int(np.searchsorted(nodes, self.first))
        ptr, held = (self._columns.array(f"{self.name}.{column}", dtype) for column, dtype in HELD)
        origin, slot = slots(ptr[nodes[:split]], ptr[nodes[:split] + 1])
        late = nodes[split:] - self.first
        more, place = slots(self._more_ptr[late], self._more_ptr[late + 1])
        terms = np.concatenate([held[slot], self._more[place]]).astype(np.int64)
        return np.concatenate([origin, split + more]), terms

    def holders(self, terms: Integers) -> tuple[Integers, Integers, Integers]:
        """List the passages that hold some terms: the place in ``terms``, ascending, the passage, ascending, its code.

        Args:
            terms: ``[t]`` int64 numbers of terms.
        """
        known = np.flatnonzero(terms < len(self._ptr) - 1)
        origin, slot = slots(self._ptr[terms[known]], self._ptr[terms[known] + 1])
        ascending, text, code = self._added_by_term
        start, stop = (np.searchsorted(ascending, terms, side=side) for side in ("left", "right"))
        more, place = slots(start, stop)
        row = np.concatenate([known[origin], more])
        order = np.argsort(row, kind="stable")
        texts = np.concatenate([self._texts[slot], text[place]]).astype(np.int64)
        codes = np.concatenate([self._codes[slot], code[place]]).astype(np.int64)
        return row[order], texts[order], codes[order]

    @cached_property
    def _codes(self) -> Array:
        if f"{self.name}.codes" in self._columns:
            return self._columns.array(f"{self.name}.codes", "<i4")
        return np.broadcast_to(np.zeros(1, dtype=np.int32), self._texts.shape)

    @cached_property
    def _added_by_term(self) -> tuple[Integers, Integers, Integers]:
        text = np.repeat(np.arange(self.first, self.first + len(self._more_ptr) - 1), np.diff(self._more_ptr))
        name = f"{self.name}.added.codes"
        codes = self._columns.array(name, "<i4") if name in self._columns else np.zeros(len(text), dtype=np.int64)
        order = np.argsort(self._more, kind="stable")
        return self._more[order], text[order], codes[order]

    def numbered(self, terms: Iterable[str]) -> tuple[dict[str, int], list[str]]:
        """Number terms, of which new ones follow; return their numbers and the new ones."""
        number: dict[str, int] = {}
        new: list[str] = []
        for term in terms:
            if term not in number and (known := self.terms.rank(term)) < 0:
                number[term] = len(self.words) + len(new)
                new.append(term)
            elif term not in number:
                number[term] = known
        return number, new

    def append(
        self,
        append: Append,
        rows: Sequence[Sequence[str]],
        *,
        codes: Sequence[Sequence[int]] | None = None,
        changes: Mapping[str, int] | None = None,
    ) -> None:
        """Append the terms of passages behind the others.

        Args:
            append: Appends rows to a column.
            rows: The terms of each passage.
            codes: A number for each; needed if the index was written with some.
            changes: How the numbers of terms (:attr:`counts`) change.
        """
        number, new = self.numbered([*(term for row in rows for term in row), *(changes or ())])
        packed = PackedStrings.of(new)
        append(f"{self.name}.words.offsets", packed.offsets[1:] + self.words.offsets[-1])
        append(f"{self.name}.words.content", packed.content)
        append(f"{self.name}.added.ptr", np.cumsum([len(row) for row in rows], dtype=np.int64) + self._more_ptr[-1])
        append(f"{self.name}.added", np.array([number[term] for row in rows for term in row], dtype=np.int64))
        if codes is not None:
            append(f"{self.name}.added.codes", np.array([code for row in codes for code in row], dtype=np.int64))
        if changes is not None:
            table = [(number[term], change) for term, change in changes.items() if change]
            append(f"{self.name}.changes", np.array(table, dtype=np.int64).reshape(-1, 2))


def write_terms(
    folder: Path,
    name: str,
    rows: Iterable[Sequence[str]],
    *,
    codes: Iterable[Sequence[int]] | None = None,
    counts: Mapping[str, int] | None = None,
    both_ways: bool = False,
) -> dict[str, Column]:
    """Write the terms of passages as columns; return the manifest's entries.

    Args:
        folder: The columns' folder.
        name: Their name there.
        rows: The terms of each of ``N`` passages.
        codes: A number for each.
        counts: A number of each term, 0 where it has none; None for no such numbers.
        both_ways: Whether the terms of each passage are looked up too, not only the passages of each term.
    """
    number: dict[str, int] = {}
    flat, lengths = array("i"), array("i")
    for row in rows:
        flat.extend(number.setdefault(term, len(number)) for term in row)
        lengths.append(len(row))
    encoded = [term.encode("utf-8", "surrogatepass") for term in number]
    order = sorted(range(len(encoded)), key=encoded.__getitem__)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    terms = rank[np.frombuffer(flat, dtype=np.int32)] if len(flat) else NONE
    held_ptr = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.frombuffer(lengths, dtype=np.int32))])
    by_term = np.argsort(terms, kind="stable")
    words = PackedStrings.of_encoded([encoded[place] for place in order])
    arrays: dict[str, tuple[str, tuple[int, ...], Array]] = {
        "words.offsets": ("<i8", (), words.offsets),
        "words.content": ("|u1", (), words.content),
        "ptr": ("<i8", (), np.searchsorted(terms[by_term], np.arange(len(order) + 1))),
        "texts": ("<i4", (), np.repeat(np.arange(len(held_ptr) - 1), np.diff(held_ptr))[by_term]),
        "added.ptr": ("<i8", (), np.zeros(1, dtype=np.int64)),
        "added": ("<i4", (), NONE),
    }
    if both_ways:
        arrays |= {"held.ptr": ("<i8", (), held_ptr), "held": ("<i4", (), terms)}
    if codes is not None:
        table = np.array([code for row in codes for code in row], dtype=np.int64)
        arrays |= {"codes": ("<i4", (), table[by_term]), "added.codes": ("<i4", (), NONE)}
    if counts is not None:
        of_term = np.array([counts.get(term, 0) for term in number], dtype=np.int64)[order]
        arrays |= {"counts": ("<i4", (), of_term), "changes": ("<i8", (2,), NONE.reshape(0, 2))}
    return {
        f"{name}.{column}": write_column(folder, f"{name}.{column}", dtype, shape, [rows])
        for column, (dtype, shape, rows) in arrays.items()
    }


def slots(start: npt.NDArray[Any], stop: npt.NDArray[Any]) -> tuple[Integers, Integers]:
    """List the places in some ranges: for each place its range, ascending, and the place.

    Example:
        >>> [part.tolist() for part in slots(np.array([5, 2, 0]), np.array([7, 2, 1]))]
        [[0, 0, 2], [5, 6, 0]]
    """
    length = stop - start
    origin = np.repeat(np.arange(len(start)), length)
    offset = start - (np.cumsum(length) - length)
    return origin, offset[origin] + np.arange(len(origin))
