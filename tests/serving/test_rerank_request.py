import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from graphrerank.cli.http_service import RERANK
from graphrerank.serving.engine import Refusal
from graphrerank.serving.limits import Limits
from graphrerank.serving.rerank_request import Edge, RankedDocuments, RerankRequest, render_rerank
from graphrerank.serving.routes import parse
from graphrerank.text.tokenizer import WordTokenizer
from tests.support.client import TestClient

BASE = {"query": "q", "documents": ["a b c d", {"text": "e f g", "title": "T", "year": 3}, "h"]}


def read(limits: Limits | None = None, **change: object) -> RerankRequest:
    return RerankRequest.model_validate({**BASE, **change}, context=limits)


def test_texts() -> None:
    assert read().texts_to_encode() == (["q"], ["a b c d", "e f g", "h"])
    assert read(max_tokens_per_doc=2).texts_to_encode() == (["q"], ["a b", "e f", "h"])
    assert read(max_doc_length=2, truncation=True, priority=3, model="m").candidates.passages == [
        "a b",
        "e f",
        "h",
    ]  # Jina's
    objects = [{"title": "T", "body": "B", "text": "x"}]
    assert read(documents=objects, rank_fields=["title", "body"]).candidates.passages == ["T\nB"]
    assert read(documents=None, scores=[1, 2]).texts_to_encode() == ([], [])
    assert read(query_vector=[1, 0], vectors=[[1, 0]] * 3).texts_to_encode() == ([], [])
    assert read(documents=None, scores=[1, 2]).work().num_documents == 2


def test_words_are_counted_only_when_the_price_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an engine, not by the thread that reads requests."""

    def count(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(WordTokenizer, "spans", count)
    body = {**BASE, "documents": ["a b c d " * 12_000] * 20}
    content = json.dumps({**body, "max_tokens_per_doc": 2}).encode()
    _, _, work = parse(RERANK, content, Limits())
    assert work.seconds > parse(RERANK, json.dumps(body).encode(), Limits())[2].seconds
    with pytest.raises(Refusal, match=r"at most `limits\.work_seconds`"):
        parse(RERANK, content, Limits(work_seconds=0.5))


def test_what_the_reranker_takes() -> None:
    given = read(scores=[1, 2, 3], edges=[[0, 2], [1, 2, 0.5]], entities=[["x"], [], ["x"]], top_n=2).candidates
    assert (given.query, list(given.passages), given.scores, given.top_n) == (
        "q",
        ["a b c d", "e f g", "h"],
        [1, 2, 3],
        2,
    )
    assert (given.edges.tolist(), given.edge_weights) == ([[0, 2], [1, 2]], [1.0, 0.5])
    assert given.edge_types is None
    assert read(edges=[[0, 2, 1, "cites"], [1, 2]]).candidates.edge_types == ["reference", "other"]
    assert given.entities == [["x"], [], ["x"]]
    chunks = read(doc_ids=["d", "d", "e"], chunk_ids=[1, 2, 0]).candidates
    assert (chunks.doc_ids, chunks.chunk_ids) == (["d", "d", "e"], [1, 2, 0])
    read_by_another = read(cross_encoder_scores=[1.5, None, -2]).candidates
    assert read_by_another.cross_encoder_scores == [1.5, None, -2]
    own = read(query_vector=[1, 0], vectors=[[1, 0]] * 3).candidates
    assert own.query_vector == [1, 0]
    assert len(own.vectors) == 3


def test_limits() -> None:
    few = Limits(documents=3, edges=2, text_chars=7, query_chars=7, request_chars=17, fields=2, entities=3)
    read(few, edges=[[0, 1], [0, 2]])
    for change, message in (
        ({"documents": ["a"] * 4}, "`documents` must be at most 3, got 4"),
        ({"documents": None, "scores": [1] * 4}, "`scores` must be at most 3, got 4"),
        ({"edges": [[0, 1], [0, 2], [1, 2]]}, "`edges` must be at most 2, got 3"),
        ({"query": "12345678"}, "`query` must have at most 7 characters, got 8"),
        ({"documents": ["a", "12345678"]}, "1 to 7 characters, got 8 at index 1"),
        ({"documents": ["1234567"] * 3}, "`query` and `documents` must have at most 17 characters together, got 22"),
        ({"rank_fields": ["a"] * 3}, "`rank_fields` must be at most 2, got 3"),
        ({"entities": [["a"] * 2] * 3}, "`entities` must have at most 3 names, got 6"),
    ):
        with pytest.raises(ValidationError, match=message):
            read(few, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"documents": None}, "`documents` or `scores` must be given"),
        ({"documents": ["a", " \n", "b"]}, "`documents` must each have 1 to 100000 characters, got 0 at index 1"),
        ({"documents": [{"title": "x"}]}, "have a text `text`, got none at index 0"),
        (
            {"documents": ["a", {"text": "x"}], "rank_fields": ["body"]},
            r"a text for `rank_fields\[0\]`, got none at index 1",
        ),
        ({"documents": [{"text": "x", "more": ["\ud800"]}]}, "`documents` must hold valid Unicode"),
        ({"documents": [{"text": "x", "more": float("nan")}]}, "`documents` must hold .* finite numbers"),
        ({"edges": [[0, 3]]}, "join documents 0 to 2"),
        ({"max_doc_length": 3, "max_tokens_per_doc": 3}, "mean the same, got both"),
        ({"language": "klingon"}, r"`language` must be auto or one of \['english'"),
        ({"vectors": [[1.0]] * 2, "query_vector": [1.0]}, "`vectors` must have one entry"),
    ],
)
def test_what_does_not_fit(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _ = read(**change).candidates


def edges_of(given: object, most: int = 9) -> list[Edge] | None:
    return read(Limits(edges=most), documents=["a"] * 6, edges=given).edges


def test_edges_have_weights_and_types() -> None:
    given = [[0, 1], [2, 1, 0.5], [3, 0, 4, "cites"], [0, 2, 1, "likes"], [1, 3, 1, "knn"], [0, 1, 1, "cites"]]
    assert edges_of(given) == [
        (0, 1, 1.0, 4), (2, 1, 0.5, 4), (3, 0, 4.0, 0), (0, 2, 1.0, 4), (1, 3, 1.0, 3), (0, 1, 1.0, 0)
    ]  # fmt: skip
    assert edges_of([]) == []
    assert edges_of(None) is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("01", "must be a list of .* got str"),
        ([[0, 1]] * 4, "must be at most 3, got 4"),
        ([[0, 1], 7], r"be \[i, j\], \[i, j, weight\] or \[i, j, weight, type\], got another at index 1"),
        ([[0, 1], [0, 2, 1, 1]], "have a text as type, got another at index 1"),
        ([[0, 2, "knn"]], "a weight in .* at index 0"),
        ([[0, 1], [0, 1.5]], "join two different documents, got another at index 1"),
        ([[0, 1], [-1, 0]], r"join documents 0 to 5, got \[-1, 0\] at index 1"),
        ([[0, 10**30]], "join documents 0 to 5"),
        ([[0, 1], [2, 2]], "join two different documents, got another at index 1"),
        ([[0, 1, 0]], r"a weight in \[1e-09, 1e\+09\], got another at index 0"),
        ([[0, 1, float("nan")]], "a weight in"),
        ([[0, 1], [0, 2, True]], "a weight in .* at index 1"),
        ([[0, 1], [0, 6]], r"join documents 0 to 5, got \[0, 6\] at index 1"),
        ([[0, 1], [3, 2], [1, 0]], r"be given once for each type, in one direction, got \[1, 0\] at index 2"),
        ([[0, 1], [0, 1, 1, "cites"], [1, 0, 2, "mention"]], r"once for each type.* got \[1, 0\] at index 2"),
    ],
)
def test_what_is_no_edge(given: object, message: str) -> None:
    with pytest.raises(ValidationError, match=f"`edges` must .*{message}|`edges` {message}"):
        edges_of(given, 3)


def test_an_explanation_costs_the_edges_that_come_from_names() -> None:
    documents = {"documents": ["a"] * 100, "explain": True}
    plain = read(**documents).work().seconds
    entities = [[f"e{i // 5}", f"f{i % 20}"] for i in range(100)]
    for change in ({"entities": entities}, {"doc_ids": ["d"] * 100, "chunk_ids": list(range(100))}):
        assert read(**documents, **change).work().seconds > 5 * plain
    assert Limits(work_seconds=0.2).most_explained_edges(100) == pytest.approx(200, abs=10)


RANKED = RankedDocuments("model", indices=[1, 0], relevance=[0.9, 0.2], scores=[2.0, -1.0])


def test_documents_and_confidence_only_if_asked_for() -> None:
    documents = ["a", {"text": "b", "title": "t"}]
    plain = render_rerank(RerankRequest(query="q", documents=documents), RANKED, "id", "/v1/rerank")
    assert plain == {
        "id": "id",
        "results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.2}],
        "meta": {"api_version": {"version": "1"}, "billed_units": {"search_units": 1}, "model": "model"},
    }
    request, ranked = RerankRequest(query="q", documents=documents, return_documents=True), [0.25, 0.5]
    asked = render_rerank(request, replace(RANKED, perfect_recall=ranked), "id")
    assert [result["document"] for result in asked["results"]] == [documents[1], {"text": "a"}]
    assert asked["perfect_recall"] == ranked


QUERY, TEXTS = "who wrote the red book", ["the red book", "a green pear", "who is who"]


@pytest.fixture(scope="module")
def client(make_app):
    return TestClient(make_app())


def test_against_coheres_format(client):
    expected = client.post("/v2/rerank", json={"query": QUERY, "documents": TEXTS}).json()["results"]
    results = client.post(
        "/rerank", json={"query": QUERY, "texts": TEXTS, "return_text": True, "truncate": True}
    ).json()
    assert [(result["index"], result["score"]) for result in results] == [
        (result["index"], result["relevance_score"]) for result in expected
    ]
    assert [result["text"] for result in results] == [TEXTS[result["index"]] for result in results]
    plain = client.post("/rerank", json={"query": QUERY, "texts": TEXTS, "raw_scores": True}).json()
    assert [set(result) for result in plain] == [{"index", "score"}] * 3
    for change, message in (
        ({"texts": ["x", ""]}, "got 0 at index 1"),
        ({"truncation_direction": "left"}, "truncation_direction"),
    ):
        response = client.post("/rerank", json={"query": QUERY, "texts": TEXTS, **change})
        assert response.status_code == 422
        assert message in response.json()["error"]
