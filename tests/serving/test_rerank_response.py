from dataclasses import replace

import pytest

from graphrerank.serving.rerank_request import RerankRequest
from graphrerank.serving.rerank_response import RankedDocuments, rerank_response
from tests.support.client import TestClient

RANKED = RankedDocuments("model", indices=[1, 0], relevance=[0.9, 0.2], scores=[2.0, -1.0])


def test_documents_only_if_asked_for() -> None:
    documents = ["a", {"text": "b", "title": "t"}]
    plain = rerank_response(RerankRequest(query="q", documents=documents), RANKED, "id")
    assert plain["results"] == [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.2}]
    asked = rerank_response(RerankRequest(query="q", documents=documents, return_documents=True), RANKED, "id")
    assert [result["document"] for result in asked["results"]] == [documents[1], {"text": "a"}]


def test_coheres_meta() -> None:
    meta = rerank_response(RerankRequest(query="q", scores=[1, 2]), RANKED, "id", version="1")["meta"]
    assert meta == {"api_version": {"version": "1"}, "billed_units": {"search_units": 1}, "model": "model"}


def test_confidence_only_if_asked_for() -> None:
    request = RerankRequest(query="q", scores=[1, 2])
    assert "perfect_recall" not in rerank_response(request, RANKED, "id")
    assert rerank_response(request, replace(RANKED, perfect_recall=[0.25, 0.5]), "id")["perfect_recall"] == [0.25, 0.5]


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"texts": ["x", ""]}, "got 0 at index 1"),
        ({"texts": ["x"] * 1001}, "at most 1000, got 1001"),
        ({"texts": []}, "at least 1 item"),
        ({"truncation_direction": "left"}, "truncation_direction"),
        ({"documents": ["x"]}, "1 fields are not permitted"),
    ],
)
def test_bad_requests(client, change, message):
    response = client.post("/rerank", json={"query": QUERY, "texts": TEXTS, **change})
    assert response.status_code == 422
    assert message in response.json()["error"]
