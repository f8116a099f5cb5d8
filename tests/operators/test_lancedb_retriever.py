import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.data.corpus_folder.growth import grow_corpus
from graphrerank.data.corpus_folder.opening import open_corpus
from graphrerank.data.corpus_folder.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset
from graphrerank.graphs import CorpusGraph, Queries
from graphrerank.operators.dense import DenseRetriever
from graphrerank.operators.lancedb_retriever import LanceDBRetriever, LanceStore
from graphrerank.operators.vector_store import fill_store
from tests.operators.stores import DIM, corpus, questions
from tests.support.encoders import HashEncoder

pytest.importorskip("lancedb")


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("top_k", [1, 20, 200])
def test_vectors_alone_against_dense_search_with_ties(tmp_path: Path, top_k: int, half: bool) -> None:
    graph = corpus(half=half)
    expected = DenseRetriever(graph, top_k=top_k).retrieve(questions(graph))
    retriever = LanceDBRetriever(graph, top_k=top_k, cache=tmp_path, bm25_weight=0.0, batch=50)
    found = retriever.retrieve(questions(graph))
    assert retriever.feature_names == ("base_score", "dense_score")
    for name in ("nodes", "scores", "features"):
        assert torch.equal(getattr(found, name), getattr(expected, name))


def naive(graph: CorpusGraph, queries: Queries, store: LanceStore, proposals: int, top_k: int) -> list[list[int]]:
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
    assert found.nodes.tolist() == naive(graph, queries, retriever._store, 30, 10)
    assert found.features is not None
    torch.testing.assert_close(found.features[..., 0], 0.3 * found.features[..., 1] + 0.7 * found.features[..., 2])
    assert retriever._store.search_texts(["number17 river"], 1)[0].tolist() == [[17]]
    assert (found.features[1, :, 1] == 0).all()  # a question without words


def test_cells_of_vectors_find_nearly_the_same(tmp_path: Path) -> None:
    graph = corpus(2000)
    exact = DenseRetriever(graph, top_k=10).retrieve(questions(graph, 4))
    approximate = LanceDBRetriever(graph, top_k=10, cache=tmp_path, bm25_weight=0.0, index="ivf", num_probes=20)
    found = approximate.retrieve(questions(graph, 4))
    assert [index.index_type for index in approximate._store._table.list_indices()] == ["IvfSq"]
    assert (found.nodes[:3, :, None] == exact.nodes[:3, None]).any(2).float().mean() > 0.8


def test_no_questions_and_no_passages(tmp_path: Path) -> None:
    graph = corpus(30)
    for weight in (0.0, 0.3):
        none = questions(graph).block(0, 0)
        retriever = LanceDBRetriever(graph, top_k=4, cache=tmp_path / str(weight), bm25_weight=weight)
        found = retriever.retrieve(none)
        assert found.features is not None
        assert found.features.shape == (0, 4, len(retriever.feature_names))


@pytest.mark.parametrize("vectors", ["float16", "float32"])
def test_a_corpus_folder_against_dense_search_in_it(tmp_path: Path, vectors: str) -> None:
    """As it was prepared, and as it has grown: each has a table of its own."""
    graph, encoder = dataclasses.replace(corpus(), vectors=None), HashEncoder(dim=DIM)
    dataset = Dataset("drawn", graph, [], [], {})
    folder = prepare_corpus(dataset, tmp_path / "corpus", encoder=encoder, vectors=vectors, part_size=50)
    queries = Queries(["a", "b"], ["castle forest", "number17"], encoder.encode(["castle forest", graph.texts[17]]))
    for added in ([], ["new"]):
        grow_corpus(folder, added, ["glacier lagoon"] * len(added), encoder=encoder)
        mapped = open_corpus(folder).graph
        expected = DenseRetriever(mapped, top_k=130).retrieve(queries)
        retriever = LanceDBRetriever(mapped, top_k=130, cache=tmp_path / "tables", bm25_weight=0.0, batch=50)
        found = retriever.retrieve(queries)
        assert torch.equal(found.nodes, expected.nodes)
        assert torch.equal(found.scores, expected.scores)
        assert int(found.nodes[1, 0]) == 17
        assert retriever._store.count() == mapped.num_nodes
    both = LanceDBRetriever(mapped, top_k=5, cache=tmp_path / "texts", proposals=30).retrieve(queries)
    assert int(both.nodes[1, 0]) == 17


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"top_k": 0}, "`top_k` must be a positive integer, got 0"),
        ({"index": "hnsw"}, r"`index` must be one of \['flat', 'ivf'\], got 'hnsw'"),
        ({"bm25_weight": 0, "dense_weight": 0}, "must not both be 0"),
        ({"proposals": 50}, "`proposals` must be at least `top_k`, 100, got 50"),
        ({"cache": None}, "`path` or `cache` must be given"),
    ],
)
def test_arguments_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LanceDBRetriever(corpus(3), **{"cache": "unused", **settings})


pytest.importorskip("lancedb")


def store(folder: Path, **settings: Any) -> LanceStore:
    defaults: dict[str, Any] = {"content": "x", "num_nodes": 130, "dim": DIM, "half": False, "index": "flat"}
    return LanceStore(folder, **defaults | {"num_probes": 16, "full_text": True} | settings)


def filled(folder: Path, graph: CorpusGraph, **settings: Any) -> LanceStore:
    made = store(folder, **settings)
    with made.alone():
        fill_store(made, graph, batch=40)
    return made


@pytest.mark.parametrize("settings", [{"content": "y"}, {"dim": 4}, {"half": True}])
def test_a_table_of_another_corpus_or_encoder_is_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    filled(tmp_path, corpus(130))
    with pytest.raises(ValueError, match=f"{tmp_path}: holds another corpus, or vectors of another encoder"):
        store(tmp_path, **settings).count()


def test_somebody_elses_table_is_refused(tmp_path: Path) -> None:
    import lancedb

    lancedb.connect(tmp_path).create_table("passages", [{"text": "a", "vector": [1.0] * DIM}])
    with pytest.raises(ValueError, match="holds another corpus"):
        store(tmp_path).count()


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    filled(tmp_path, corpus(130))
    for file in (tmp_path / "passages.lance" / "_versions").iterdir():
        file.write_bytes(b"x")
    with pytest.raises(ValueError, match=f"{tmp_path}: LanceDB cannot read or write the table"):
        store(tmp_path).count()


def test_a_stopped_filling_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, add, starts = corpus(130), LanceStore.add, []

    def stops(self: LanceStore, start: int, *rest: Any) -> None:
        starts.append(start)
        if len(starts) == 3:
            raise KeyboardInterrupt
        add(self, start, *rest)

    monkeypatch.setattr(LanceStore, "add", stops)
    with pytest.raises(KeyboardInterrupt):
        filled(tmp_path, graph)
    assert not store(tmp_path).is_finished
    made = filled(tmp_path, graph)
    assert starts == [0, 40, 80, 80, 120]
    assert made.is_finished
    nodes, _ = made.search_texts(["number129"], 5)
    assert nodes.tolist() == [[129, -1, -1, -1, -1]]


def test_one_that_is_complete_is_not_added_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, corpus(130))
    monkeypatch.setattr(LanceStore, "add", None)
    assert filled(tmp_path, corpus(130)).count() == 130


def test_more_passages_than_the_corpus_are_refused(tmp_path: Path) -> None:
    filled(tmp_path, corpus(130))
    with pytest.raises(ValueError, match="needed the 120 passages of the corpus, found 130"):
        filled(tmp_path, corpus(120))


def test_a_lone_surrogate_is_stored(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.add(0, ["a"], ["harbour \ud800"], corpus(1).encoded.numpy())
    made.finish()
    assert made.search_texts(["harbour"], 1)[0].tolist() == [[0]]
