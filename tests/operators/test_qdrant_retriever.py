from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphrerank.data.corpus_folder.opening import open_corpus
from graphrerank.data.corpus_folder.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.graphs import CorpusGraph
from graphrerank.operators.dense import DenseRetriever
from graphrerank.operators.qdrant_retriever import QdrantRetriever, QdrantStore
from graphrerank.operators.vector_store import fill_store
from tests.operators.stores import DIM, corpus, questions

pytest.importorskip("qdrant_client")


def local(folder: Path, **settings: object) -> dict[str, object]:
    return {"url": None, "path": folder / "qdrant", **settings}


@pytest.mark.parametrize("half", [False, True])
def test_against_dense_search_with_ties(tmp_path: Path, half: bool) -> None:
    graph, store = corpus(half=half), None
    for top_k in (20, 1, 200):
        expected = DenseRetriever(graph, top_k=top_k).retrieve(questions(graph))
        retriever = QdrantRetriever(graph, top_k=top_k, **local(tmp_path, batch=64))  # type: ignore[arg-type]
        store = vars(retriever).setdefault("_store", store) if store else retriever._store
        found = retriever.retrieve(questions(graph))
        assert retriever.feature_names == ("base_score", "dense_score")
        for name in ("nodes", "scores", "features"):
            assert torch.equal(getattr(found, name), getattr(expected, name))


class Encoder:
    name, fingerprint = "table", "table-1"

    def encode(self, texts: list[str]) -> torch.Tensor:
        rows = [
            torch.randn(DIM, generator=torch.Generator().manual_seed(len(text) * 31 + ord(text[0]))) for text in texts
        ]
        return torch.nn.functional.normalize(torch.stack(rows), dim=1)


def test_a_corpus_folder_and_the_same_corpus_in_memory_share_a_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = corpus(20)
    qrels = {"test": Qrels(torch.tensor([0]), torch.tensor([3]), torch.ones(1))}
    dataset = Dataset("tiny", graph, ["q"], ["castle"], qrels)
    prepare_corpus(dataset, tmp_path / "corpus", encoder=Encoder(), vectors="float32")  # type: ignore[arg-type]
    mapped = open_corpus(tmp_path / "corpus").graph
    in_memory = graph.with_embedding(mapped.encoded.clone())
    first = QdrantRetriever(in_memory, top_k=9, **local(tmp_path))  # type: ignore[arg-type]
    expected = first.retrieve(questions(in_memory))
    first._store._client.close()
    monkeypatch.setattr("graphrerank.operators.qdrant_retriever.QdrantStore.add", None)  # nothing is to be added
    found = QdrantRetriever(mapped, top_k=9, **local(tmp_path)).retrieve(questions(mapped))  # type: ignore[arg-type]
    assert torch.equal(found.nodes, expected.nodes)
    assert torch.equal(found.scores, expected.scores)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"top_k": 0}, "`top_k` must be a positive integer, got 0"),
        ({"index": "ivf"}, r"`index` must be one of \['flat', 'hnsw'\], got 'ivf'"),
        ({"url": None}, "either `url` or `path` must be given, the other null; got None and None"),
        ({"path": "x"}, "either `url` or `path` must be given"),
        ({"url": "http://me:hunter2@host"}, "`url` must not hold a password"),
    ],
)
def test_arguments_out_of_range_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QdrantRetriever(corpus(3), **settings)  # type: ignore[arg-type]


pytest.importorskip("qdrant_client")


def store(folder: Path | None, **settings: Any) -> QdrantStore:
    defaults: dict[str, Any] = {
        "url": None,
        "path": folder,
        "collection": "c",
        "content": "x",
        "dim": DIM,
        "half": False,
    }
    return QdrantStore(**defaults | {"index": "flat", "ef_search": 128} | settings)


def filled(folder: Path, graph: CorpusGraph, **settings: Any) -> QdrantStore:
    made = store(folder, **settings)
    fill_store(made, graph, batch=20)
    return made


@pytest.mark.parametrize("settings", [{"content": "y"}, {"dim": 4}])
def test_a_collection_of_another_corpus_or_encoder_is_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    filled(tmp_path, corpus(20))._client.close()
    with pytest.raises(ValueError, match=r"collection 'c' of Qdrant at .* holds another corpus, or vectors of another"):
        store(tmp_path, **settings).count()


def test_somebody_elses_collection_is_refused(tmp_path: Path) -> None:
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(tmp_path))
    settings = models.VectorParams(size=DIM, distance=models.Distance.DOT)
    client.create_collection("c", vectors_config=settings)
    client.upsert("c", points=[models.PointStruct(id=5, vector=[1.0] * DIM)])
    client.close()
    with pytest.raises(ValueError, match="holds another corpus"):
        store(tmp_path).count()


def test_a_stopped_filling_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, add, starts = corpus(50), QdrantStore.add, []

    def stops(self: QdrantStore, start: int, *rest: Any) -> None:
        starts.append(start)
        if len(starts) == 3:
            raise KeyboardInterrupt
        add(self, start, *rest)

    monkeypatch.setattr(QdrantStore, "add", stops)
    with pytest.raises(KeyboardInterrupt):
        filled(tmp_path, graph)
    made = filled(store_closed(tmp_path), graph)
    assert starts == [0, 20, 40, 40]
    assert made.count() == 50
    expected = np.argsort(-(graph.encoded.numpy()[5:6] @ graph.encoded.numpy().T), axis=1, kind="stable")
    assert made.nearest(graph.encoded[5:6].numpy(), 3)[0, 0] == expected[0, 0] == 5


def store_closed(folder: Path) -> Path:
    """Give up the lock of a client that a stopped process would have left to the kernel."""
    import gc

    gc.collect()
    return folder


def test_a_server_is_asked_for_what_the_index_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, sent = filled(tmp_path, corpus(5)), []
    for index in ("flat", "hnsw"):
        asking = store(None, url="http://localhost:1", index=index, ef_search=50)
        monkeypatch.setattr(asking, "_client", made._client, raising=False)
        monkeypatch.setattr(
            type(made._client), "query_batch_points", lambda self, name, requests: sent.extend(requests) or []
        )
        with pytest.raises(ValueError, match="zip"):
            asking.nearest(np.ones((1, DIM), dtype=np.float32), 60)
    assert [(ask.params.exact, ask.params.hnsw_ef, ask.limit) for ask in sent] == [(True, 60, 60), (False, 60, 60)]


def test_a_server_that_does_not_answer_is_named() -> None:
    with pytest.raises(ValueError, match=r"collection 'c' of Qdrant at http://127\.0\.0\.1:9: cannot be reached"):
        store(None, url="http://127.0.0.1:9").count()
