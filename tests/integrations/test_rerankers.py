"""As a ranker of the library ``rerankers``."""

import asyncio

import pytest

pytest.importorskip("rerankers", reason="rerankers is optional")
import rerankers

from graphrerank.integrations.rerankers import GraphRanker
from tests.integrations.conftest import QUERY, TEXTS


def test_texts_documents_and_ids(reranker):
    ranker, expected = GraphRanker(reranker), reranker.rerank(QUERY, TEXTS)
    found = ranker.rank(QUERY, TEXTS, doc_ids=list("abcd"))
    assert [result.doc_id for result in found.results] == ["abcd"[place] for place in expected.ids]
    assert [result.score for result in found.results] == pytest.approx(expected.probabilities.tolist())
    assert [result.rank for result in found.results] == [1, 2, 3, 4]
    assert asyncio.run(ranker.rank_async(QUERY, TEXTS)).top_k(1)[0].doc_id == expected.ids[0]
    assert ranker.score(QUERY, TEXTS[2]) == pytest.approx(float(reranker.rerank(QUERY, TEXTS[2:3]).probabilities[0]))
    assert ranker.rank(QUERY, []).results == []


def test_metadata_and_edges(reranker):
    scores = [0.9, 0.3, 0.2, 0.1]
    documents = [rerankers.Document(t, doc_id=i, metadata={"score": scores[i]}) for i, t in enumerate(TEXTS)]
    found = GraphRanker(reranker).rank(QUERY, documents, edges=[(1, 2)])
    expected = reranker.rerank(QUERY, TEXTS, scores=scores, edges=[(1, 2)])
    assert [result.doc_id for result in found.results] == list(expected.ids)
    assert [result.score for result in found.results] == pytest.approx(expected.probabilities.tolist())
