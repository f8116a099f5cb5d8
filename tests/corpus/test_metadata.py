"""Filters on metadata, and the selection of passages, against loops over all of them."""

import json
import random
from itertools import product

import numpy as np
import pytest
import torch

from graphrerank.corpus import CorpusGraph, PackedStrings
from graphrerank.corpus.metadata import MOST_CONDITIONS, Entries, Metadata

RECORDS = [
    {"lang": "de", "year": 1999, "team": ["a", "b"], "date": "2025-01-31", "author": {"name": "Ada"}},
    {"lang": "en", "year": -3.5, "team": [], "date": "2024-12-31"},
    {"lang": "de", "year": True, "team": ["b", "c", 7]},
    {},
    {"lang": None, "year": 0, "date": "2025-01", "\0odd": "x\0y"},
]
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
        ({"year": {"ge": 3}}, r"`filter\.year` must be of the operators \('eq', .*got 'ge'"),
        ({"year": {}}, r"`filter\.year` must hold an operator"),
        ({"year": {"eq": None}}, r"`filter\.year\.eq` must be of texts"),
        ({"year": float("nan")}, r"`filter\.year\.eq` must be of texts, finite"),
        ({"year": 10**400}, r"`filter\.year\.eq` must be of texts, finite"),
        ({"year": {"gte": 3, "lt": "x"}}, r"`filter\.year` must be a range of numbers, or of texts"),
        ({"year": {"gt": True}}, r"`filter\.year` must be a range"),
        ({"year": {"exists": 1}}, r"`filter\.year\.exists` must be true or false"),
        ({"year": {"in": "abc"}}, r"`filter\.year\.in` must be a list"),
        ({"or": []}, r"`filter\.or` must be a list of one filter or more"),
        ({"and": [{"not": 3}]}, r"`filter\.and\.not` must be a mapping"),
        ([1], r"`filter` must be a mapping"),
        ({"or": [{"year": 1}] * 2 * MOST_CONDITIONS}, r"at most 128 conditions"),
        ({"or": [{"year": list(range(9000))}] * 3}, r"at most 128 conditions, as which 156 choices count"),
    ],
)
def test_what_does_not_fit_is_named(conditions, message) -> None:
    with pytest.raises(ValueError, match=message):
        METADATA.where(conditions)


def test_stored_and_added_records_are_indexed_as_one() -> None:
    json = PackedStrings.of(METADATA.as_json())
    grown = Metadata(json, Entries.of(RECORDS[:2]), 2)
    for conditions in ({"lang": "de"}, {"year": {"lte": 0}}, {"team": {"exists": False}}):
        assert (grown.where(conditions) == METADATA.where(conditions)).all()
    assert grown.fields() == METADATA.fields()


def test_a_selection_knows_the_fields_and_principals_of_its_passages_alone() -> None:
    part = METADATA.select(np.array([1, 2])).select(np.array([1]))
    assert part.fields() == ["lang", "team", "year"]
    assert part.where({"team": "c"}).tolist() == [True]
    with pytest.raises(ValueError, match=r"the known ones are \['lang', 'team', 'year'\]"):
        part.where({"date": {"exists": True}})


def test_principals_of_any_other_form_are_nobody() -> None:
    forms = [{}, {"principals": ["a", "b"]}, {"principals": "b"}, {"principals": []}, {"principals": None}]
    forms += [{"principals": {"read": ["a"]}}, {"principals": 7}, {"principals": [None]}]
    metadata = Metadata(forms)
    assert metadata.visible(frozenset()).tolist() == [True] + [False] * 7
    assert np.flatnonzero(metadata.visible({"a", "x", "7"})).tolist() == [0, 1]
    assert np.flatnonzero(metadata.visible({"b"})).tolist() == [0, 1, 2]
    assert metadata.known({"a", "x"}) == {"a"}
    audiences = [None, {"a", "b"}, {"b"}, *[set()] * 5]
    assert metadata.audiences() == audiences
    records = [{"": {"principals": ["a"]}}, {"principals": ["b"], "": {"principals": ["a"]}}]
    odd = Metadata(list(map(json.dumps, records)))  # as of a corpus folder that an older version wrote
    assert odd.visible({"a"}).tolist() == [True, False]
    assert odd.visible(frozenset()).tolist() == [True, False]
    assert odd.fields() == [".principals"]


MISPLACED = [
    *({name: ["hr"]} for name in ("Principals", "principal", "PRINCIPALS ", "prinicpals", "princpals", "principalls")),
    *({name: ["hr"]} for name in ("allowed_principals", "principals[]", "\uff50rincipals", "princip-als")),
    {"metadata": {"principals": ["hr"]}},
    {"access": [{"lang": "en"}, {"Principal": None}]},
]


@pytest.mark.parametrize("record", MISPLACED)
def test_misplaced_and_misspelt_principals_are_refused(record) -> None:
    with pytest.raises(ValueError, match=r"metadata of passage 1: `metadata\..+` must be `metadata\.principals` if it"):
        _ = Metadata([{}, record]).is_restricted
    explicit = Metadata([{}, record | {"principals": ["law"]}])  # which decide
    assert explicit.visible({"hr"}).tolist() == [True, False]
    assert explicit.visible({"law"}).tolist() == [True, True]


@pytest.mark.parametrize("name", ["principle", "principles", "principality", "principally", "prince", ""])
def test_other_words_are_no_principals(name) -> None:
    assert not Metadata([{name: ["hr"]}]).is_restricted


def test_a_selected_graph_is_that_of_its_passages() -> None:
    """Against the graph that is built from the same edges, those of other passages left out."""
    for seed in range(60):
        rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
        size = rng.randint(1, 12)
        pairs = torch.randint(0, size, (rng.randint(0, 30), 2), generator=generator)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        weight = torch.rand(len(pairs), generator=generator) + 0.1
        types = torch.randint(rng.choice([0, 4]), 5, (len(pairs),), generator=generator)
        ids = [f"d{i}" for i in range(size)]
        whole = CorpusGraph.from_edges(ids, [f"text {i}" for i in range(size)], pairs, weight, edge_type=types)
        nodes = torch.tensor([node for node in range(size) if rng.random() < 0.6], dtype=torch.int64)
        number = torch.full((size,), -1)
        number[nodes] = torch.arange(len(nodes))
        kept = (number[pairs] >= 0).all(1)
        chosen = [ids[node] for node in nodes.tolist()]
        expected = CorpusGraph.from_edges(
            chosen, [f"text {i[1:]}" for i in chosen], number[pairs[kept]], weight[kept], edge_type=types[kept]
        )
        found = whole.select(nodes)
        assert (list(found.node_ids), list(found.texts)) == (chosen, list(expected.texts))
        for name in ("indptr", "indices", "weight", "weight_by_type"):
            one, other = getattr(found, name), getattr(expected, name)
            assert (one is None) == (other is None)
            assert one is None or torch.equal(one, other)
