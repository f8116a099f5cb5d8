"""Metadata of passages: records, their inverted index, and the properties that follow from reserved fields."""

import json
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from graphrerank._moved import moved_names
from graphrerank.corpus.filters import MAX_CONDITIONS, Filter, check_filter, filterable_fields, passing
from graphrerank.corpus.metadata_fields import RELATION_FIELDS, SUPERSEDES, TIMES
from graphrerank.corpus.metadata_index import (
    KEY_END,
    Entries,
    Mask,
    MetadataIndex,
    all_of_field,
    as_mapping,
    entry_of,
    terms_of,
)
from graphrerank.corpus.packed_strings import IntegerArray, chosen, renumbered
from graphrerank.corpus.permissions import PRINCIPALS

__getattr__ = moved_names(__name__)


@dataclass(frozen=True, eq=False)
class Metadata:
    """Metadata of ``N`` passages.

    Attributes:
        records: Metadata of each passage: a mapping, or JSON, which is empty for no metadata.
        stored: Index of the first ``num_stored`` passages. If None, the records are indexed when the index is first
            needed.
        num_stored: Number of passages in ``stored``.
        numbers: Index of each indexed passage among the ``N`` passages, ``[N']`` int32, or -1 if it is not selected.
            None if the passages are the indexed ones.
        parts: Index of all passages, if it is available.
        ranks_now: Whether a passage ranks above the passages that it supersedes. False for a corpus at a time in the
            past.
    """

    records: Sequence[Any]
    stored: Entries | None = None
    num_stored: int = 0
    numbers: IntegerArray | None = None
    parts: tuple[Entries, ...] | None = field(default=None, repr=False)
    ranks_now: bool = True

    def __len__(self) -> int:
        return len(self.records)

    @cached_property
    def index(self) -> MetadataIndex:
        """Inverted index of the passages."""
        return MetadataIndex(self._entries, len(self), self.numbers)

    @cached_property
    def _entries(self) -> tuple[Entries, ...]:
        if self.parts is not None:
            return self.parts
        if self.stored is None:
            return (Entries.of(self.records),) if len(self.records) else ()
        added = self.records[self.num_stored :]
        instants = self.stored.instants()
        return (
            self.stored,
            *([] if instants is None else [instants]),
            *([Entries.of(added, first=self.num_stored)] if len(added) else []),
        )

    def as_json(self) -> Iterator[str]:
        """Yield the metadata of each passage as JSON, or an empty string if it has none."""
        for record in self.records:
            yield record if isinstance(record, str) else json.dumps(record, default=str) if record else ""

    def select(self, nodes: npt.NDArray[np.int64]) -> "Metadata":
        """Return the metadata of the given passages. Other passages do not influence the result.

        Args:
            nodes: Indices of the passages, in ascending order.
        """
        numbers = renumbered(nodes, len(self), self.numbers)
        return Metadata(chosen(self.records, nodes), numbers=numbers, parts=self._entries, ranks_now=self.ranks_now)

    def compacted(self) -> "Metadata":
        """Return the metadata with an index of these passages only, so that look-ups need not skip others."""
        if self.numbers is None:
            return self
        parts = tuple(part.select(self.numbers) for part in self._entries)
        return Metadata(self.records, parts=parts, ranks_now=self.ranks_now)

    def fields(self) -> list[str]:
        """Return the sorted names of the fields that occur and that filters may use."""
        return filterable_fields(self.index)

    def record(self, node: int) -> Mapping[str, Any]:
        """Return the metadata of a passage.

        Args:
            node: Index of the passage.
        """
        return as_mapping(self.records[node])

    @cached_property
    def has_relations(self) -> bool:
        """Whether any passage supersedes or contradicts another."""
        return self.index.has_field(*RELATION_FIELDS)

    @cached_property
    def superseding(self) -> dict[str, list[int]]:
        """Indices of the passages that supersede a passage, by the id of the superseded passage."""
        ids = self.index.texts(SUPERSEDES)
        return {node_id: self.index.holders(entry_of(SUPERSEDES, node_id)).tolist() for node_id in ids}

    @cached_property
    def times(self) -> list[str]:
        """Names of the fields among ``valid_from`` and ``valid_to`` that occur."""
        return [name for name in TIMES if self.index.has_field(name)]

    @cached_property
    def is_restricted(self) -> bool:
        """Whether some passages are not public."""
        return self.index.has_field(PRINCIPALS)

    def visible(self, principals: AbstractSet[str]) -> Mask:
        """Return a mask ``[N]`` of the passages that are public or visible to one of the given principals.

        Args:
            principals: Principals of the caller.
        """
        restricted = self.index.mask(all_of_field(PRINCIPALS))
        return ~restricted | self.index.mask(*(entry_of(PRINCIPALS, name) for name in principals))

    def known_principals(self, principals: AbstractSet[str]) -> frozenset[str]:
        """Return the given principals that occur in the metadata of a passage.

        Args:
            principals: Principals of the caller.
        """
        return frozenset(name for name in principals if len(self.index.holders(entry_of(PRINCIPALS, name))))

    def audiences(self) -> list[frozenset[str] | None]:
        """Return the principals of each passage, None for a public passage."""
        presence, prefix = f"{PRINCIPALS}{KEY_END}", f"{PRINCIPALS}{KEY_END}s"
        audiences = list[frozenset[str] | None]()
        for record in self.records:
            terms = set(terms_of(as_mapping(record)))
            names = frozenset(term.removeprefix(prefix) for term in terms if term.startswith(prefix))
            audiences.append(names if presence in terms else None)
        return audiences

    def where(self, conditions: Filter) -> Mask:
        """Return a mask ``[N]`` of the passages that match a filter (see :mod:`~graphrerank.corpus.filters`).

        Args:
            conditions: Filter on metadata fields.

        Raises:
            UserError: If the filter is invalid, no passage has one of its fields, or a field is reserved.
        """
        check_filter(conditions, most=2 * MAX_CONDITIONS)  # conditions of a request and of its `as_of`
        return passing(conditions, self.index)
