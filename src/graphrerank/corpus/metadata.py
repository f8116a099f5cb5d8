"""Metadata of passages, and conditions on it, which an inverted index answers.

A filter is a mapping from fields to conditions, all of which must hold, with the operators of Qdrant and LanceDB:

- ``{"lang": "de"}`` or ``{"lang": {"eq": "de"}}``: equal; of a list, some member is.
- ``{"team": ["a", "b"]}`` or ``{"team": {"in": ["a", "b"]}}``: equal to one of these; ``ne``: there is no such member.
- ``{"date": {"gte": "2025-01-01", "lt": "2026"}}``: in this range of numbers, or of texts; also ``gt`` and ``lte``.
- ``{"date": {"exists": false}}``: whether the passage has the field.
- ``{"or": [{...}, {...}]}``, ``{"and": [...]}``, ``{"not": {...}}``: of filters.

A field of nested metadata is written with dots: ``author.name``.

The fields ``valid_from`` and ``valid_to`` are times in ISO 8601, and so is what a filter compares with them: conditions
on them hold for instants, however they are written (:mod:`~graphrerank.corpus.times`). Texts of all other fields
compare by their characters.
"""

import json
import logging
import math
import struct
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, reduce
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from graphrerank.corpus.packed_strings import Integers, PackedStrings, chosen, kept_entries, renumbered
from graphrerank.corpus.times import FORMS, as_text, parse_time
from graphrerank.utils.checks import UserError

logger = logging.getLogger(__name__)

PRINCIPALS = "principals"  # the field of those who may see a passage; one without it is public
RELATIONS = SUPERSEDES, CONTRADICTS = "supersedes", "contradicts"  # lists of ids, perhaps of hidden passages
SUPERSEDED = "superseded_by"  # the same in edge files and answers, from the other end
RESERVED = (PRINCIPALS, *RELATIONS)  # which no filter reads
TIMES = VALID_FROM, VALID_TO = "valid_from", "valid_to"  # fields whose texts are times in ISO 8601
RANGES = ("gt", "gte", "lt", "lte")
OPERATORS = ("eq", "ne", "in", *RANGES, "exists")
BOTH, EITHER, NEITHER = "and", "or", "not"
MOST_CONDITIONS, MOST_CHOICES = 64, 10_000  # of a filter, each of which reads all passages; of all `in` together
SHOWN_CHARS, SHOWN_FIELDS = 40, 50  # in an error
END, BEYOND = "\0", "\1"  # of a field's name in an entry, and what is beyond all entries of the field
Filter = Mapping[str, Any]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Entries:
    """An inverted index: ``T`` different entries, each a field, NUL, and the kind and value of one of its members."""

    terms: PackedStrings  # ascending by their bytes: numbers by size, texts by their characters
    ptr: Integers  # `[T + 1]` int64; the entry `t` is held by the passages `holders[ptr[t]:ptr[t + 1]]`
    holders: Integers  # `[P]` int32

    @classmethod
    def of(cls, records: Sequence[Any], *, first: int = 0) -> "Entries":
        """Index records of the passages from ``first`` on."""
        held = defaultdict[bytes, list[int]](list)
        for number, record in enumerate(records, first):
            if isinstance(record, Mapping):  # JSON comes from a corpus folder, which was checked when it was written
                try:
                    check_record(record)
                except UserError as error:
                    raise UserError(f"metadata of passage {number}: {error}") from None
            for term in dict.fromkeys(_terms(_as_mapping(record))):
                held[term.encode("utf-8", "surrogatepass")].append(number)
        terms = sorted(held)
        ptr = np.cumsum([0, *(len(held[term]) for term in terms)], dtype=np.int64)
        holders = np.fromiter(chain.from_iterable(held[term] for term in terms), np.int32, int(ptr[-1]))
        return cls(PackedStrings.of_encoded(terms), ptr, holders)

    def between(self, start: str, stop: str) -> Integers:
        """Return the passages that hold an entry from ``start`` up to, but not, ``stop``; perhaps some repeatedly."""
        return self.holders[self.ptr[self.terms.place(start)] : self.ptr[self.terms.place(stop)]]

    def instants(self) -> "Entries | None":
        """Index the instants of times, where an older version wrote the index without them; None where they are there.

        What is no time gets no instant, so that the passage is valid at none; a warning of the log names the first.
        """
        held = defaultdict[str, list[Integers]](list)
        for name in TIMES:
            start, stop, end = (self.terms.place(f"{name}{END}{kind}") for kind in "stu")
            for place in range(start, stop) if stop == end else ():
                text = self.terms[place][len(name) + 2 :]
                if (value := _instant(text)) is None:
                    logger.warning("`metadata.%s` %r is no time: its passages are valid at no time", name, text[:80])
                else:
                    held[f"{name}{END}{value}"].append(self.holders[self.ptr[place] : self.ptr[place + 1]])
        if not held:
            return None
        terms = sorted(held)
        holders = [np.unique(np.concatenate(held[term])) for term in terms]
        return Entries(
            PackedStrings.of_encoded([term.encode() for term in terms]),
            np.cumsum([0, *map(len, holders)], dtype=np.int64),
            np.concatenate(holders),
        )

    def fields(self) -> Iterator[str]:
        """List the names of fields, nested ones with dots."""
        place = 0
        while place < len(self.terms):
            yield (name := self.terms[place].partition(END)[0])
            place = self.terms.place(name + BEYOND)


@dataclass(frozen=True, eq=False)
class Metadata:
    """The metadata of ``N`` passages."""

    records: Sequence[Any]  # of each passage a mapping, or JSON, empty for none
    stored: Entries | None = None  # of the first ``num_stored`` of them; None: read from the records at the first need
    num_stored: int = 0
    numbers: Integers | None = (
        None  # `[N']` int32, the number of each indexed passage; -1 for none of these. None: same
    )
    parts: tuple[Entries, ...] | None = field(default=None, repr=False)  # known index of all
    ranks_now: bool = True  # whether what supersedes a passage ranks above it; False: at a time that was asked for

    def __len__(self) -> int:
        return len(self.records)

    @cached_property
    def _entries(self) -> tuple[Entries, ...]:
        if self.parts is not None:
            return self.parts
        left = self.records[self.num_stored :] if self.stored is not None else self.records
        more = [Entries.of(left, first=self.num_stored)] if len(left) else []
        stored = [] if self.stored is None else [self.stored, self.stored.instants()]
        return (*(part for part in stored if part is not None), *more)

    def as_json(self) -> Iterator[str]:
        """Write the metadata of each passage; empty for none."""
        for record in self.records:
            yield record if isinstance(record, str) else json.dumps(record, default=str) if record else ""

    def select(self, nodes: npt.NDArray[np.int64]) -> "Metadata":
        """Return the metadata of some passages, ascending, as if there were no others."""
        numbers = renumbered(nodes, len(self), self.numbers)
        return Metadata(chosen(self.records, nodes), numbers=numbers, parts=self._entries, ranks_now=self.ranks_now)

    def compacted(self) -> "Metadata":
        """Return the same metadata with an index of these passages alone."""
        if self.numbers is None:
            return self
        parts = []
        for part in self._entries:
            ptr, kept = kept_entries(part.ptr, part.holders, self.numbers)
            parts.append(Entries(part.terms, ptr, self.numbers[part.holders[kept]]))
        return Metadata(self.records, parts=tuple(parts), ranks_now=self.ranks_now)

    def fields(self) -> list[str]:
        """List the fields that some passage has, without that of principals."""
        names = {name for part in self._entries for name in part.fields()} - {*RESERVED}
        return sorted(name for name in names if len(self._held((name + END, name + BEYOND))))

    def record(self, node: int) -> Mapping[str, Any]:
        """Return the metadata of a passage."""
        return _as_mapping(self.records[node])

    @cached_property
    def has_relations(self) -> bool:
        """Whether some passage supersedes or contradicts another."""
        return len(self._held(*((name + END, name + BEYOND) for name in RELATIONS))) > 0

    @cached_property
    def superseding(self) -> dict[str, list[int]]:
        """The passages that supersede another one, by its id."""
        start, stop = f"{SUPERSEDES}{END}s", SUPERSEDES + BEYOND
        ids = {
            part.terms[place][len(start) :]
            for part in self._entries
            for place in range(part.terms.place(start), part.terms.place(stop))
        }
        return {node_id: self._held(_exactly(SUPERSEDES, node_id)).tolist() for node_id in ids}

    @cached_property
    def times(self) -> list[str]:
        """List which of `valid_from` and `valid_to` some passage has."""
        return [name for name in (VALID_FROM, VALID_TO) if len(self._held((name + END, name + BEYOND)))]

    @cached_property
    def is_restricted(self) -> bool:
        """Whether some passage is not public."""
        return len(self._held((PRINCIPALS + END, PRINCIPALS + BEYOND))) > 0

    def visible(self, principals: AbstractSet[str]) -> Mask:
        """Return ``[N]``, the passages that are public, or whose principals are among these."""
        restricted = self._mask((PRINCIPALS + END, PRINCIPALS + BEYOND))
        return ~restricted | self._mask(*(_exactly(PRINCIPALS, name) for name in principals))

    def known(self, principals: AbstractSet[str]) -> frozenset[str]:
        """Return those of some principals that a passage has."""
        return frozenset(name for name in principals if len(self._held(_exactly(PRINCIPALS, name))))

    def audiences(self) -> list[frozenset[str] | None]:
        """List the principals of each passage; None of a public one."""
        start, found = f"{PRINCIPALS}{END}", list[frozenset[str] | None]()
        for terms in map(set, map(_terms, map(_as_mapping, self.records))):
            names = (term.removeprefix(f"{start}s") for term in terms if term.startswith(f"{start}s"))
            found.append(frozenset(names) if start in terms else None)
        return found

    def where(self, conditions: Filter) -> Mask:
        """Return ``[N]``, the passages that a filter lets pass; a ValueError names a condition that does not fit."""
        check_filter(conditions, most=2 * MOST_CONDITIONS)  # of a request and of the time that it is about
        return self._where(conditions)

    def _where(self, conditions: Filter) -> Mask:
        passing = np.ones(len(self), dtype=bool)
        for name, condition in conditions.items():
            if name in (BOTH, EITHER):
                parts = map(self._where, condition)
                passing &= reduce(np.logical_and if name == BOTH else np.logical_or, parts)
            else:
                passing &= ~self._where(condition) if name == NEITHER else self._meets(name, condition)
        return passing

    def _meets(self, name: str, condition: Any) -> Mask:
        """Return which passages meet the condition on a field; a ValueError if none of them has it."""
        present = self._mask((name + END, name + BEYOND))
        if name in RESERVED or not present.any():
            shown = self.fields()[:SHOWN_FIELDS]
            raise UserError(
                f"`filter.{name[:SHOWN_CHARS]}` must be a field of the passages; the known ones are {shown}"
            )
        passing, bounds = np.ones(len(self), dtype=bool), {}
        for operator, value in _operators(condition).items():
            if operator in RANGES:
                bounds[operator] = value
            elif operator == "exists":
                passing &= present == value
            else:
                found = self._mask(*(_exactly(name, one) for one in (value if operator == "in" else [value])))
                passing &= ~found if operator == "ne" else found
        return passing & self._mask(_range(name, bounds)) if bounds else passing

    def _mask(self, *ranges: tuple[str, str]) -> Mask:
        mask = np.zeros(len(self), dtype=bool)
        mask[self._held(*ranges)] = True
        return mask

    def _held(self, *ranges: tuple[str, str]) -> Integers:
        """Return the passages that hold an entry in some ranges, perhaps repeatedly."""
        held = [part.between(*bounds) for bounds in ranges for part in self._entries]
        numbers: Integers = np.concatenate([np.zeros(0, np.int32), *held])
        if self.numbers is not None:
            numbers = self.numbers[numbers]
            numbers = numbers[numbers >= 0]
        return numbers


def check_filter(
    conditions: Any, *, path: str = "filter", most: int = MOST_CONDITIONS, count: list[int] | None = None
) -> None:
    """Refuse what is no filter, by a ValueError that names the field and, of an operator, the known ones."""
    count = [0] if count is None else count
    if not isinstance(conditions, Mapping) or not all(isinstance(name, str) for name in conditions):
        raise UserError(f"`{path}` must be a mapping from fields to conditions")
    for name, condition in conditions.items():
        count[0] += 1
        here = f"{path}.{name[:SHOWN_CHARS]}"
        if name in (BOTH, EITHER):
            if not isinstance(condition, list | tuple) or not condition:
                raise UserError(f"`{here}` must be a list of one filter or more")
            for part in condition:
                check_filter(part, path=here, most=most, count=count)
        elif name == NEITHER:
            check_filter(condition, path=here, most=most, count=count)
        else:
            operators = _operators(condition)
            _check_condition(name, here, operators)
            count[0] += MOST_CONDITIONS * len(operators.get("in", ())) // MOST_CHOICES
        if count[0] > most:
            choices = MOST_CHOICES // MOST_CONDITIONS
            raise UserError(f"`filter` must hold at most {most} conditions, as which {choices} choices count")


def _check_condition(name: str, path: str, operators: Mapping[str, Any]) -> None:
    if not operators:
        raise UserError(f"`{path}` must hold an operator, one of {OPERATORS}")
    for operator, value in operators.items():
        if operator not in OPERATORS:
            raise UserError(f"`{path}` must be of the operators {OPERATORS}, got {str(operator)[:SHOWN_CHARS]!r}")
        if operator == "exists" and not isinstance(value, bool):
            raise UserError(f"`{path}.exists` must be true or false")
        if operator == "in" and not (isinstance(value, list | tuple) and len(value) <= MOST_CHOICES):
            raise UserError(f"`{path}.in` must be a list of at most {MOST_CHOICES} texts, numbers or truth values")
        for one in value if operator == "in" else [value]:
            if operator != "exists" and _value_of(name, one) is None:
                needed = FORMS if name in TIMES else "of texts, finite numbers or truth values"
                raise UserError(f"`{path}.{operator}` must be {needed}")
    kinds = {_kind(name, value) for operator, value in operators.items() if operator in RANGES}
    if len(kinds) > 1 or "b" in kinds:
        raise UserError(f"`{path}` must be a range of numbers, or of texts")


def check_record(record: Mapping[str, Any]) -> None:
    """Refuse metadata of a passage that would be read otherwise than whoever wrote them means.

    A passage without ``principals`` is public. One whose principals are misspelt or in a wrong place would be public
    without anybody noticing, so it is refused; a warning would come after the passage was shown. Where the passage has
    ``principals`` too, these decide, and other fields may have any name.

    Args:
        record: The metadata.

    Raises:
        UserError: If ``valid_from`` or ``valid_to`` is no time in ISO 8601, or a field seems to be meant as principals.
    """
    for name in TIMES:
        if record.get(name) is not None:
            try:
                parse_time(record[name])
            except UserError as error:
                raise UserError(f"`metadata.{name}`: {error}") from None
    if PRINCIPALS not in record and (path := misplaced_principals(record)) is not None:
        raise UserError(
            f"`metadata.{path}` must be `metadata.{PRINCIPALS}` if it says who may see the passage, which is public "
            f"otherwise; rename it if it says something else"
        )


def misplaced_principals(fields: Any) -> str | None:
    """Return the path of the first field that seems to be meant as principals; None if there is none.

    Args:
        fields: Mappings and lists of any depth.

    Example:
        >>> misplaced_principals({"lang": "en", "access": [{"Principals": ["hr"]}]})
        'access.Principals'
    """
    if isinstance(fields, Mapping):
        for key, value in fields.items():
            if resembles_principals(str(key)):
                return str(key)[:SHOWN_CHARS]
            if (path := misplaced_principals(value)) is not None:
                return f"{str(key)[:SHOWN_CHARS]}.{path}"
    elif isinstance(fields, list | tuple):
        return next((path for path in map(misplaced_principals, fields) if path is not None), None)
    return None


@lru_cache(maxsize=4096)
def resembles_principals(name: str) -> bool:
    """Return whether a name is `principals`, contains it, or is within one edit of it or its singular.

    Case, blanks and punctuation do not matter. An edit adds, drops or replaces a letter or exchanges two neighbours, so
    that "principles", another word, does not resemble it.

    Example:
        >>> [resembles_principals(name) for name in ("Principals", "prinicpal", "allowed_principals", "principles")]
        [True, True, True, False]
    """
    letters = "".join(filter(str.isalnum, unicodedata.normalize("NFKC", name[:100]).casefold()))
    return PRINCIPALS in letters or any(_within_one_edit(letters, known) for known in (PRINCIPALS, PRINCIPALS[:-1]))


def _within_one_edit(one: str, other: str) -> bool:
    while one and other and one[0] == other[0]:
        one, other = one[1:], other[1:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    return max(len(one), len(other)) <= 1 or (len(one) == len(other) == 2 and one == other[::-1])


def _operators(condition: Any) -> Mapping[str, Any]:
    if isinstance(condition, Mapping):
        return condition
    return {"in": condition} if isinstance(condition, list | tuple) else {"eq": condition}


def _exactly(name: str, value: Any) -> tuple[str, str]:
    """Return the bounds of the one entry of a field with a value."""
    term = f"{name}{END}{_value_of(name, value)}"
    return term, term + "\0"


def _range(name: str, bounds: Mapping[str, Any]) -> tuple[str, str]:
    """Return the bounds of the entries of a field within a range."""
    kind = _kind(name, next(iter(bounds.values())))
    start, stop = f"{name}{END}{kind}", f"{name}{END}{chr(ord(kind) + 1)}"
    for operator, value in bounds.items():
        term, beyond = _exactly(name, value)
        if operator in ("gt", "gte"):
            start = max(start, term if operator == "gte" else beyond)
        else:
            stop = min(stop, term if operator == "lt" else beyond)
    return start, max(start, stop)


def _kind(name: str, value: Any) -> str:
    return (_value_of(name, value) or "?")[0]


def _value_of(name: str, value: Any) -> str | None:
    """Write what a field is compared with: of a time its instant. None for what the field cannot have."""
    return _instant(value) if name in TIMES else _value(value)


def _instant(text: Any) -> str | None:
    """Write the instant of a time so that instants ascend; None for anything else."""
    try:
        return f"t{as_text(parse_time(text))}"
    except UserError:
        return None


def _value(value: Any) -> str | None:
    """Write a text, a number or a truth value so that those of one kind ascend; None for anything else."""
    if isinstance(value, str):
        return f"s{value}"
    if isinstance(value, bool):
        return f"b{int(value)}"
    if not isinstance(value, int | float) or not math.isfinite(value := _as_float(value)):
        return None
    (bits,) = struct.unpack(">q", struct.pack(">d", value + 0.0))  # of -0 as of 0
    return f"n{bits + (1 << 63) if bits >= 0 else ~bits & ((1 << 63) - 1):016x}"


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _as_mapping(record: Any) -> Mapping[str, Any]:
    return record if isinstance(record, Mapping) else json.loads(record) if record else {}


def _terms(record: Any, name: str | None = None) -> Iterator[str]:
    """List the entries of metadata.

    An empty list is one without a value, and so are principals of any form: whom they do not name sees nothing.
    """
    if isinstance(record, Mapping):
        if name is None and PRINCIPALS in record:
            yield PRINCIPALS + END
        for key, value in record.items():
            plain = str(key).replace("\0", "\ufffd")
            yield from _terms(value, plain if name is None else f"{name}.{plain}")
            if name is None and key in TIMES and (instant := _instant(value)) is not None:
                yield f"{key}{END}{instant}"
    elif isinstance(record, list | tuple):
        for value in record:
            yield from _terms(value, name)
        if not record:
            yield f"{name}{END}"
    elif record is not None and (value := _value(record)) is not None:
        yield f"{name}{END}{value}"
