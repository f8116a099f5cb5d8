"""Metadata of passages and of a selection of them, against loops over all of them."""

import json
import random

import numpy as np
import pytest
import torch

from graphrerank.corpus import CorpusGraph, PackedStrings
from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus.metadata_index import Entries
from tests.corpus.records import RECORDS

METADATA = Metadata(RECORDS)


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
    with pytest.raises(ValueError, match=r"The known fields are \['lang', 'team', 'year'\]"):
        part.where({"date": {"exists": True}})


def test_principals_of_any_other_form_are_nobody() -> None:
    forms = [{}, {"principals": ["a", "b"]}, {"principals": "b"}, {"principals": []}, {"principals": None}]
    forms += [{"principals": {"read": ["a"]}}, {"principals": 7}, {"principals": [None]}]
    metadata = Metadata(forms)
    assert metadata.visible(frozenset()).tolist() == [True] + [False] * 7
    assert np.flatnonzero(metadata.visible({"a", "x", "7"})).tolist() == [0, 1]
    assert np.flatnonzero(metadata.visible({"b"})).tolist() == [0, 1, 2]
    assert metadata.known_principals({"a", "x"}) == {"a"}
    audiences = [None, {"a", "b"}, {"b"}, *[set()] * 5]
    assert metadata.audiences() == audiences
    records = [{"": {"principals": ["a"]}}, {"principals": ["b"], "": {"principals": ["a"]}}]
    odd = Metadata(list(map(json.dumps, records)))  # as of a corpus folder that an older version wrote
    assert odd.visible({"a"}).tolist() == [True, False]
    assert odd.visible(frozenset()).tolist() == [True, False]
    assert odd.fields() == [".principals"]


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
