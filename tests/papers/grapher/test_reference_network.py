from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphrerank_papers.grapher.reference_network import load_reference_network

Write = Callable[..., Path]
QUERIES = [{"_id": "q1", "text": "Ants?"}, {"_id": "q2", "text": "Bees?"}]
ANTS = {
    "_id": "a",
    "title": "Ants",
    "text": "Ants dig well. They follow bees [1]. They sleep [2].\n\nReferences\n\nCrabs run far: see [3].",
    "metadata": {"references": [{"id": "b", "key": 1}, {"id": "elsewhere", "key": "2"}, {"id": "c", "key": "3"}]},
}
BEES = {
    "_id": "b",
    "title": "Bees",
    "text": "Bees fly very far. As ants do (Smith, 2020).",
    "metadata": {
        "references": [{"id": "a", "authors": ["Ann Smith"], "year": 2020}, {"id": "b", "title": "Bees fly very"}]
    },
}
CRABS = {"_id": "c", "title": "Crabs", "text": ""}


@pytest.fixture
def papers(write_folder: Write, tmp_path: Path) -> Path:
    return write_folder(
        tmp_path / "papers",
        corpus=[ANTS, BEES, CRABS],
        queries=QUERIES,
        edges=None,
        train=None,
        test="query-id\tcorpus-id\tscore\nq1\ta\t2\nq2\tc\t1\n",
    )


def test_chunks_that_cite(papers: Path) -> None:
    data = load_reference_network(papers, max_size=40)
    graph = data.graph
    assert dict(zip(graph.node_ids, graph.texts, strict=True)) == {
        "a#0": "Ants. Ants dig well. They follow bees [1].",
        "a#1": "Ants. They sleep [2].\n\nReferences",
        "a#2": "Ants. Crabs run far: see [3].",
        "b#0": "Bees. Bees fly very far.",
        "b#1": "Bees. As ants do (Smith, 2020).",
        "c#0": "Crabs",
    }
    pairs = edges(data)
    cites = {("a#0", "b#0"), ("a#0", "b#1"), ("b#1", "a#0"), ("b#1", "a#1"), ("b#1", "a#2")}
    assert pairs == cites | {(b, a) for a, b in cites}
    assert data.edge_counts == {"citations": 4}


def edges(data: Any) -> set[tuple[str, str]]:
    graph, found = data.graph, set()
    for node, node_id in enumerate(graph.node_ids):
        for other in graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist():
            found.add((node_id, graph.node_ids[other]))
    return found


def test_all_chunks_of_a_relevant_paper_are_relevant(papers: Path) -> None:
    qrels = load_reference_network(papers, max_size=40).splits["test"]
    found = list(zip(qrels.query.tolist(), qrels.node.tolist(), qrels.gain.tolist(), strict=True))
    assert sorted(found) == [(0, 0, 2.0), (0, 1, 2.0), (0, 2, 2.0), (1, 5, 1.0)]


def test_judgements_of_chunks(papers: Path) -> None:
    (papers / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ta#1\t1\nq2\tc#0\t1\n")
    qrels = load_reference_network(papers, max_size=40, gold="chunk").splits["test"]
    assert qrels.node.tolist() == [1, 5]
    with pytest.raises(ValueError, match=r"test.tsv, line 2: .*found 'a#1'"):
        load_reference_network(papers, max_size=40)


def test_a_chunk_is_as_long_as_in_the_paper(papers: Path) -> None:
    data = load_reference_network(papers, name="net", knn=2)
    assert data.graph.node_ids == ["a#0", "b#0", "c#0"]
    assert (data.name, data.knn, edges(data)) == ("net", 2, {("a#0", "b#0"), ("b#0", "a#0")})


@pytest.mark.parametrize(
    "references",
    ["b", [{"key": "1"}], ["b"], [{"id": 3}], [{"id": "b", "authors": "Smith"}], [{"id": "b", "year": 20.5}]],
)
def test_malformed_references_name_the_paper(write_folder: Write, tmp_path: Path, references: Any) -> None:
    corpus = [ANTS, {**BEES, "metadata": {"references": references}}, CRABS]
    folder = write_folder(tmp_path / "bad", corpus=corpus, queries=QUERIES, edges=None, train=None, test=None)
    with pytest.raises(ValueError, match=r"bad: `references` in the metadata of a paper must be a list .* in 'b'"):
        load_reference_network(folder)
