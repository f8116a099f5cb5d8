"""Groups of columns of a corpus folder, by hand and against the folder."""

import json
from pathlib import Path

import numpy as np
import torch

from graphrerank.corpus import CorpusGraph, PackedStrings
from graphrerank.corpus.edge_lists import GuardedEdges
from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus_store.graph_columns import (
    edge_columns,
    entity_columns,
    entity_name_columns,
    graph_columns,
    guarded_edge_columns,
    judgement_columns,
    metadata_columns,
    stated_edge_columns,
    string_columns,
    title_columns,
)
from graphrerank.corpus_store.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset
from graphrerank.data.derived_edges import DerivedEdges, EdgeRule, of_type
from graphrerank.data.qrels import Qrels
from tests.corpus_store.conftest import MakeDataset

GRAPH = CorpusGraph.from_edges(["a", "b", "c"], ["A.", "B.", "C."], torch.tensor([[0, 1]]))


def strings(columns: dict[str, np.ndarray], name: str) -> list[str]:
    return list(PackedStrings(columns[f"{name}.offsets"], columns[f"{name}.content"]))


def test_what_a_plain_graph_lacks_has_no_columns() -> None:
    assert sorted(edge_columns(GRAPH)) == ["edges.indices", "edges.indptr", "edges.weight"]
    for group in (title_columns(GRAPH), entity_columns(GRAPH), guarded_edge_columns(GRAPH), stated_edge_columns(None)):
        assert group == {}
    assert entity_name_columns(GRAPH, None) == {}


def test_edges_and_stated_edges_by_hand() -> None:
    assert edge_columns(GRAPH)["edges.indptr"].tolist() == [0, 1, 2, 2]
    assert edge_columns(GRAPH)["edges.indices"].tolist() == [1, 0]
    columns = stated_edge_columns(of_type(torch.tensor([[1, 2]]), 3))
    assert {name: column.tolist() for name, column in columns.items()} == {
        "stated.pairs": [[1, 2]],
        "stated.weight": [1.0],
        "stated.type": [3],
    }


def test_names_of_entities_are_sorted_json() -> None:
    derived = DerivedEdges(of_type(torch.zeros(0, 2).long(), 0), EdgeRule(), [{"y", "x"}, set(), {"z"}])
    assert strings(entity_name_columns(GRAPH, derived), "stated.entities") == ['["x", "y"]', "[]", '["z"]']


def test_metadata_and_their_index() -> None:
    records = [{"lang": "de"}, {}, {"lang": "en", "principals": ["hr"]}]
    columns = metadata_columns(GRAPH.with_passages(metadata=Metadata(records)))
    assert [json.loads(text) if text else {} for text in strings(columns, "metadata")] == records
    terms = strings(columns, "metadata.terms")
    rows = columns["metadata.ptr"]
    holders = {
        term: columns["metadata.holders"][start:stop].tolist()
        for term, start, stop in zip(terms, rows[:-1], rows[1:], strict=True)
    }
    assert holders == {"lang\0sde": [0], "lang\0sen": [2], "principals\0": [2], "principals\0shr": [2]}
    assert strings(metadata_columns(GRAPH), "metadata") == ["", "", ""]


def test_judgements_by_split() -> None:
    splits = {"train": Qrels.from_rows([(0, 2, 1.0)]), "test": Qrels.from_rows([(1, 0, 2.0)])}
    columns = judgement_columns(Dataset("d", GRAPH, ["q", "r"], ["?", "!"], splits))
    assert columns["split0.node"].tolist() == [2]
    assert columns["split1.gain"].tolist() == [2.0]


def test_a_folder_has_all_groups_in_their_order(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = make_dataset()
    guarded = GuardedEdges(torch.tensor([[0, 1]]), torch.ones(1), torch.zeros(1).long(), torch.zeros(1).long(), ["[]"])
    dataset = dataset.with_graph(CorpusGraph(**{**vars(dataset.graph), "guarded": guarded}))
    folder = prepare_corpus(dataset, tmp_path / "corpus")
    written = list(json.loads((folder / "corpus.json").read_text())["columns"])
    groups = list(graph_columns(dataset, None))
    assert [name for name in written if name in groups] == groups
    assert {"guarded.pairs", "guarded.groups.offsets"} <= set(groups)


def test_strings_are_two_columns() -> None:
    assert strings(string_columns("x", PackedStrings.of(["é", ""])), "x") == ["é", ""]
