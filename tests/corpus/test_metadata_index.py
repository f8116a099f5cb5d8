"""The inverted index of metadata against a loop over the values."""

import random

import numpy as np
import pytest

from graphrerank.corpus.metadata_index import (
    Entries,
    MetadataIndex,
    all_of_field,
    encode_value,
    entries_between,
    entry_of,
    kind_of,
)

VALUES = ["", "a", "ab", "b", -2.5, -1, 0, 1, 1.5, 2**60, True, False]


@pytest.mark.parametrize("seed", range(5))
def test_ranges_against_a_loop(seed: int) -> None:
    rng = random.Random(seed)
    values = rng.choices(VALUES, k=30)
    index = MetadataIndex((Entries.of([{"x": value} for value in values]),), len(values))
    for bound in VALUES:
        equal = [number for number, value in enumerate(values) if type(value) is type(bound) and value == bound]
        if not isinstance(bound, int | float):
            assert sorted(index.holders(entry_of("x", bound))) == equal
        if not isinstance(bound, bool):
            kind = [number for number, value in enumerate(values) if kind_of("x", value) == kind_of("x", bound)]
            above = [number for number in kind if values[number] >= bound]
            assert np.flatnonzero(index.mask(entries_between("x", {"gte": bound}))).tolist() == above


def test_parts_and_a_selection_by_hand() -> None:
    parts = (Entries.of([{"x": 1}, {"y": ["b", "c"]}]), Entries.of([{"x": "a"}, {"y": []}], first=2))
    index = MetadataIndex(parts, 4)
    assert index.fields() == ["x", "y"]
    assert index.texts("y") == {"b", "c"}
    assert index.mask(all_of_field("x")).tolist() == [True, False, True, False]
    selection = MetadataIndex(parts, 2, np.array([-1, 0, -1, 1]))
    assert selection.fields() == ["y"]
    assert not selection.has_field("x")
    assert selection.mask(entry_of("y", "c")).tolist() == [True, False]
    compacted = MetadataIndex(tuple(part.select(selection.numbers) for part in parts), 2)
    assert compacted.mask(all_of_field("y")).tolist() == [True, True]


def test_what_is_no_value_of_an_entry() -> None:
    assert [encode_value(value) for value in (None, float("nan"), 10**400, [1], {})] == [None] * 5
    assert kind_of("valid_to", "soon") == "?"
