"""Within Haystack's own pipelines, synchronous and not, and their files."""

import asyncio

import pytest

pytest.importorskip("haystack", reason="haystack-ai is optional")
from haystack import Document, Pipeline

from graphrerank.integrations.haystack import GraphRerankRanker
from tests.integrations.conftest import QUERY, TEXTS

SCORES = [0.9, 0.3, 0.2, 0.1]


def documents():
    chunks = [("x", 0), ("x", 1), ("y", 0), ("y", 5)]
    return [
        Document(content=text, score=score, meta={"source_id": source, "split_id": chunk})
        for text, score, (source, chunk) in zip(TEXTS, SCORES, chunks, strict=True)
    ]


def test_a_pipeline_its_file_and_its_asynchronous_form(reranker):
    pipeline = Pipeline()
    pipeline.add_component("ranker", GraphRerankRanker("attack", top_k=3))
    data = {"ranker": {"query": QUERY, "documents": documents()}}
    found = pipeline.run(data)["ranker"]["documents"]
    expected = reranker.rerank(QUERY, TEXTS, scores=SCORES, edges=[(0, 1)], top_n=3)
    assert [document.content for document in found] == [TEXTS[place] for place in expected.ids]
    assert [document.score for document in found] == pytest.approx(expected.probabilities.tolist())
    loaded = Pipeline.loads(pipeline.dumps(), allowed_modules=["graphrerank.integrations.haystack"])
    assert loaded.run(data)["ranker"]["documents"] == found
    asynchronous = Pipeline()
    asynchronous.add_component("ranker", GraphRerankRanker("attack"))
    once_more = asyncio.run(asynchronous.run_async({"ranker": {**data["ranker"], "top_k": 3}}))
    assert once_more["ranker"]["documents"] == found


def test_documents_without_a_text_come_last():
    ranker = GraphRerankRanker("attack")
    assert ranker.run(QUERY, []) == {"documents": []}
    with pytest.warns(UserWarning, match="blank passages, which rank last: 1"):
        found = ranker.run(QUERY, [Document(content=None, score=9.0), Document(content=TEXTS[2])])["documents"]
    assert [document.content for document in found] == [TEXTS[2], None]
