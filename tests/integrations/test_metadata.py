"""The shared part of all adapters: what it reads from metadata, against the reranker's own arguments."""

import pytest

from graphrerank import GraphReranker
from graphrerank.integrations.metadata import input_from_metadata, ranked
from tests.integrations.conftest import QUERY, TEXTS

SCORES = [0.9, 0.3, 0.2, 0.1]
CHUNKS = [(7, 0), (7, 1), (8, 0), (8, 5)]


def test_scores_chunks_entities_and_edges(reranker: GraphReranker) -> None:
    entries = zip(SCORES, CHUNKS, strict=True)
    metadata = [{"score": score, "doc_id": document, "chunk_id": chunk} for score, (document, chunk) in entries]
    found = ranked(reranker, QUERY, TEXTS, metadata, edges=[(3, 2), (2, 3)], top_n=3)
    expected = reranker.rerank(QUERY, TEXTS, scores=SCORES, edges=[(0, 1), (2, 3)], top_n=3)
    assert [index for index, _ in found] == list(expected.ids)
    assert [score for _, score in found] == pytest.approx(expected.probabilities.tolist())
    entities = [["USB"], [], ["USB"], []]
    found = ranked(reranker, QUERY, TEXTS, [{"entities": names} if names else {} for names in entities])
    expected = reranker.rerank(QUERY, TEXTS, entities=entities)
    assert [score for _, score in found] == pytest.approx(expected.probabilities.tolist())
    assert ranked(reranker, "", []) == []


def test_edges_come_once_for_each_type() -> None:
    edges = [(3, 2, "cites"), (2, 3, "cites"), (2, 3, "knn"), (0, 1)]
    given = input_from_metadata(QUERY, TEXTS, [{"score": 1.0}, {}, {}, {"doc_id": 1}], edges=edges)
    assert (given.scores, given.doc_ids) == (None, None)  # not all passages have them
    found = list(zip(given.edges, given.edge_types, strict=True))
    assert found == [((0, 1), "other"), ((2, 3), "cites"), ((2, 3), "knn")]
