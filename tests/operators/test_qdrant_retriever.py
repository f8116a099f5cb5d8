from pathlib import Path

import numpy as np
import pytest

from graphrerank.operators.qdrant_retriever import QdrantRetriever
from tests.operators.stores import DIM, corpus

pytest.importorskip("qdrant_client")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": None}, "either `url` or `path` must be set and the other null, got None and None"),
        ({"path": "x"}, "either `url` or `path` must be set"),
        ({"url": "http://me:hunter2@host"}, "`url` must not contain a password"),
    ],
)
def test_arguments_out_of_range_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QdrantRetriever(corpus(3), **settings)


def test_somebody_elses_collection_is_refused(tmp_path: Path) -> None:
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(tmp_path))
    settings = models.VectorParams(size=DIM, distance=models.Distance.DOT)
    client.create_collection("c", vectors_config=settings)
    client.upsert("c", points=[models.PointStruct(id=5, vector=[1.0] * DIM)])
    client.close()
    with pytest.raises(ValueError, match="contains another corpus"):
        QdrantRetriever(corpus(3), url=None, path=tmp_path, collection="c").count()


def test_a_server_is_asked_for_what_the_index_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    class Client:
        def query_batch_points(self, name: str, requests: list[object]) -> list[object]:
            sent.extend(requests)
            return []

    for index in ("flat", "hnsw"):
        retriever = QdrantRetriever(corpus(5), url="http://localhost:1", index=index, ef_search=50)
        vars(retriever)["_client"] = Client()
        with pytest.raises(ValueError, match="zip"):
            retriever.nearest(np.ones((1, DIM), dtype=np.float32), 60)
    asked = [(ask.params.exact, ask.params.hnsw_ef, ask.limit) for ask in sent]
    assert asked == [(True, 60, 60), (False, 60, 60)]


def test_a_server_that_does_not_answer_is_named() -> None:
    with pytest.raises(ValueError, match=r"collection 'c' of Qdrant at http://127\.0\.0\.1:9 cannot be reached"):
        QdrantRetriever(corpus(3), url="http://127.0.0.1:9", collection="c").count()
