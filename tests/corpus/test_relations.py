import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from graphrerank.corpus.edge_types import REFERENCE
from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus.metadata_index import Entries
from graphrerank.corpus.packed_strings import PackedStrings
from graphrerank.corpus.passages import Passages
from graphrerank.corpus.relations import (
    absent_replacements,
    lift_replacements,
    relations_among,
    valid_at,
    with_relations,
)
from graphrerank.data.dataset import Dataset
from tests.support.folders import write_dataset

RECORDS = [{"supersedes": ["b"]}, {"supersedes": "c", "contradicts": ["d", "x"]}, {}, {"supersedes": ["d"]}]
PASSAGES = Passages(list("abcd"), ["", "", "", ""], metadata=Metadata(RECORDS))


def test_relations_are_those_among_the_passages() -> None:
    assert relations_among(PASSAGES, [2, 1, 0, -1]) == [(1, 0, "supersedes"), (2, 1, "supersedes")]
    assert relations_among(PASSAGES, [3, 1]) == [(1, 0, "contradicts")]
    assert relations_among(PASSAGES, [0, 2]) == []


def test_a_replacement_takes_the_score_by_hand() -> None:
    nodes = torch.tensor([[2, 3, 1, 0], [0, 1, 2, -1], [3, 2, -1, -1]])
    scores = torch.tensor([[4.0, 3.0, 2.0, 1.0], [4.0, 3.0, 2.0, -torch.inf], [1.0, 0.5, -torch.inf, -torch.inf]])
    found = lift_replacements(PASSAGES, nodes, scores)
    assert found[0, [3, 1]].tolist() == [4.0, 3.0]  # a chain: c, at the top, by b by a
    assert found[0, 3] > found[0, 2] > found[0, 0] > 3.9999
    assert torch.equal(found[1:], scores[1:])


def test_replacements_that_are_absent() -> None:
    nodes = torch.tensor([[2, 3, -1], [0, 1, -1], [1, -1, -1]])
    assert absent_replacements(PASSAGES, nodes).tolist() == [[0, 1], [-1, -1], [0, -1]]  # c by b by a
    without_a = replace(PASSAGES, removed=torch.tensor([True, False, False, False]))
    assert absent_replacements(without_a, nodes).tolist() == [[1], [-1], [-1]]
    assert absent_replacements(Passages(list("abcd"), [""] * 4), nodes).shape == (3, 0)
    then = replace(PASSAGES, metadata=replace(PASSAGES.metadata, ranks_now=False))
    assert absent_replacements(then, nodes).shape == (3, 0)
    part = PASSAGES.select(np.array([1, 2, 3]))  # as if there were no a
    assert absent_replacements(part, torch.tensor([[1]])).tolist() == [[0]]


def test_a_circle_ends() -> None:
    records = [{"supersedes": ["b"]}, {"supersedes": ["a"]}]
    passages = Passages(list("ab"), ["", ""], metadata=Metadata(records))
    found = lift_replacements(passages, torch.tensor([[0, 1]]), torch.tensor([[1.0, 1.0]]))
    torch.testing.assert_close(found, torch.ones(1, 2))


def test_what_is_valid_at_a_time() -> None:
    metadata = Metadata(
        [
            {},
            {"valid_from": "2025-01-31"},
            {"valid_to": "2025-01-31T10:00:00Z"},
            {"valid_from": "2024", "valid_to": "2026"},
        ]
    )
    for time, expected in {
        "2025-01-30": [0, 2, 3],
        "2025-01-31": [0, 1, 2, 3],
        "2025-01-31T11:30:00+02:00": [0, 1, 2, 3],
        "2025-01-31T12:00:00+02:00": [0, 1, 3],  # the second at which it ends
        "2030-01-01": [0, 1],
    }.items():
        assert metadata.where(valid_at(time, metadata.times)).nonzero()[0].tolist() == expected, time
    assert valid_at(None, ()) == {"and": []}
    assert "0101-" in str(valid_at("0101-01-01", ["valid_to"]))
    for bad in ("yesterday", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        with pytest.raises(ValueError, match="`as_of` must be a time in ISO 8601"):
            valid_at(bad, ())


def test_edges_of_files_are_noted_in_their_direction(tmp_path) -> None:
    folder = write_dataset(
        tmp_path / "data",
        corpus=[{"_id": node, "text": node, "metadata": {"supersedes": "c"} if node == "a" else {}} for node in "abc"],
        queries=[],
        edges=[("a", "b", "supersedes"), ("a", "c", "superseded_by"), ("b", "c", "contradicts")],
    )
    graph = Dataset.from_folder(folder, splits={}).graph
    assert graph.passages.metadata.records == [
        {"supersedes": ["c", "b"]},
        {"contradicts": ["c"]},
        {"supersedes": ["a"]},
    ]
    assert graph.edge_types() == [REFERENCE]
    with pytest.raises(ValueError, match="must start at a passage of the corpus, got 'x'"):
        with_relations({}, [("supersedes", "x", "y")])


@pytest.mark.parametrize(
    "written", ["2025-01-31T10:00Z", "20250131T1000Z", "2025-01-31 11:00+01:00", "2025-W05-5T10", "2025-031T10:00:00.0"]
)
def test_times_of_all_forms_are_one_time(written) -> None:
    """In the metadata, as the time of a request, and in a filter."""
    metadata = Metadata([{"valid_from": written}, {"valid_to": written}, {}])
    for form in ("2025-01-31T09:59:59Z", "20250131T095959", "2025-01-31T10:59:59+0100"):
        assert metadata.where(valid_at(form, metadata.times)).nonzero()[0].tolist() == [1, 2], form
    for form in ("2025-01-31T10:00:00Z", "20250131T10", written):
        assert metadata.where(valid_at(form, metadata.times)).nonzero()[0].tolist() == [0, 2], form
        for conditions in ({"valid_from": form}, {"valid_from": {"gte": form}}, {"valid_from": {"lte": form}}):
            assert metadata.where(conditions).nonzero()[0].tolist() == [0]
        assert not metadata.where({"valid_from": {"gt": form}}).any()
    assert metadata.where({"valid_from": {"lt": "20250201"}, "valid_to": {"exists": False}}).tolist() == [1, 0, 0]


def test_what_is_no_time_is_refused_by_name() -> None:
    for bad in (20250131, "soon", ["2025"], True):
        with pytest.raises(
            ValueError, match=r"metadata of passage 1: `metadata\.valid_to`: expected a time in ISO 8601"
        ):
            _ = Metadata([{}, {"valid_to": bad}]).times
    metadata = Metadata([{"valid_to": "2025"}])
    for condition in ("soon", {"gte": 2025}, {"in": ["2025", "x"]}, {"lt": True}):
        with pytest.raises(ValueError, match=r"`filter\.valid_to\.\w+` must be a time in ISO 8601"):
            metadata.where({"valid_to": condition})
    assert metadata.where({"valid_to": {"exists": True}}).tolist() == [True]


def test_an_index_of_an_older_version_has_no_instants(caplog) -> None:
    records = [{"valid_from": "20250131"}, {"valid_from": "2025-01-31T00:00+00:00"}, {"valid_from": "soon"}, {}]
    new = Entries.of([json.dumps(record) for record in records])
    old = [place for place in range(len(new.terms)) if "\0t" not in new.terms[place]]
    assert len(old) < len(new.terms)
    rows = [new.holders[new.ptr[place] : new.ptr[place + 1]] for place in old]
    terms = PackedStrings.of_encoded([new.terms[place].encode() for place in old])
    stored = Entries(terms, np.cumsum([0, *map(len, rows)]), np.concatenate(rows))
    metadata = Metadata([json.dumps(record) for record in records], stored, num_stored=4)
    assert metadata.where(valid_at("2025-01-31", metadata.times)).nonzero()[0].tolist() == [0, 1, 3]
    assert metadata.where(valid_at("2025-01-30", metadata.times)).nonzero()[0].tolist() == [3]
    assert "'soon' is not a time in ISO 8601, so its passages are never valid" in caplog.text
