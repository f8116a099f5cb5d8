"""Within LlamaIndex's own retriever and query engine."""

import pytest

from graphrerank import GraphReranker

pytest.importorskip("llama_index.core", reason="llama-index-core is optional")
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from graphrerank.integrations.llama_index import GraphRerankPostprocessor
from tests.integrations.conftest import QUERY, TEXTS


def nodes():
    made = [TextNode(text=text, id_=f"n{place}") for place, text in enumerate(TEXTS)]
    made[1].relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id="n2")
    made[2].relationships[NodeRelationship.PREVIOUS] = RelatedNodeInfo(node_id="n1")
    made[3].relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id="elsewhere")
    return made


def test_in_a_query_engine(reranker):
    index = VectorStoreIndex(nodes(), embed_model=MockEmbedding(embed_dim=8))
    engine = RetrieverQueryEngine(
        index.as_retriever(similarity_top_k=4),
        node_postprocessors=[GraphRerankPostprocessor(reranker=reranker, top_n=2)],
        response_synthesizer=get_response_synthesizer(llm=MockLLM()),
    )
    base = index.as_retriever(similarity_top_k=4).retrieve(QUERY)
    texts, scores = [node.text for node in base], [node.score for node in base]
    joined = (texts.index(TEXTS[1]), texts.index(TEXTS[2]))
    expected = reranker.rerank(QUERY, texts, scores=scores, edges=[joined], top_n=2)
    found = engine.query(QUERY).source_nodes
    assert [node.text for node in found] == [texts[place] for place in expected.ids]
    assert [node.score for node in found] == pytest.approx(expected.probabilities.tolist())


def test_consecutive_nodes_are_adjacent(reranker, monkeypatch):
    given, rerank_batch = [], GraphReranker.rerank_batch
    monkeypatch.setattr(
        GraphReranker, "rerank_batch", lambda self, inputs: given.extend(inputs) or rerank_batch(self, inputs)
    )
    found = [NodeWithScore(node=node, score=0.5) for node in nodes()]
    GraphRerankPostprocessor(reranker=reranker).postprocess_nodes(found, query_str=QUERY)
    assert given[0].edges == [(1, 2, "adjacency")]


def test_a_query_is_needed(reranker):
    postprocessor = GraphRerankPostprocessor(reranker=reranker)
    assert postprocessor.postprocess_nodes([], query_str=QUERY) == []
    with pytest.raises(ValueError, match="`query_bundle` must be a query"):
        postprocessor.postprocess_nodes([NodeWithScore(node=TextNode(text="a"))])
