"""Inverted index of metadata: which passages have which value in which field.

An entry of the index is the string ``<field>NUL<kind><value>``. Entries are sorted by their bytes. Values are written
so that this is also the order of the values of each kind:

- ``s``: text, unchanged.
- ``n``: number, as 16 hexadecimal digits in ascending order.
- ``b``: Boolean value, 0 or 1.
- ``t``: instant of a time in ``valid_from`` or ``valid_to``, in addition to its text.
- no kind: an empty list, or the presence of ``principals`` in any form.

Equality and every range of values are therefore one contiguous range of entries.
"""

import json
import logging
import math
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from graphrerank.corpus.metadata_fields import TIMES, check_record
from graphrerank.corpus.packed_strings import IntegerArray, PackedStrings, kept_entries
from graphrerank.corpus.permissions import PRINCIPALS
from graphrerank.corpus.times import as_text, parse_time
from graphrerank.utils.checks import UserError

logger = logging.getLogger(__name__)

#: Character that ends the name of a field in an entry.
KEY_END = "\0"
#: Character that sorts after ``KEY_END``: ``<field>BEYOND`` follows all entries of the field.
BEYOND = "\1"
Mask = npt.NDArray[np.bool_]
#: First entry of a range, and the first entry after the range.
EntryRange = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Entries:
    """Postings of ``T`` distinct entries that were written at the same time.

    An inverted index consists of several of these.

    Attributes:
        terms: Entries, sorted by their bytes.
        ptr: Row pointers ``[T + 1]``, int64. Entry ``t`` occurs in the passages ``holders[ptr[t]:ptr[t + 1]]``.
        holders: Passage indices ``[P]``, int32.
    """

    terms: PackedStrings
    ptr: IntegerArray
    holders: IntegerArray

    @classmethod
    def of(cls, records: Sequence[Any], *, first: int = 0) -> "Entries":
        """Return the index of the metadata of consecutive passages.

        Args:
            records: Metadata of each passage: a mapping, or JSON from a corpus folder, which is empty for no metadata.
                Mappings are checked. JSON was checked when the folder was written.
            first: Index of the first passage.

        Raises:
            UserError: If :func:`~graphrerank.corpus.metadata_fields.check_record` rejects a mapping.
        """
        passages_of = defaultdict[bytes, list[int]](list)
        for number, record in enumerate(records, first):
            if isinstance(record, Mapping):
                try:
                    check_record(record)
                except UserError as error:
                    raise UserError(f"metadata of passage {number}: {error}") from None
            for term in dict.fromkeys(terms_of(as_mapping(record))):
                passages_of[term.encode("utf-8", "surrogatepass")].append(number)
        terms = sorted(passages_of)
        ptr = np.cumsum([0, *(len(passages_of[term]) for term in terms)], dtype=np.int64)
        holders = np.fromiter(chain.from_iterable(passages_of[term] for term in terms), np.int32, int(ptr[-1]))
        return cls(PackedStrings.of_encoded(terms), ptr, holders)

    def between(self, start: str, stop: str) -> IntegerArray:
        """Return the passages with an entry in a range. A passage may occur several times.

        Args:
            start: First entry of the range.
            stop: First entry after the range.
        """
        return self.holders[self.ptr[self.terms.place(start)] : self.ptr[self.terms.place(stop)]]

    def instants(self) -> "Entries | None":
        """Return the missing instants of the time fields, which indexes of older versions do not contain.

        A text that is not a time has no instant, so its passages are never valid. A warning is logged for it.

        Returns:
            Missing entries. None if the index has them, or if no passage has a time.
        """
        passages_of = defaultdict[str, list[IntegerArray]](list)
        for name in TIMES:
            start, instants_start, instants_stop = (self.terms.place(f"{name}{KEY_END}{kind}") for kind in "stu")
            if instants_start != instants_stop:
                continue
            for index in range(start, instants_start):
                text = self.terms[index][len(name) + 2 :]
                if (instant := encode_instant(text)) is None:
                    logger.warning(
                        "`metadata.%s` %r is not a time in ISO 8601, so its passages are never valid", name, text[:80]
                    )
                else:
                    passages_of[f"{name}{KEY_END}{instant}"].append(self.holders[self.ptr[index] : self.ptr[index + 1]])
        if not passages_of:
            return None
        terms = sorted(passages_of)
        holders = [np.unique(np.concatenate(passages_of[term])) for term in terms]
        return Entries(
            PackedStrings.of_encoded([term.encode() for term in terms]),
            np.cumsum([0, *map(len, holders)], dtype=np.int64),
            np.concatenate(holders),
        )

    def fields(self) -> Iterator[str]:
        """Yield the names of the fields. Nested fields have names with dots."""
        index = 0
        while index < len(self.terms):
            name = self.terms[index].partition(KEY_END)[0]
            yield name
            index = self.terms.place(name + BEYOND)

    def texts(self, name: str) -> Iterator[str]:
        """Yield the distinct texts of a field.

        Args:
            name: Name of the field.
        """
        start = f"{name}{KEY_END}s"
        for index in range(self.terms.place(start), self.terms.place(name + BEYOND)):
            yield self.terms[index][len(start) :]

    def select(self, numbers: IntegerArray) -> "Entries":
        """Return the entries of the selected passages.

        Args:
            numbers: New index of each passage, or -1 if it is not selected.
        """
        ptr, selected = kept_entries(self.ptr, self.holders, numbers)
        return Entries(self.terms, ptr, numbers[self.holders[selected]])


@dataclass(frozen=True, eq=False)
class MetadataIndex:
    """Inverted index of the metadata of ``N`` passages.

    Attributes:
        parts: Stored entries, and entries of passages that were added later.
        num_passages: Number ``N`` of passages.
        numbers: Index of each indexed passage among the ``N`` passages, ``[N']`` int32, or -1 if it is not selected.
            None if the passages are the indexed ones.
    """

    parts: tuple[Entries, ...]
    num_passages: int
    numbers: IntegerArray | None = None

    def holders(self, *ranges: EntryRange) -> IntegerArray:
        """Return the passages with an entry in at least one range. A passage may occur several times.

        Args:
            ranges: Ranges of entries, from :func:`all_of_field`, :func:`entry_of` and :func:`entries_between`.
        """
        per_range = [part.between(*bounds) for bounds in ranges for part in self.parts]
        holders: IntegerArray = np.concatenate([np.zeros(0, np.int32), *per_range])
        if self.numbers is not None:
            holders = self.numbers[holders]
            holders = holders[holders >= 0]
        return holders

    def mask(self, *ranges: EntryRange) -> Mask:
        """Return a mask ``[N]`` of the passages with an entry in at least one range.

        Args:
            ranges: Ranges of entries. See :meth:`holders`.
        """
        mask = np.zeros(self.num_passages, dtype=bool)
        mask[self.holders(*ranges)] = True
        return mask

    def has_field(self, *names: str) -> bool:
        """Return whether a passage has at least one of the given fields.

        Args:
            names: Names of fields.
        """
        return len(self.holders(*map(all_of_field, names))) > 0

    def fields(self) -> list[str]:
        """Return the sorted names of the fields that occur."""
        return sorted(name for name in {name for part in self.parts for name in part.fields()} if self.has_field(name))

    def texts(self, name: str) -> set[str]:
        """Return the distinct texts of a field among all indexed passages.

        Args:
            name: Name of the field.
        """
        return {text for part in self.parts for text in part.texts(name)}


def all_of_field(name: str) -> EntryRange:
    """Return the range of all entries of a field.

    Args:
        name: Name of the field.
    """
    return name + KEY_END, name + BEYOND


def entry_of(name: str, value: Any) -> EntryRange:
    """Return the range that contains only the entry of a field with a given value.

    Args:
        name: Name of the field.
        value: Value of the field.
    """
    term = f"{name}{KEY_END}{encode_value_of(name, value)}"
    return term, term + "\0"


def entries_between(name: str, bounds: Mapping[str, Any]) -> EntryRange:
    """Return the range of the entries of a field within bounds.

    Args:
        name: Name of the field.
        bounds: Values of one kind by operator: ``gt``, ``gte``, ``lt`` and ``lte``.
    """
    kind = kind_of(name, next(iter(bounds.values())))
    start, stop = f"{name}{KEY_END}{kind}", f"{name}{KEY_END}{chr(ord(kind) + 1)}"
    for operator, value in bounds.items():
        term, beyond = entry_of(name, value)
        if operator in ("gt", "gte"):
            start = max(start, term if operator == "gte" else beyond)
        else:
            stop = min(stop, term if operator == "lt" else beyond)
    return start, max(start, stop)


def kind_of(name: str, value: Any) -> str:
    """Return the kind of a value in an entry, or ``?`` if the field cannot have the value.

    Args:
        name: Name of the field.
        value: Value of the field.
    """
    return (encode_value_of(name, value) or "?")[0]


def encode_value_of(name: str, value: Any) -> str | None:
    """Return the encoding of a field's value in an entry, or None if the field cannot have the value.

    Args:
        name: Name of the field. Values of time fields are written as instants.
        value: Value of the field.
    """
    return encode_instant(value) if name in TIMES else encode_value(value)


def encode_instant(text: Any) -> str | None:
    """Return the encoding of a time in an entry, or None if the value is not a time.

    Args:
        text: Time in ISO 8601.
    """
    try:
        return f"t{as_text(parse_time(text))}"
    except UserError:
        return None


def encode_value(value: Any) -> str | None:
    """Return the encoding of a text, number or Boolean value in an entry, or None for other values.

    Args:
        value: Value of a field.
    """
    if isinstance(value, str):
        return f"s{value}"
    if isinstance(value, bool):
        return f"b{int(value)}"
    if not isinstance(value, int | float) or not math.isfinite(value := _as_float(value)):
        return None
    (bits,) = struct.unpack(">q", struct.pack(">d", value + 0.0))  # -0 is written as 0
    ascending = bits + (1 << 63) if bits >= 0 else ~bits & ((1 << 63) - 1)
    return f"n{ascending:016x}"


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def as_mapping(record: Any) -> Mapping[str, Any]:
    """Return the metadata of a passage as a mapping.

    Args:
        record: Mapping, JSON, or an empty string for no metadata.
    """
    if isinstance(record, Mapping):
        return record
    return json.loads(record) if record else {}


def terms_of(record: Any, name: str | None = None) -> Iterator[str]:
    """Yield the entries of the metadata of one passage, possibly with repetitions.

    An empty list has an entry without a value. ``principals`` in any form also have such an entry. If the list of
    principals is empty, nobody may see the passage.

    Args:
        record: Metadata, or the value of the field ``name``.
        name: Name of the field that contains the record. None for the whole metadata.
    """
    if isinstance(record, Mapping):
        if name is None and PRINCIPALS in record:
            yield PRINCIPALS + KEY_END
        for key, value in record.items():
            plain = str(key).replace("\0", "\ufffd")
            yield from terms_of(value, plain if name is None else f"{name}.{plain}")
            if name is None and key in TIMES and (instant := encode_instant(value)) is not None:
                yield f"{key}{KEY_END}{instant}"
    elif isinstance(record, list | tuple):
        for value in record:
            yield from terms_of(value, name)
        if not record:
            yield f"{name}{KEY_END}"
    elif record is not None and (encoded := encode_value(record)) is not None:
        yield f"{name}{KEY_END}{encoded}"
