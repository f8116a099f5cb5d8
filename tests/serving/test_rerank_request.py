import numpy as np
import pytest
from pydantic import ValidationError

from graphrerank.serving import Limits, RerankRequest

BASE = {"query": "q", "documents": ["a b c d", {"text": "e f g", "title": "T", "year": 3}, "h"]}


def read(limits: Limits | None = None, **change: object) -> RerankRequest:
    return RerankRequest.model_validate({**BASE, **change}, context=limits)


def test_texts() -> None:
    assert read().texts() == ["a b c d", "e f g", "h"]
    assert read(max_tokens_per_doc=2).texts() == ["a b", "e f", "h"]
    objects = [{"title": "T", "body": "B", "text": "x"}]
    assert read(documents=objects, rank_fields=["title", "body"]).texts() == ["T\nB"]
    assert read(documents=None, scores=[1, 2]).texts() is None
    assert read(documents=None, scores=[1, 2]).num_documents == 2


def test_what_the_reranker_takes() -> None:
    given = read(scores=[1, 2, 3], edges=[[0, 2], [1, 2, 0.5]], entities=[["x"], [], ["x"]], top_n=2).to_input()
    assert (given.query, list(given.passages), given.scores, given.top_n) == (
        "q",
        ["a b c d", "e f g", "h"],
        [1, 2, 3],
        2,
    )
    assert (given.edges.tolist(), given.edge_weights.tolist()) == ([[0, 2], [1, 2]], [1.0, 0.5])
    assert given.entities == [["x"], [], ["x"]]
    chunks = read(doc_ids=["d", "d", "e"], chunk_ids=[1, 2, 0]).to_input()
    assert (chunks.doc_ids, chunks.chunk_ids) == (["d", "d", "e"], [1, 2, 0])
    own = read(query_vector=[1, 0], vectors=[[1, 0]] * 3).to_input(np.zeros(3), np.zeros((3, 3)))
    assert own.query_vector == [1, 0]  # the service's vectors do not take the place of the request's
    assert len(own.vectors) == 3


def test_fields_of_other_services_are_taken() -> None:
    read(model="rerank-v3.5", max_chunks_per_doc=10, priority=3, return_documents=True)


def test_limits() -> None:
    few = Limits(documents=3, edges=2, text_chars=7)
    read(few, edges=[[0, 1], [0, 2]])
    for change, message in (
        ({"documents": ["a"] * 4}, "`documents` must be at most 3, got 4"),
        ({"documents": None, "scores": [1] * 4}, "`scores` must be at most 3, got 4"),
        ({"edges": [[0, 1], [0, 2], [1, 2]]}, "`edges` must be at most 2, got 3"),
        ({"query": "12345678"}, "`query` must have at most 7 characters, got 8"),
        ({"documents": ["a", "12345678"]}, "1 to 7 characters, got 8 at place 1"),
    ):
        with pytest.raises(ValidationError, match=message):
            read(few, **change)
    with pytest.raises(ValueError, match=r"`limits\.waiting` must be positive, got 0"):
        Limits(waiting=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"documents": None}, "`documents` must be given, or `scores`"),
        ({"documents": ["a", " \n", "b"]}, "`documents` must each have 1 to 100000 characters, got 0 at place 1"),
        ({"documents": [{"title": "x"}]}, "have a text `text`, got none at place 0"),
        ({"documents": [{"text": 3}]}, "have a text `text`, got none at place 0"),
        ({"documents": ["a", {"text": "x"}], "rank_fields": ["body"]}, "have a text `body`, got none at place 1"),
        ({"documents": [{"text": "x", "more": ["\ud800"]}]}, "`documents` must hold valid Unicode"),
        ({"documents": [{"text": "x", "more": float("nan")}]}, "`documents` must hold .* finite numbers"),
        ({"edges": [[0, 3]]}, "join documents 0 to 2"),
        ({"entities": [["x"]]}, r"`entities` must have one entry per document \(3\), got 1"),
        ({"doc_ids": ["d"] * 3}, "`doc_ids` and `chunk_ids` belong together"),
        ({"vectors": [[1.0]] * 3}, "`query_vector` and `vectors` belong together"),
        ({"vectors": [[1.0]] * 2, "query_vector": [1.0]}, "`vectors` must have one entry"),
    ],
)
def test_what_does_not_fit(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        read(**change)
