"""Filters on metadata by hand."""

from itertools import product

import numpy as np
import pytest

from graphrerank.corpus.filters import MAX_CONDITIONS, check_filter, passing
from graphrerank.corpus.metadata import Metadata
from tests.corpus.records import RECORDS

METADATA = Metadata(RECORDS)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"lang": "de"}, [0, 2]),
        ({"lang": {"eq": "d"}}, []),
        ({"lang": {"ne": "de"}}, [1, 3, 4]),
        ({"team": "b", "lang": ["de", "fr"]}, [0, 2]),
        ({"team": {"in": ["a", 7]}}, [0, 2]),
        ({"year": True}, [2]),
        ({"year": 0}, [4]),
        ({"year": -0.0}, [4]),
        ({"year": {"gte": -3.5, "lt": 1999}}, [1, 4]),
        ({"year": {"gt": -3.5, "lte": 1999}}, [0, 4]),
        ({"year": {"gt": 5, "lt": 2}}, []),
        ({"date": {"gte": "2025-01-01"}}, [0]),
        ({"date": {"lt": "2025-01-01"}}, [1, 4]),
        ({"team": {"exists": True}}, [0, 1, 2]),
        ({"lang": {"exists": False}}, [3, 4]),
        ({"author.name": "Ada"}, [0]),
        ({"\ufffdodd": {"eq": "x\0y"}}, [4]),
        ({"or": [{"lang": "en"}, {"year": 0}]}, [1, 4]),
        ({"and": [{"lang": "de"}, {"not": {"team": "a"}}]}, [2]),
    ],
)
def test_operators_by_hand(conditions, expected) -> None:
    assert np.flatnonzero(METADATA.where(conditions)).tolist() == expected


def test_numbers_and_texts_ascend_as_they_compare() -> None:
    values = [-1e300, -2.5, -1, -1e-300, 0, 5e-324, 1, 1.5, 2**60, 1e300]
    texts = ["", "A", "a", "a\0", "a\0b", "ab", "\ud800", "\uffff", "\U0001f600"]
    for kind in (values, texts):
        metadata = Metadata([{"x": value} for value in kind])
        for (i, low), (j, high) in product(enumerate(kind), repeat=2):
            found = metadata.where({"x": {"gt": low, "lte": high}})
            assert np.flatnonzero(found).tolist() == list(range(i + 1, j + 1))


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({"lnag": "de"}, r"`filter\.lnag` must be a field .*\['author\.name', 'date', 'lang', 'team', 'year', "),
        ({"principals": "a"}, r"`filter\.principals` must be a field"),
        ({"year": {"ge": 3}}, r"`filter\.year` must only use the operators \('eq', .*got 'ge'"),
        ({"year": {}}, r"`filter\.year` must have an operator"),
        ({"year": {"eq": None}}, r"`filter\.year\.eq` must be a text"),
        ({"year": float("nan")}, r"`filter\.year\.eq` must be a text, a finite"),
        ({"year": 10**400}, r"`filter\.year\.eq` must be a text, a finite"),
        ({"year": {"gte": 3, "lt": "x"}}, r"`filter\.year` must be a range of numbers, or of texts"),
        ({"year": {"gt": True}}, r"`filter\.year` must be a range"),
        ({"year": {"exists": 1}}, r"`filter\.year\.exists` must be true or false"),
        ({"year": {"in": "abc"}}, r"`filter\.year\.in` must be a list"),
        ({"or": []}, r"`filter\.or` must be a list of at least one filter"),
        ({"and": [{"not": 3}]}, r"`filter\.and\.not` must be a mapping"),
        ([1], r"`filter` must be a mapping"),
        ({"or": [{"year": 1}] * 2 * MAX_CONDITIONS}, r"at most 128 conditions"),
        (
            {"or": [{"year": list(range(9000))}] * 3},
            r"at most 128 conditions, where every 156 values of `in` count as one",
        ),
    ],
)
def test_what_does_not_fit_is_named(conditions, message) -> None:
    with pytest.raises(ValueError, match=message):
        METADATA.where(conditions)


def test_a_filter_reads_no_more_than_the_index() -> None:
    conditions = {"or": [{"lang": "en"}, {"year": {"gt": 1000}}]}
    check_filter(conditions)
    assert passing(conditions, METADATA.select(np.array([1, 3, 4])).index).tolist() == [True, False, False]
