"""Within LangChain's own retrieval chain."""

import asyncio

import pytest

pytest.importorskip("langchain_core", reason="langchain-core is optional")
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from graphrerank.integrations.langchain import GraphRerankCompressor
from tests.integrations.conftest import QUERY, TEXTS


def test_in_a_contextual_compression_retriever(reranker):
    retrievers = pytest.importorskip("langchain_classic.retrievers", reason="langchain-classic is optional")
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=16))
    store.add_texts(TEXTS, metadatas=[{"source": str(i)} for i in range(4)])
    chain = retrievers.ContextualCompressionRetriever(
        base_compressor=GraphRerankCompressor(reranker=reranker, top_n=2),
        base_retriever=store.as_retriever(search_kwargs={"k": 4}),
    )
    found = chain.invoke(QUERY)
    base = [document.page_content for document in store.as_retriever(search_kwargs={"k": 4}).invoke(QUERY)]
    expected = reranker.rerank(QUERY, base, top_n=2)
    assert [document.page_content for document in found] == [base[place] for place in expected.ids]
    assert [document.metadata["relevance_score"] for document in found] == pytest.approx(
        expected.probabilities.tolist()
    )
    assert all(document.metadata["source"] == str(TEXTS.index(document.page_content)) for document in found)
    assert asyncio.run(chain.ainvoke(QUERY)) == found


def test_metadata_and_edges_reach_the_reranker(reranker):
    metadata = [
        {"score": s, "doc_id": d, "chunk_id": c} for s, d, c in ((0.9, 7, 0), (0.3, 7, 1), (0.2, 8, 0), (0.1, 8, 5))
    ]
    documents = [Document(text, metadata=dict(entry)) for text, entry in zip(TEXTS, metadata, strict=True)]
    compressor = GraphRerankCompressor(reranker=reranker, edges=lambda found: [(3, 2), (2, 3)][: len(found)])
    found = compressor.compress_documents(documents, QUERY)
    expected = reranker.rerank(QUERY, TEXTS, scores=[0.9, 0.3, 0.2, 0.1], edges=[(0, 1), (2, 3)])
    assert [document.page_content for document in found] == [TEXTS[place] for place in expected.ids]
    assert [document.metadata["relevance_score"] for document in found] == pytest.approx(
        expected.probabilities.tolist()
    )
    assert "relevance_score" not in documents[0].metadata


def test_metadata_of_texts_of_some_documents_and_a_blank_one(reranker):
    """As vector stores keep them, which take no lists or only texts."""
    metadata = [
        {"doc_id": "a", "chunk_id": "0"},
        {},
        {"doc_id": "a", "chunk_id": "1", "entities": "USB"},
        {"score": "?"},
    ]
    texts = [*TEXTS[:3], " "]
    documents = [Document(text, metadata=entry) for text, entry in zip(texts, metadata, strict=True)]
    compressor = GraphRerankCompressor(reranker=reranker)
    with pytest.warns(UserWarning, match="blank passages, which rank last: 1"):
        found = compressor.compress_documents(documents, QUERY)
    expected = reranker.rerank(QUERY, [*TEXTS[:3], "."], edges=[(0, 2, "adjacency")])
    assert [document.page_content for document in found] == [texts[place] for place in expected.ids]
    assert [document.metadata["relevance_score"] for document in found[:3]] == pytest.approx(
        expected.probabilities[:3].tolist()
    )
    assert found[3].metadata["relevance_score"] == 0
