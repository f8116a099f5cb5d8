"""Within txtai's own ``Reranker``."""

import pytest

pytest.importorskip("txtai", reason="txtai is optional")
from txtai.pipeline import Reranker

from graphrerank.integrations.txtai import GraphSimilarity
from tests.integrations.conftest import QUERY, TEXTS


class Found:
    """In place of an index, whose search is of no interest here."""

    def batchsearch(self, queries, limit, **ignored):
        return [[{"id": place, "text": text, "score": 0.5} for place, text in enumerate(TEXTS)] for _ in queries]


def test_in_a_reranker(reranker):
    found = Reranker(Found(), GraphSimilarity(reranker))(QUERY, limit=2)
    expected = reranker.rerank(QUERY, TEXTS, top_n=2)
    assert [row["id"] for row in found] == list(expected.ids)
    assert [row["score"] for row in found] == pytest.approx(expected.probabilities.tolist())


def test_several_queries(reranker):
    similarity = GraphSimilarity(reranker)
    assert similarity([QUERY, "phishing"], TEXTS) == [similarity(QUERY, TEXTS), similarity("phishing", TEXTS)]
