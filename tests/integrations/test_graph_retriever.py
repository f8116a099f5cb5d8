"""Within graph-retriever's own traversal."""

import pytest

pytest.importorskip("graph_retriever", reason="graph-retriever is optional")
from graph_retriever import Content, traverse
from graph_retriever.adapters.in_memory import InMemory

from graphrerank.integrations.graph_retriever import GraphRerankStrategy
from tests.integrations.conftest import QUERY

TEXTS = {
    "drives": ("malware on removable drives spreads", ["a", "b"], [1.0, 0.1]),
    "sticks": ("infected USB sticks", ["b"], [0.1, 1.0]),
    "autorun": ("malware spreads through autorun on USB sticks", ["b", "c"], [0.2, 1.0]),
    "cake": ("a cake recipe", ["a"], [0.3, 1.0]),
    "far": ("USB sticks again", ["c"], [0.05, 1.0]),
}


def found(reranker, **settings):
    contents = [Content(key, text, v, metadata={"topics": topics}) for key, (text, topics, v) in TEXTS.items()]
    store = InMemory(lambda text: [1.0, 0.0], contents)
    strategy = GraphRerankStrategy(reranker=reranker, start_k=1, **settings)
    return traverse(QUERY, edges=[("topics", "topics")], strategy=strategy, store=store)


def test_it_returns_the_models_ranking_of_all_that_it_reached(reranker):
    nodes = found(reranker, question=QUERY, select_k=5)
    assert {node.id for node in nodes} == set(TEXTS)
    keys = list(TEXTS)
    joined = [(i, j) for i in range(5) for j in range(i + 1, 5) if set(TEXTS[keys[i]][1]) & set(TEXTS[keys[j]][1])]
    similarity = {node.id: node.similarity_score for node in nodes}
    expected = reranker.rerank(
        QUERY, [TEXTS[key][0] for key in keys], scores=[similarity[key] for key in keys], edges=joined, ids=keys
    )
    assert [node.id for node in nodes] == list(expected.ids)


def test_what_is_two_steps_away_is_found_only_with_the_depth(reranker):
    near = found(reranker, question=QUERY, select_k=4, max_depth=1)
    assert "far" not in {node.id for node in near}
    assert len(found(reranker, question=QUERY, select_k=2)) == 2
    with pytest.raises(ValueError, match="`question` must be given"):
        found(reranker)
