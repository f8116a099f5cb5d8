from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphrerank.graphs import CorpusGraph
from graphrerank.operators.qdrant_store import QdrantStore
from graphrerank.operators.vector_store import fill_store
from tests.operators.stores import DIM, corpus

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
