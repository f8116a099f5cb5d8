from pathlib import Path

import pytest
import torch

from graphrerank.data.corpus_folder.opening import open_corpus
from graphrerank.data.corpus_folder.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.operators.dense import DenseRetriever
from graphrerank.operators.qdrant_retriever import QdrantRetriever
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
    monkeypatch.setattr("graphrerank.operators.qdrant_store.QdrantStore.add", None)  # nothing is to be added
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
