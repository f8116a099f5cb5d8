"""Within LanceDB's own searches."""

import pytest

pytest.importorskip("lancedb", reason="lancedb is optional")
import lancedb
import lancedb.index
import pyarrow as pa

from graphrerank.integrations.lancedb import GraphRerankReranker
from tests.integrations.conftest import QUERY, TEXTS

VECTORS = [[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rows = pa.table({"text": TEXTS, "vector": pa.array(VECTORS, type=pa.list_(pa.float32(), 2))})
    table = lancedb.connect(tmp_path_factory.mktemp("lance")).create_table("t", rows)
    table.create_index("text", config=lancedb.index.FTS())
    return table


def ranked(found):
    return [TEXTS.index(row["text"]) for row in found], [row["_relevance_score"] for row in found]


def test_a_hybrid_search(reranker, table):
    search = table.search(query_type="hybrid").vector([1.0, 0.0]).text("USB malware")
    plain = search.limit(4).to_list()  # LanceDB ranks by reciprocal rank fusion where it has no reranker
    found = search.rerank(GraphRerankReranker(reranker, edges=lambda texts: [])).limit(4).to_list()
    places, scores = ranked(plain)
    expected = reranker.rerank("USB malware", [TEXTS[i] for i in places], scores=scores)
    assert ranked(found)[0] == [places[i] for i in expected.ids]
    assert ranked(found)[1] == pytest.approx(expected.probabilities.tolist(), abs=1e-4)


def test_a_search_by_vectors_and_one_by_words(reranker, table):
    ranker = GraphRerankReranker(reranker, edges=lambda texts: [(0, len(texts) - 1)])
    found = table.search([1.0, 0.0]).limit(4).rerank(ranker, QUERY).to_list()
    distances = [(1 - x) ** 2 + y**2 for x, y in VECTORS]
    expected = reranker.rerank(QUERY, TEXTS, scores=[-d for d in distances], edges=[(0, 3)])
    assert ranked(found)[0] == list(expected.ids)
    assert ranked(found)[1] == pytest.approx(expected.probabilities.tolist(), abs=1e-5)
    words = table.search("malware", query_type="fts").limit(4).rerank(GraphRerankReranker(reranker)).to_list()
    assert ranked(words)[0] == [3]
    with pytest.raises(ValueError, match=r"`column` must be one of \['text', 'vector'.*got 'body'"):
        table.search([1.0, 0.0]).rerank(GraphRerankReranker(reranker, column="body"), QUERY).to_list()
