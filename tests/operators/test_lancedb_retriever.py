from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.core import Queries
from graphrerank.corpus import CorpusGraph
from graphrerank.operators.dense import DenseRetriever
from graphrerank.operators.lancedb_retriever import LanceDBRetriever
from tests.operators.stores import DIM, corpus, questions

pytest.importorskip("lancedb")


def naive(graph: CorpusGraph, queries: Queries, store: LanceDBRetriever, proposals: int, top_k: int) -> list[list[int]]:
    near = DenseRetriever(graph, top_k=proposals).retrieve(queries)
    rankings = []
    for row, text in enumerate(queries.texts):
        found, scores = store.search_texts([text], proposals)
        words = {int(node): float(score) for node, score in zip(found[0], scores[0], strict=True) if node >= 0}
        largest = max(words.values(), default=1.0)
        nodes = {*words, *(node for node in near.nodes[row].tolist() if node >= 0)}
        dense = {node: float((graph.encoded[node] * queries.encoded[row]).sum()) for node in nodes}
        score = {node: round(0.3 * words.get(node, 0.0) / largest + 0.7 * dense[node], 6) for node in nodes}
        rankings.append(sorted(nodes, key=lambda node: (-score[node], node))[:top_k])
    return rankings


def test_full_text_and_vectors_against_a_naive_sum(tmp_path: Path) -> None:
    graph = corpus()
    queries = questions(graph)
    retriever = LanceDBRetriever(graph, top_k=10, cache=tmp_path, proposals=30)
    found = retriever.retrieve(queries)
    assert retriever.feature_names == ("base_score", "bm25_score", "dense_score")
    assert found.nodes.tolist() == naive(graph, queries, retriever, 30, 10)
    torch.testing.assert_close(found.features[..., 0], 0.3 * found.features[..., 1] + 0.7 * found.features[..., 2])
    assert retriever.search_texts(["number17 river"], 1)[0].tolist() == [[17]]
    assert (found.features[1, :, 1] == 0).all()  # a question without words
    none = retriever.retrieve(queries.block(0, 0))
    assert none.features.shape == (0, 10, 3)


def test_cells_of_vectors_find_nearly_the_same(tmp_path: Path) -> None:
    graph = corpus(2000)
    exact = DenseRetriever(graph, top_k=10).retrieve(questions(graph, 4))
    approximate = LanceDBRetriever(graph, top_k=10, cache=tmp_path, bm25_weight=0.0, index="ivf", num_probes=20)
    found = approximate.retrieve(questions(graph, 4))
    assert [index.index_type for index in approximate._table.list_indices()] == ["IvfSq"]
    assert (found.nodes[:3, :, None] == exact.nodes[:3, None]).any(2).float().mean() > 0.8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bm25_weight": 0, "dense_weight": 0}, "must be positive, got 0 and 0"),
        ({"proposals": 50}, "`proposals` must be at least `top_k`, 100, got 50"),
        ({"cache": None}, "`path` .* or `cache` .* must be set"),
    ],
)
def test_arguments_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LanceDBRetriever(corpus(3), **{"cache": "unused", **settings})


def test_a_foreign_table_and_a_damaged_one_are_named(tmp_path: Path) -> None:
    import lancedb

    lancedb.connect(tmp_path / "a").create_table("passages", [{"text": "a", "vector": [1.0] * DIM}])
    with pytest.raises(ValueError, match="contains another corpus"):
        LanceDBRetriever(corpus(3), path=tmp_path / "a").count()
    LanceDBRetriever(corpus(3), path=tmp_path / "b").fill()
    for file in (tmp_path / "b" / "passages.lance" / "_versions").iterdir():
        file.write_bytes(b"x")
    with pytest.raises(ValueError, match=f"{tmp_path}/b cannot be reached, read or written"):
        LanceDBRetriever(corpus(3), path=tmp_path / "b").count()


def test_a_lone_surrogate_is_stored(tmp_path: Path) -> None:
    graph = corpus(1).with_passages(texts=["harbour \ud800"])
    retriever = LanceDBRetriever(graph, path=tmp_path)
    retriever.fill()
    assert retriever.search_texts(["harbour"], 1)[0].tolist() == [[0]]
