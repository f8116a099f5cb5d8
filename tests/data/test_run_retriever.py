import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.data.candidates import prepare
from graphrerank.data.dataset import Dataset
from graphrerank.data.readers.run_candidates import read_run, run_feature_names
from graphrerank.data.run_retriever import RunRetriever
from graphrerank.graphs import CorpusGraph, Queries
from graphrerank.graphs.retriever import needs_vectors

RUN = "q1 Q0 b 1 3 x\nq1 Q0 a 2 1 x\nq2 Q0 d d 1 2 x\nq2 Q0 c 2 1.5 x\n"


def graph() -> CorpusGraph:
    return CorpusGraph.from_edges(["a", "b", "c", "d d"], [""] * 4, torch.zeros(0, 2))


def test_against_read_run(tmp_path: Path) -> None:
    file = tmp_path / "run.trec"
    file.write_text(RUN)
    queries = Queries(["q2", "q1"], ["", ""])
    found = RunRetriever(graph(), path=file, top_k=3).retrieve(queries)
    expected = read_run(file, query_ids=queries.ids, node_ids=graph().node_ids, top_k=3).ranking
    assert found.nodes.tolist() == [[3, 2, -1], [1, 0, -1]]
    assert torch.equal(found.scores, expected.scores)
    assert found.features is not None
    assert expected.features is not None
    assert torch.equal(found.features, expected.features)
    assert found.base_nodes is None


def test_feature_names_are_those_of_the_run(tmp_path: Path) -> None:
    candidate = {"doc_id": "a", "score": 1, "features": {"splade": 2, "colbert": 3}}
    lines = [{"query_id": "q0", "candidates": []}, {"query_id": "q1", "candidates": [candidate]}]
    file = tmp_path / "run.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + "{ not read\n")
    assert RunRetriever(graph(), path=file).feature_names == ("base_score", "splade", "colbert")
    assert run_feature_names(file) == ("base_score", "splade", "colbert")
    (tmp_path / "run.trec").write_text("")
    assert run_feature_names(tmp_path / "run.trec") == ("base_score",)


def test_a_query_without_candidates_is_padding_and_named(tmp_path: Path) -> None:
    file = tmp_path / "run.trec"
    file.write_text(RUN)
    retriever = RunRetriever(graph(), path=file, top_k=2)
    with pytest.warns(UserWarning, match=r"run\.trec: 4 candidates for 2 of 3 queries; none for q3"):
        found = retriever.retrieve(Queries(["q1", "q2", "q3"], [""] * 3))
    assert found.nodes[2].tolist() == [-1, -1]


def test_queries_of_other_data_are_refused_unless_ignored(tmp_path: Path) -> None:
    file = tmp_path / "run.trec"
    file.write_text(RUN)
    queries = Queries(["q1"], [""])
    with pytest.raises(ValueError, match=r"run\.trec, line 3: needed a query of the data set"):
        RunRetriever(graph(), path=file).retrieve(queries)
    found = RunRetriever(graph(), path=file, top_k=2, ignore_unknown_queries=True).retrieve(queries)
    assert found.nodes.tolist() == [[1, 0]]


@pytest.mark.parametrize("name", ["run.trec", "run.jsonl"])
def test_errors(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}: no such file"):
        RunRetriever(graph(), path=tmp_path / name)
    with pytest.raises(ValueError, match="`top_k` must be a positive integer, got 0"):
        RunRetriever(graph(), path=tmp_path / name, top_k=0)


def test_prepared_from_a_run_without_an_encoder(write_folder: Any, tmp_path: Path) -> None:
    """A changed file is read again; an unchanged one comes from the cache."""
    dataset = Dataset.from_folder(write_folder(), splits=["train", "test"])
    file, build = tmp_path / "run.trec", partial(RunRetriever, path=str(tmp_path / "run.trec"), top_k=2)
    assert not needs_vectors(build)
    file.write_text(RUN)
    prepared = prepare(dataset, encoder=None, build_retriever=build, cache=tmp_path / "cache")
    assert prepared.feature_names == ("base_score",)
    assert prepared.ranking.nodes.tolist() == [[1, 0], [3, 2]]
    assert prepared.ceiling("train") == prepared.base_ceiling("train") == 1.0
    prepare(dataset, encoder=None, build_retriever=build, cache=tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 1
    file.write_text(RUN.replace("q1 Q0 a", "q1 Q0 c"))
    again = prepare(dataset, encoder=None, build_retriever=build, cache=tmp_path / "cache")
    assert again.ranking.nodes.tolist() == [[1, 2], [3, 2]]
    assert again.ceiling("train") == 0.0
