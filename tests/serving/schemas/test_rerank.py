import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from graphrerank.corpus.edge_lists import REPEATED_EDGES, SELF_LOOPS
from graphrerank.corpus.edge_types import OTHER, REFERENCE
from graphrerank.serving.engine import Refusal
from graphrerank.serving.limits import Limits
from graphrerank.serving.routes import _from_json, parse
from graphrerank.serving.schemas.rerank import RankedDocuments, RerankRequest, render_rerank
from graphrerank.serving.standard_routes import RERANK
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
    work = parse(RERANK, content, Limits()).work
    assert work.seconds > parse(RERANK, json.dumps(body).encode(), Limits()).work.seconds
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
    assert (given.edge_list.pairs.tolist(), given.edge_list.weights.tolist()) == ([[0, 2], [1, 2]], [1.0, 0.5])
    assert given.edge_list.types.tolist() == [OTHER, OTHER]
    assert read(edges=[[0, 2, 1, "cites"], [1, 2]]).candidates.edge_list.types.tolist() == [REFERENCE, OTHER]
    assert given.entities == [["x"], [], ["x"]]
    chunks = read(doc_ids=["d", "d", "e"], chunk_ids=[1, 2, 0]).candidates
    assert (chunks.doc_ids, chunks.chunk_ids) == (["d", "d", "e"], [1, 2, 0])
    assert read(doc_ids=["d", None, "e"], chunk_ids=[1, 2, None]).candidates.chunk_ids == [1, 2, None]
    read_by_another = read(cross_encoder_scores=[1.5, None, -2]).candidates
    assert read_by_another.cross_encoder_scores == [1.5, None, -2]
    own = read(query_vector=[1, 0], vectors=[[1, 0]] * 3).candidates
    assert own.query_vector == [1, 0]
    assert len(own.vectors) == 3


def test_limits() -> None:
    few = Limits(documents=3, edges=2, text_chars=7, query_chars=7, request_chars=17, fields=2, entities=3)
    read(few, edges=[[0, 1], [0, 2]])
    for change, message in (
        ({"documents": ["a"] * 4}, "`documents` must have at most 3 entries, got 4"),
        ({"documents": None, "scores": [1] * 4}, "`scores` must have at most 3 entries, got 4"),
        ({"edges": [[0, 1], [0, 2], [1, 2]]}, "`edges` must have at most 2 entries, got 3"),
        ({"query": "12345678"}, "`query` must have at most 7 characters, got 8"),
        ({"documents": ["a", "12345678"]}, "at most 7 characters, got 8 at index 1"),
        ({"documents": ["1234567"] * 3}, "`query` and `documents` must have at most 17 characters together, got 22"),
        ({"rank_fields": ["a"] * 3}, "`rank_fields` must have at most 2 entries, got 3"),
        ({"entities": [["a"] * 2] * 3}, "`entities` must have at most 3 names, got 6"),
    ):
        with pytest.raises(ValidationError, match=message):
            read(few, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"documents": None}, "`documents` or `scores` must be set"),
        ({"documents": ["a", 3, "b"]}, r"documents\.1"),
        ({"entities": [["x"], [{"name": "x"}], []]}, "`entities` must contain names, .* got dict at index 1"),
        ({"entities": [["x"], ["x"], "x"]}, r"entities\.2"),
        ({"scores": [1, "2", 3]}, r"scores\.1"),
        ({"scores": [1, 2, 1e31]}, r"`scores` must be at most 1e\+30 in size, got 1e\+31 at index 2"),
        ({"documents": None, "scores": [None, None]}, "`scores` must contain a finite number, got none among 2"),
        ({"stream": True}, "stream"),
        ({"documents": [{"title": "x"}]}, "with the string `text`, got none at index 0"),
        (
            {"documents": ["a", {"text": "x"}], "rank_fields": ["body"]},
            r"a string for `rank_fields\[0\]`, got none at index 1",
        ),
        ({"documents": [{"text": "x", "more": ["\ud800"]}]}, "`documents` must contain valid Unicode"),
        ({"documents": [{"text": "x", "more": float("nan")}]}, "`documents` must contain .* finite numbers"),
        ({"edges": [[0, 3]]}, "join passages with indices 0 to 2"),
        ({"max_doc_length": 3, "max_tokens_per_doc": 3}, "have the same meaning"),
        ({"language": "klingon"}, r"`language` must be auto or one of \['english'"),
        ({"vectors": [[1.0]] * 2, "query_vector": [1.0]}, "`vectors` must have one entry"),
    ],
)
def test_what_does_not_fit(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _ = read(**change).candidates


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("01", "must be a list of .* got str"),
        ([[0, 1]] * 4, "must have at most 3 entries, got 4"),
        ([[0, 1], 7], r"be \[i, j\], .* got another format at index 1"),
        ([["0", 1]], "between ids"),
        ([[0, 1], [3, 1.5]], "between ids"),
        ([[0, 1], [0, 6]], r"join passages with indices 0 to 2, got \[0, 6\] at index 1"),
    ],
)
def test_what_is_no_edge(given: object, message: str) -> None:
    """Other forms are those of `read_edges`."""
    with pytest.raises(ValueError, match=f"`edges` .*{message}"):
        _ = read(Limits(edges=3), edges=given).candidates


def test_what_is_read_otherwise_than_given_is_counted() -> None:
    assert not read(edges=[[0, 1], [0, 1, 1, "cites"]]).bad_items
    given = read(documents=["a", " \n", {"text": ""}], edges=[[0, 1], [1, 0, 2], [2, 2]])
    assert given.bad_items == {"blank passages, which rank last": 2, SELF_LOOPS: 1, REPEATED_EDGES: 1}


def test_an_explanation_costs_the_edges_that_come_from_names() -> None:
    documents = {"documents": ["a"] * 100, "explain": True}
    plain = read(**documents).work().seconds
    entities = [[f"e{i // 5}", f"f{i % 20}"] for i in range(100)]
    for change in ({"entities": entities}, {"doc_ids": ["d"] * 100, "chunk_ids": list(range(100))}):
        assert read(**documents, **change).work().seconds > 5 * plain
    assert Limits(work_seconds=0.2).most_explained_edges(100) == pytest.approx(120, abs=10)


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
        ({"texts": ["x", 3]}, "texts.1"),
        ({"truncation_direction": "left"}, "truncation_direction"),
    ):
        response = client.post("/rerank", json={"query": QUERY, "texts": TEXTS, **change})
        assert response.status_code == 422
        assert message in response.json()["error"]


def test_bad_items_are_read_and_named(client):
    """The same answer as without them, of all formats."""
    halves = json.dumps({"query": QUERY, "documents": ["a \ud83d pear", "\udfff", *TEXTS]}).encode()
    plain = json.dumps({"query": QUERY, "documents": ["a \ufffd pear", "\ufffd", *TEXTS]}).encode()
    found, expected = client.post("/v2/rerank", content=halves), client.post("/v2/rerank", content=plain)
    assert found.json()["results"] == expected.json()["results"]
    assert found.json()["meta"]["warnings"] == ["lone surrogates, which are replaced: 2"]
    assert "warnings" not in expected.json()["meta"]
    body = {"query": QUERY, "documents": [" ", *TEXTS], "edges": [[1, 2], [2, 1], [3, 3]]}
    found = client.post("/v1/rerank", json=body).json()
    assert found["results"][-1]["index"] == 0
    assert found["meta"]["warnings"] == [
        "blank passages, which rank last: 1", f"{SELF_LOOPS}: 1", f"{REPEATED_EDGES}: 1"
    ]  # fmt: skip
    found = client.post("/rerank", json={"query": QUERY, "texts": [*TEXTS, ""]})
    assert found.json()[-1]["index"] == 3
    assert found.headers["warning"] == '199 - "blank passages, which rank last: 1"'


@pytest.mark.parametrize(
    ("escape", "count"),
    [
        (r"\ud83d\ude00", 0),
        (r"\\ud83d", 0),
        (r"\\\ud83d", 1),
        (r"\ud83d", 1),
        (r"\ud83d\ud83d\ude00\ude00", 2),
        (r"\uDFFF\ud83dx\u00e9", 2),
        (r"\n\ude00\\", 1),
        (r"\ud800\ud800\ud800", 3),
        (r"\udfff\udfff\\\udfff", 3),
    ],
)
def test_halves_of_characters_against_pythons_parser(escape: str, count: int) -> None:
    content = b'{"query": "%s"}' % escape.encode()
    given, found = _from_json(content)
    expected = json.loads(content)["query"].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert (given["query"], found) == (expected, count)


def test_a_body_with_documents_has_coheres_form_on_teis_path(client):
    body = {"query": QUERY, "documents": TEXTS, "model": "m", "user": "u", "stream": False, "top_n": 2}
    found, expected = (client.post(path, json=body).json() for path in ("/rerank", "/v1/rerank"))
    expected["meta"]["api_version"] = found["meta"]["api_version"]
    assert found | {"id": expected["id"]} == expected
    refused = client.post("/rerank", json={"query": QUERY, "documents": TEXTS, "texts": TEXTS})
    assert "unknown fields 'texts'" in refused.json()["message"]


@pytest.mark.parametrize(
    ("name", "near"), [("topk", "top_k"), ("document", "documents"), ("users", "user"), ("instruction", ""), ("x", "")]
)
def test_an_unknown_field_is_named(client, name, near):
    message = client.post("/v2/rerank", json={"query": QUERY, "documents": TEXTS, name: 1}).json()["message"]
    assert f"unknown fields '{name}'; " in message
    assert (f"did you mean `{near}`?" in message) == bool(near)
    assert ("the known fields are" in message) == (not near)


def test_formats_of_infinity_and_voyage(client):
    """Infinity and Voyage return documents as texts, and Voyage calls the results `data`."""
    body = {"query": QUERY, "documents": [{"text": TEXTS[0], "year": 1}, *TEXTS[1:]], "return_documents": True}
    results = client.post("/v1/rerank", json=body).json()["results"]
    expected = [
        {"index": each["index"], "relevance_score": each["relevance_score"], "document": TEXTS[each["index"]]}
        for each in results
    ]
    infinity = client.post("/infinity/rerank", json=body).json()
    assert (infinity["object"], infinity["results"]) == ("rerank", expected)
    voyage = client.post("/voyage/v1/rerank", json=body | {"top_k": 2}).json()
    assert (voyage["object"], voyage["data"], voyage["usage"]["total_tokens"]) == ("list", expected[:2], 0)
    both = client.post("/v1/rerank", json=body | {"top_k": 2}).json()
    assert (both["results"], both["data"], both["usage"]["total_tokens"]) == (results[:2], expected[:2], 0)
    assert "data" not in client.post("/v1/rerank", json=body | {"top_n": 2}).json()
    warned = client.post("/infinity/rerank", json=body | {"documents": ["a", " "]}).json()
    assert warned["meta"]["warnings"] == ["blank passages, which rank last: 1"]


@pytest.mark.parametrize("path", ["/v2/rerank", "/infinity/rerank", "/voyage/v1/rerank"])
def test_bad_items_are_repaired_as_in_python(client, path):
    """NaN and infinity are no JSON but are sent by some clients."""
    body = (
        '{"query": "a plum", "documents": ["a plum", null, {"text": null}, "a pear", "a fig"], "return_documents": true'
    )
    bad = client.post(
        path,
        content=body + ', "scores": [0.5, 1, 1, NaN, Infinity], "entities": [["x", 7, null], null, [], ["7"], []]}',
    )
    right = body + ', "scores": [0.5, 1, 1, 0.5, 1], "entities": [["x", "7"], [], [], ["7"], []]}'
    bad, right = bad.json(), client.post(path, content=right).json()
    results = "data" if "voyage" in path else "results"
    assert bad[results] == right[results]
    assert {result["index"] for result in bad[results][-2:]} == {1, 2}
    assert bad["meta"]["warnings"] == [
        "blank passages, which rank last: 2",
        "scores that are not finite, which become the lowest or highest finite score: 2",
        "entities without a name, which are left out: 1",
    ]


def test_null_texts_rank_last_in_teis_format(client):
    results = client.post("/rerank", json={"query": QUERY, "texts": [None, *TEXTS], "return_text": True}).json()
    assert (results[-1]["index"], results[-1]["text"]) == (0, "")
