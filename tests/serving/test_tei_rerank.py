"""The format of text-embeddings-inference, with an engine in this process."""

import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette asks for httpx2 where there is httpx only
    from fastapi.testclient import TestClient

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
