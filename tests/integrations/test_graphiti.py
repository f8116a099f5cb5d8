"""As Graphiti's client of a cross-encoder."""

import asyncio

import pytest

pytest.importorskip("graphiti_core", reason="graphiti-core is optional")
from graphiti_core.cross_encoder.client import CrossEncoderClient

from graphrerank.integrations.graphiti import GraphitiReranker
from tests.integrations.conftest import QUERY, TEXTS


def test_facts_are_ranked_with_their_edges(reranker):
    client = GraphitiReranker(reranker, edges=lambda texts: [(1, 2, "entity")])
    assert isinstance(client, CrossEncoderClient)
    found = asyncio.run(client.rank(QUERY, TEXTS))
    expected = reranker.rerank(QUERY, TEXTS, edges=[(1, 2)], edge_types=["entity"])
    assert [text for text, _ in found] == [TEXTS[place] for place in expected.ids]
    assert [score for _, score in found] == pytest.approx(expected.probabilities.tolist())
    assert asyncio.run(client.rank(QUERY, [])) == []
