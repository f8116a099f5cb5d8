from dataclasses import replace

from graphrerank.serving.rerank_request import RerankRequest
from graphrerank.serving.rerank_response import RankedDocuments, rerank_response

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
