from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphrerank_papers.grapher.reference_network import (
    Reference,
    cited_references,
    load_reference_network,
)

SMITH = Reference("a", key="1", title="Ants of the North", authors=("Ann Smith", "Bo Lee", "Cy Roy"), year="2020")
LEE = Reference("b", key="[9]", title="Bees", authors=("Lee, Bo", "Smith, Ann"), year="2019b")
BERG = Reference("c", key="Berg18", title="", authors=("Jan van der Berg",), year="2018")
REFERENCES = [SMITH, LEE, BERG]


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("As shown [1].", [0]),
        ("As shown [3, 9; Berg18].", [1, 2]),
        ("As shown [7-10] and [berg18].", [1, 2]),
        ("As shown [10\u201312], (1) and 9.", []),
        ("Some say so (Smith et al., 2020).", [0]),
        ("Smith et al. (2020a) say so.", [0]),
        ("Smith and Lee (2020) say so; so did Smith & Roy, 2020.", [0]),
        ("Smith and Jones (2020) say so.", []),
        ("Smith (2019) and Lee (2020) say so.", []),
        ("Lee and Smith's (2017, 2019b) work", [1]),
        ("Lee and Smith (2019)", []),
        ("van der Berg (2018) and [Smith 2020]", [0, 2]),
        ("Blacksmith et al. (2020)", []),
        ("We repeat Ants of the north, with bees.", [0]),
        ("", []),
    ],
)
def test_patterns(text: str, cited: list[int]) -> None:
    assert cited_references([text], [REFERENCES]) == [cited]


def test_each_text_has_its_own_references() -> None:
    assert cited_references(["[1]", "[1]", "[1]"], [[SMITH], [], [BERG, SMITH]]) == [[0], [], [1]]


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
    qrels = data.splits["test"]  # all chunks of a relevant paper are relevant
    found = list(zip(qrels.query.tolist(), qrels.node.tolist(), qrels.gain.tolist(), strict=True))
    assert sorted(found) == [(0, 0, 2.0), (0, 1, 2.0), (0, 2, 2.0), (1, 5, 1.0)]


def edges(data: Any) -> set[tuple[str, str]]:
    graph, found = data.graph, set()
    for node, node_id in enumerate(graph.node_ids):
        for other in graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist():
            found.add((node_id, graph.node_ids[other]))
    return found


def test_judgements_of_chunks(papers: Path) -> None:
    (papers / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ta#1\t1\nq2\tc#0\t1\n")
    qrels = load_reference_network(papers, max_size=40, gold="chunk").splits["test"]
    assert qrels.node.tolist() == [1, 5]
    with pytest.raises(ValueError, match=r"test.tsv, line 2: .*got 'a#1'"):
        load_reference_network(papers, max_size=40)


def test_a_chunk_is_as_long_as_in_the_paper(papers: Path) -> None:
    data = load_reference_network(papers, name="net", knn=2)
    assert data.graph.node_ids == ["a#0", "b#0", "c#0"]
    assert (data.name, data.knn, edges(data)) == ("net", 2, {("a#0", "b#0"), ("b#0", "a#0")})


@pytest.mark.parametrize(
    "references",
    ["b", [{"key": "1"}], [{"id": "b", "authors": "Smith"}], [{"id": "b", "year": 20.5}]],
)
def test_malformed_references_name_the_paper(write_folder: Write, tmp_path: Path, references: Any) -> None:
    corpus = [ANTS, {**BEES, "metadata": {"references": references}}, CRABS]
    folder = write_folder(tmp_path / "bad", corpus=corpus, queries=QUERIES, edges=None, train=None, test=None)
    with pytest.raises(ValueError, match=r"bad: `references` in the metadata of a paper must be a list .* in 'b'"):
        load_reference_network(folder)
