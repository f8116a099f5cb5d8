"""LightRAG's own rerank functions, as they are, against the service."""

import asyncio
from pathlib import Path

import pytest

from graphrerank import GraphReranker
from tests.support.running import running

rerank = pytest.importorskip("lightrag.rerank", reason="lightrag-hku, which wants an environment of its own")

QUERY, DOCUMENTS = "spreads through USB sticks", ["a cake recipe", "infected USB sticks", "worm on removable drives"]


@pytest.mark.slow  # a service
def test_its_rerank_endpoint_is_ours(tmp_path: Path) -> None:
    expected = GraphReranker.from_pretrained("base").rerank(QUERY, DOCUMENTS, top_n=2)
    with running(tmp_path, "artifact=base", "encoder=none") as service:
        for function, path in ((rerank.cohere_rerank, "/v2/rerank"), (rerank.jina_rerank, "/v1/rerank")):
            asked = function(QUERY, DOCUMENTS, top_n=2, api_key="any", base_url=f"{service.url}{path}")
            results = asyncio.run(asked)
            assert [result["index"] for result in results] == expected.indices.tolist()
            scores = [result["relevance_score"] for result in results]
            assert scores == pytest.approx(expected.relevance.tolist(), abs=1e-5)
