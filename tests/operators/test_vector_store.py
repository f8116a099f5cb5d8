from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.core import Queries
from graphrerank.corpus_store.growth import grow_corpus
from graphrerank.corpus_store.opening import open_corpus
from graphrerank.corpus_store.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset
from graphrerank.operators.dense import DenseRetriever
from graphrerank.operators.vector_store import VectorStoreRetriever
from tests.operators.stores import DIM, corpus, lance, qdrant, questions
from tests.support.encoders import HashEncoder

Make = Callable[..., VectorStoreRetriever]
STORES = [
    pytest.param(lance, marks=pytest.mark.skipif(lance is None, reason="no LanceDB")),
    pytest.param(qdrant, marks=pytest.mark.skipif(qdrant is None, reason="no Qdrant")),
]
every_store = pytest.mark.parametrize("make", STORES)


def closed(retriever: VectorStoreRetriever) -> None:
    """Give up the lock of Qdrant's local mode, as a process that ends does."""
    if (client := vars(retriever).get("_client")) is not None:
        client.close()


@every_store
@pytest.mark.parametrize(("top_k", "half"), [(1, False), (20, True), (200, False)])
def test_against_dense_search_with_ties(make: Make, tmp_path: Path, top_k: int, half: bool) -> None:
    graph = corpus(half=half)
    expected = DenseRetriever(graph, top_k=top_k).retrieve(questions(graph))
    retriever = make(tmp_path, graph, top_k=top_k, batch=50)
    found = retriever.retrieve(questions(graph))
    assert retriever.feature_names == ("base_score", "dense_score")
    for name in ("nodes", "scores", "features"):
        assert torch.equal(getattr(found, name), getattr(expected, name))


@every_store
@pytest.mark.parametrize("vectors", ["float16", "float32"])
def test_a_corpus_folder_against_dense_search_in_it(make: Make, tmp_path: Path, vectors: str) -> None:
    """As it was prepared, and as it has grown: each has a table of its own."""
    graph, encoder = corpus(40, with_vectors=False), HashEncoder(dim=DIM)
    dataset = Dataset("drawn", graph, [], [], {})
    folder = prepare_corpus(dataset, tmp_path / "corpus", encoder=encoder, vectors=vectors, part_size=15)
    queries = Queries(["a", "b"], ["castle forest", "number17"], encoder.encode(["castle forest", graph.texts[17]]))
    for added in ([], ["new"]):
        grow_corpus(folder, added, ["glacier lagoon"] * len(added), encoder=encoder)
        mapped = open_corpus(folder).graph
        expected = DenseRetriever(mapped, top_k=50).retrieve(queries)
        retriever = make(tmp_path, mapped, top_k=50, batch=15)
        found = retriever.retrieve(queries)
        assert torch.equal(found.nodes, expected.nodes)
        assert torch.equal(found.scores, expected.scores)
        assert int(found.nodes[1, 0]) == 17
        assert retriever.count() == mapped.num_nodes
        closed(retriever)
    in_memory = mapped.with_embedding(mapped.encoded.clone())
    same = make(tmp_path, in_memory, top_k=50)
    assert same.count() == mapped.num_nodes  # the same corpus in memory shares it


@every_store
@pytest.mark.parametrize("top_k", [5, 60])
def test_a_part_of_a_corpus_is_searched_in_the_store_of_the_whole(make: Make, tmp_path: Path, top_k: int) -> None:
    whole = corpus()
    part = whole.select(torch.arange(0, 100, 2)).select(torch.arange(5, 45))
    expected = DenseRetriever(part.with_embedding(part.encoded), top_k=top_k).retrieve(questions(whole))
    retriever = make(tmp_path, part, top_k=top_k)
    found = retriever.retrieve(questions(whole))
    for name in ("nodes", "scores"):
        assert torch.equal(getattr(found, name), getattr(expected, name))
    assert retriever.count() == 120


@every_store
def test_another_corpus_or_encoder_is_refused(make: Make, tmp_path: Path) -> None:
    graph = corpus(20)
    first = make(tmp_path, graph, name="one")
    first.fill()
    closed(first)
    for other in (corpus(20, seed=1), graph.with_embedding(torch.ones(20, 4)), corpus(20, half=True)):
        refused = make(tmp_path, other, name="one")
        with pytest.raises(ValueError, match=r"one.* contains another corpus or the vectors of another encoder"):
            refused.count()
        closed(refused)


@every_store
def test_a_stopped_filling_goes_on_where_it_was(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = corpus(26)
    retriever = make(tmp_path, graph, batch=8, name="one")
    add, starts = type(retriever).add, []

    def stops(self: VectorStoreRetriever, start: int, *rest: Any) -> None:
        starts.append(start)
        if len(starts) == 3:
            raise KeyboardInterrupt
        add(self, start, *rest)

    monkeypatch.setattr(type(retriever), "add", stops)
    with pytest.raises(KeyboardInterrupt):
        retriever.fill()
    assert retriever.count() == 16
    retriever.fill()
    assert starts == [0, 8, 16, 16, 24]
    assert retriever.count() == 26
    monkeypatch.setattr(type(retriever), "add", None)  # nothing is added to one that is complete
    retriever.fill()
    assert int(retriever.nearest(graph.encoded[5:6].numpy(), 3)[0, 0]) == 5


@every_store
def test_no_questions_and_what_is_refused(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = corpus(30)
    retriever = make(tmp_path, graph, top_k=4)
    found = retriever.retrieve(questions(graph).block(0, 0))
    assert found.features.shape == (0, 4, 2)
    monkeypatch.setattr(retriever, "count", lambda: 31)
    with pytest.raises(ValueError, match="must contain at most the 30 passages of the corpus, got 31"):
        retriever.fill()
    with pytest.raises(ValueError, match="`top_k` must be a positive integer, got 0"):
        make(tmp_path, graph, top_k=0)
    with pytest.raises(ValueError, match=r"`index` must be one of \['flat', '\w+'\], got 'x'"):
        make(tmp_path, graph, index="x")
    with pytest.raises(ValueError, match="`graph` must have an embedding"):
        make(tmp_path, corpus(3, with_vectors=False))
