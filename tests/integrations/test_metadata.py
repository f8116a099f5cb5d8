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


@pytest.mark.parametrize("score", [None, "high", [1], float("nan"), "nan", float("-inf")])
def test_a_passage_without_a_score_gets_the_lowest(score: object) -> None:
    metadata = [{"score": 1.0}, {"score": 0.5}, {"score": 0.25}, {"score": score}]
    given = input_from_metadata(QUERY, TEXTS, metadata)
    assert list(given.scores) == [1.0, 0.5, 0.25, 0.25]
    assert sum(given.bad_items.values()) == 1


def test_passages_without_any_score_are_scored_by_the_reranker() -> None:
    for scores in (None, [None] * 4):
        given = input_from_metadata(QUERY, TEXTS, [{}] * 4, scores=scores)
        assert given.scores is None
        assert not given.bad_items


def test_distances_are_negated() -> None:
    distances = [0.1, 0.2, None, 0.4]
    for given in (
        input_from_metadata(QUERY, TEXTS, [{}] * 4, scores=distances, distances=True),
        input_from_metadata(QUERY, TEXTS, [{"score": number} for number in distances], distances=True),
        input_from_metadata(QUERY, TEXTS, [{"distance": number} for number in distances]),
        input_from_metadata(QUERY, TEXTS, [{"_distance": number} for number in distances]),
    ):
        assert list(given.scores) == [-0.1, -0.2, -0.4, -0.4]
    both = [{"score": 1 - number, "distance": number} for number in (0.1, 0.2, 0.3, 0.4)]
    assert list(input_from_metadata(QUERY, TEXTS, both).scores) == [0.9, 0.8, 0.7, 0.6]


def test_scores_that_look_like_distances_are_reported(recwarn: pytest.WarningsRecorder) -> None:
    for scores in ([0.4, 0.3, 0.2, 0.1], [0.1, 0.3, 0.2, 0.4], [1, 1, 1, 1], [0.1, 0.2, None, 0.4]):
        input_from_metadata(QUERY, TEXTS, [{}] * 4, scores=scores)
    input_from_metadata(QUERY, TEXTS[:2], [{}] * 2, scores=[0.1, 0.2])
    input_from_metadata(QUERY, TEXTS, [{}] * 4, scores=[0.1, 0.2, 0.3, 0.4], distances=False)
    assert not list(recwarn)
    with pytest.warns(UserWarning, match=r"increase from the first passage \(0.1\) to the last \(0.4\), as distances"):
        given = input_from_metadata(QUERY, TEXTS, [{}] * 4, scores=[0.1, 0.2, 0.2, 0.4])
    assert list(given.scores) == [0.1, 0.2, 0.2, 0.4]


def test_entities_may_be_numbers_or_missing() -> None:
    entries = [{"entities": 90}, {"entities": [90, "Metz", None]}, {"entities": float("nan")}, {}]
    assert input_from_metadata(QUERY, TEXTS, entries).entities == [["90"], ["90", "Metz"], [], []]
    with pytest.raises(ValueError, match=r"`entities` must contain names, .* got dict at index 0"):
        input_from_metadata(QUERY, TEXTS, [{"entities": [{"name": "Metz"}]}, {}, {}, {}])
