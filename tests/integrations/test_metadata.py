"""The shared part of all adapters: what it reads from metadata, against the reranker's own arguments."""

import pytest

from graphrerank import GraphReranker
from graphrerank.corpus.edge_types import ADJACENCY, ENTITY
from graphrerank.integrations.metadata import input_from_metadata, ranked
from graphrerank.rerank.candidate_lists import input_edges
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


def test_metadata_may_be_texts_and_of_some_passages() -> None:
    entries = [
        {"score": "0.7", "doc_id": "a", "chunk_id": "0", "entities": "USB"},
        {"score": 0.2, "doc_id": "a", "chunk_id": 1.0, "entities": ["USB", "worm"]},
        {"score": "1e-1", "doc_id": "a", "chunk_id": "0", "entities": None},  # again, and no third chunk
        {"score": 0, "doc_id": None, "chunk_id": "part 2"},
    ]
    given = input_from_metadata(QUERY, [TEXTS[0], None, *TEXTS[2:]], entries)
    assert given.scores == [0.7, 0.2, 0.1, 0.0]
    assert (given.doc_ids, given.chunk_ids) == (["a", "a", None, None], [0, 1, None, None])
    assert given.entities == [["USB"], ["USB", "worm"], [], []]
    assert given.passages[1] == ""
    edges, _, types = input_edges(given)
    assert sorted(zip(edges.tolist(), types.tolist(), strict=True)) == [
        ([0, 1], ENTITY), ([0, 1], ADJACENCY), ([1, 0], ENTITY), ([1, 0], ADJACENCY)
    ]  # fmt: skip
    for score in (None, "high", float("nan"), [1]):
        assert input_from_metadata(QUERY, TEXTS, [{"score": 1.0}] * 3 + [{"score": score}]).scores is None
    assert input_from_metadata(QUERY, TEXTS, [{}] * 4, scores=[0.5, None, 0.5, 1]).scores is None
