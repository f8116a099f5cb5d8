import pytest
import torch

from graphrerank.graphs import CorpusGraph, Queries
from graphrerank.operators import hybrid
from graphrerank.operators.bm25 import BM25
from graphrerank.operators.bm25_retriever import BM25Retriever

TEXTS = ["red fox", "brown dog", "a fox and a red red bird", "", "stone"]
QUERIES = ["red fox", "dog", "zebra", ""]


def corpus(texts: list[str] = TEXTS) -> CorpusGraph:
    return CorpusGraph.from_edges([f"n{i}" for i in range(len(texts))], texts, torch.zeros(0, 2, dtype=torch.int64))


def queries(texts: list[str] = QUERIES) -> Queries:
    return Queries([f"q{i}" for i in range(len(texts))], texts)


@pytest.mark.parametrize("block_scores", [1, 10, 100])
def test_against_sorting_bm25(block_scores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hybrid, "BLOCK_SCORES", block_scores)
    found = BM25Retriever(corpus(), top_k=4, k1=1.2, b=0.5).retrieve(queries())
    for row, scores in enumerate(BM25(TEXTS, k1=1.2, b=0.5).score_all(QUERIES).tolist()):
        best = max(*scores, 1e-9)
        order = sorted(range(5), key=lambda node: (-scores[node], node))[:4]
        assert found.nodes[row].tolist() == order
        torch.testing.assert_close(found.scores[row], torch.tensor([scores[node] / best for node in order]))
    assert found.features is not None
    assert torch.equal(found.features, found.scores[..., None].expand(-1, -1, 2))


def test_a_query_that_shares_no_word_has_candidates_too() -> None:
    found = BM25Retriever(corpus(), top_k=7).retrieve(queries(["zebra"]))
    assert found.nodes.tolist() == [[0, 1, 2, 3, 4, -1, -1]]
    assert found.scores.tolist() == [[0.0] * 5 + [-torch.inf] * 2]


def test_no_queries() -> None:
    assert BM25Retriever(corpus(), top_k=2).retrieve(queries([])).nodes.shape == (0, 2)


def test_reads_no_vectors() -> None:
    assert BM25Retriever.needs_vectors(top_k=3) is False


def test_depth_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="`top_k` must be a positive integer, got 0"):
        BM25Retriever(corpus(), top_k=0)
