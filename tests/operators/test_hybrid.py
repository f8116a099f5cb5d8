import pytest
import torch

from graphrerank.operators.bm25 import BM25, BM25Retriever
from graphrerank.operators.dense import DenseRetriever
from graphrerank.operators.hybrid import HybridRetriever
from tests.operators.corpora import assert_equal, corpus, queries


@pytest.mark.parametrize(("bm25_weight", "dense_weight"), [(0.3, 0.7), (1.0, 0.0), (0.0, 2.0)])
@pytest.mark.parametrize("top_k", [1, 6, 20])
def test_against_naive_loop(top_k: int, bm25_weight: float, dense_weight: float) -> None:
    graph, asked = corpus(20), queries()
    found = HybridRetriever(graph, top_k=top_k, bm25_weight=bm25_weight, dense_weight=dense_weight).retrieve(asked)
    lexical = BM25(graph.texts)
    for row, (text, vector) in enumerate(zip(asked.texts, asked.vectors, strict=True)):
        bm25 = lexical.score_all([text])[0]
        highest = float(bm25.max())
        share = [float(s) / highest if highest > 0 else 0.0 for s in bm25]
        cosine = [float(vector @ node) for node in graph.embedding]
        score = [bm25_weight * s + dense_weight * c for s, c in zip(share, cosine, strict=True)]
        order = sorted(range(20), key=lambda i: (-round(score[i], 6), i))[:top_k]
        assert found.nodes[row].tolist() == order
        expected = torch.tensor([[score[i], share[i], cosine[i]] for i in order])
        torch.testing.assert_close(found.features[row], expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(found.scores[row], expected[:, 0], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bm25_weight": -0.1}, "must be at least 0, and one of them positive, got -0.1 and 0.7"),
        ({"proposals": 99}, "`proposals` must be null or at least `top_k`, 100, got 99"),
        ({"bm25_weight": 0.0, "dense_weight": 0.0}, "must be at least 0, and one of them positive, got 0.0 and 0.0"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HybridRetriever(corpus(), **arguments)


@pytest.mark.parametrize("half", [False, True])
def test_all_nodes_proposed_give_the_whole_ranking(half: bool) -> None:
    graph, asked = corpus(), queries()
    if half:
        graph = graph.with_embedding(graph.encoded.half())
    whole = HybridRetriever(graph, top_k=6).retrieve(asked)
    assert_equal(HybridRetriever(graph, top_k=6, proposals=40).retrieve(asked), whole)
    assert_equal(HybridRetriever(graph, top_k=6, proposals=50).retrieve(asked), whole)


@pytest.mark.parametrize("proposals", [6, 9])
def test_only_proposed_nodes_are_found(proposals: int) -> None:
    graph, asked = corpus(200), queries()
    found = HybridRetriever(graph, top_k=6, proposals=proposals).retrieve(asked)
    whole = HybridRetriever(graph, top_k=400).retrieve(asked)
    dense = DenseRetriever(graph, top_k=proposals).retrieve(asked)
    lexical = BM25Retriever(graph, top_k=proposals).retrieve(asked)
    for row in range(len(asked)):
        proposed = {*dense.nodes[row].tolist(), *lexical.nodes[row].tolist()}
        assert found.nodes[row].tolist() == [node for node in whole.nodes[row].tolist() if node in proposed][:6]
