"""What was shown and what became of it: routes, who may say what, and what is kept."""

import json
import logging
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import jwt
import pytest
import torch

from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.metadata import Metadata
from graphrerank.feedback.log import read_log
from graphrerank.feedback.propensity import user_weights
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import VectorSearch
from graphrerank.serving.auth import PermissionSettings
from graphrerank.serving.batching import Batcher
from graphrerank.serving.deployment.artifact_search import ArtifactSearch
from graphrerank.serving.deployment.deployed_engine import DeployedEngine
from graphrerank.serving.engines.feedback import FeedbackEngine
from graphrerank.serving.engines.inspection import InspectEngine
from graphrerank.serving.engines.rerank import RerankEngine
from graphrerank.serving.engines.search import SearchEngine
from graphrerank.serving.engines.searchable_corpus import SearchableCorpus
from graphrerank.serving.feedback_log import FeedbackSettings, FeedbackStore
from graphrerank.serving.json_log import LOGGER
from graphrerank.serving.recorder import MAX_EXPLORED, Recorder
from graphrerank.serving.schemas.feedback import AddFeedback
from graphrerank.serving.server import create_app
from graphrerank.serving.settings import ServiceSettings
from graphrerank.serving.standard_routes import ADD_FEEDBACK, INSPECT, REMOVE_FEEDBACK, RERANK, SEARCH, TEI
from tests.support import ROOT
from tests.support.client import TestClient

TEXTS = ["red pear", "red plum", "red apple", "red fig"]
RECORDS = [{}, {"principals": ["hr"]}, {"principals": ["hr", "law"]}, {"principals": []}]
BODY = {"query": "a red plum", "documents": TEXTS, "edges": [[0, 1]]}
KEY = "k" * 32


@pytest.fixture
def make_client(tmp_path: Path, artifact: Any, encoder: Any) -> Any:
    graph = CorpusGraph.from_edges(list("abcd"), TEXTS, torch.zeros(0, 2))
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "corpus.jsonl").touch()

    def make(*, tokens: bool = False, **settings: Any) -> TestClient:
        chosen = FeedbackSettings(str(tmp_path / "log"), **settings)
        permissions = PermissionSettings("HS256", KEY, "search") if tokens else PermissionSettings()
        seen = graph.with_passages(metadata=Metadata(RECORDS)) if tokens else graph
        pipeline = Pipeline(seen, steps=[partial(VectorSearch, retriever=partial(BM25Retriever))], budget=9)
        search = SearchEngine(lambda _: SearchableCorpus(seen, pipeline, None, fingerprint="f"), tmp_path / "corpus")
        service, log = ServiceSettings(permissions=permissions), FeedbackStore(chosen)
        engines = {
            "rerank": DeployedEngine(lambda _: RerankEngine(artifact, encoder), artifact.folder),
            "search": DeployedEngine(partial(ArtifactSearch, search), artifact.folder),
            "inspect": InspectEngine(search, artifact=lambda: "a"),
            "feedback": FeedbackEngine(log),
        }
        routes = [RERANK, TEI, SEARCH, INSPECT, ADD_FEEDBACK, REMOVE_FEEDBACK]
        recorder = Recorder(log, chosen)
        app = create_app(routes, Batcher(engines, service.limits), service, info={}, recorder=recorder)
        return TestClient(app, base_url="http://localhost:8000")

    return make


@pytest.fixture
def events(tmp_path: Path) -> Any:
    def read() -> list[dict[str, Any]]:
        lines = [line for path in sorted((tmp_path / "log").glob("*.jsonl")) for line in path.read_text().splitlines()]
        return sorted((json.loads(line) for line in lines if line.strip()), key=lambda event: event["time"])

    return read


def bearer(subject: str | None, *principals: str) -> dict[str, str]:
    content = {"exp": 1 << 40, "aud": "search", "principals": list(principals)} | ({"sub": subject} if subject else {})
    return {"authorization": f"Bearer {jwt.encode(content, KEY, algorithm='HS256')}"}


def test_what_is_kept_of_searches_and_feedback(make_client: Any, events: Any, tmp_path: Path) -> None:
    """It is what :mod:`graphrerank.feedback.log` reads."""
    client = make_client(queries=True)
    found = client.post("/search", json={"query": "plum", "user": "ann@example.org"}).json()
    ids = [result["doc_id"] for result in found["results"]]
    given = {"request_id": found["id"], "clicked": [1], "cited": [ids[1]], "weight": 0.5, "time": time.time()}
    answer = client.post("/feedback", json=given)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"id": answer.headers["x-request-id"], "events": 1, "meta": {}}
    shown, feedback = events()
    scores = [round(result["score"], 6) for result in found["results"]]
    assert shown["request_id"] == found["id"]
    assert (shown["query"], shown["ids"], shown["scores"]) == ("plum", ids, scores)
    assert (shown["ranker"], shown["corpus"], shown["artifact"].split("@")[0]) == ("live", "f", "test-model")
    named = {**given, "clicked": ids[:1], "cited": [ids[1]]}
    sender = {name: shown[name] for name in ("user", "authenticated", "client")}
    assert feedback == {"event": "feedback", **named, **sender}
    assert sender["authenticated"] is False  # the client chose the name
    (session,) = read_log(tmp_path / "log", known={"a", "b", "c", "d"}, corpora={"f"}).sessions
    assert (session.query, session.ids, session.user) == ("plum", tuple(ids), shown["user"])
    assert session.gains == (0.5, 0.5, *[0.0] * (len(ids) - 2))
    assert "ann" not in json.dumps([shown, feedback])
    assert "pear" not in json.dumps([shown, feedback])


def test_feedback_is_withdrawn_and_replaced(make_client: Any, events: Any, tmp_path: Path) -> None:
    client = make_client(queries=True)
    request_id = client.post("/search", json={"query": "plum"}).json()["id"]
    for lists in ({"accepted": [1]}, {"withdrawn": [1], "dismissed": [1]}, {"withdrawn": [1], "clicked": [1]}):
        assert client.post("/feedback", json={"request_id": request_id, **lists}).status_code == 200
    (session,) = read_log(tmp_path / "log").sessions
    assert session.gains[0] == 1.0
    assert [event.get("withdrawn") for event in events()[1:]] == [None, [session.ids[0]], [session.ids[0]]]
    refused = client.post("/feedback", json={"request_id": request_id, "withdrawn": ["z"]})
    assert refused.status_code == 422
    assert "withdrawn.0: must be the rank" in refused.json()["message"]
    assert client.post("/feedback", json={"request_id": request_id}).status_code == 422


def test_an_inspection_is_logged_if_it_is_shown_to_a_person(make_client: Any, events: Any, tmp_path: Path) -> None:
    client = make_client(queries=True, explore=0.5)
    unseen = client.post("/inspect", json={"query": "plum"}).json()
    assert events() == []
    assert client.post("/feedback", json={"request_id": unseen["id"], "accepted": [1]}).status_code == 404
    found = client.post("/inspect", json={"query": "red plum", "record": True}).json()
    (event,) = events()
    ranking = found["rankings"][-1]
    assert event["ids"] == [found["nodes"][node]["doc_id"] for node in ranking["nodes"]]
    assert event["scores"] == [round(score, 6) for score in ranking["scores"]]
    assert (event["request_id"], event["ranker"], event["corpus"], event["artifact"]) == (found["id"], "live", "f", "a")
    assert "swaps" not in event  # the page shows the order of the response
    assert client.post("/feedback", json={"request_id": found["id"], "dismissed": event["ids"][:1]}).status_code == 200
    assert len(read_log(tmp_path / "log").sessions) == 1


def test_a_query_is_a_keyed_hash_unless_it_is_allowed(make_client: Any, events: Any, tmp_path: Path) -> None:
    client = make_client()
    for query in ("plum", "plum", "pear"):
        client.post("/search", json={"query": query})
    queries = [event["query"] for event in events()]
    assert queries[0] == queries[1] != queries[2]
    assert all(query.startswith("hash:") for query in queries)
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "log").iterdir())


def test_reranked_documents_are_named_by_their_index(make_client: Any, events: Any) -> None:
    client = make_client()
    found = client.post("/v2/rerank", json={**BODY, "top_n": 2, "user": "ann"}).json()
    last = found["results"][1]["index"]
    assert client.post("/feedback", json={"request_id": found["id"], "accepted": [str(last)]}).status_code == 200
    tei = client.post("/rerank", json={"query": "a plum", "texts": TEXTS})
    uid = tei.headers["x-request-id"]
    assert client.post("/feedback", json={"request_id": uid, "dismissed": [1]}).status_code == 200
    feedback = [event for event in events() if event["event"] == "feedback"]
    assert [event.get("accepted", event.get("dismissed")) for event in feedback] == [
        [str(last)],
        [str(tei.json()[0]["index"])],
    ]


@pytest.mark.parametrize(
    ("change", "field", "status"),
    [
        ({"request_id": str(uuid4())}, "request_id", 404),
        ({"request_id": "1"}, "request_id", 422),
        ({"clicked": [5]}, "clicked.0", 422),
        ({"clicked": [0]}, "clicked.0", 422),
        ({"clicked": [1, "d9"]}, "clicked.1", 422),
        ({"clicked": [True]}, "clicked", 422),
        ({"clicked": []}, "`clicked`, `cited`, `accepted`, `dismissed`", 422),
        ({"cited": ["a"] * 1001}, "cited", 422),
        ({"weight": 0}, "weight", 422),
        ({"weight": 1e9}, "weight", 422),
        ({"time": -1}, "time", 422),
        ({"time": 1.0}, "time", 422),
        ({"time": 1e11}, "time", 422),
        ({"weight": float("nan")}, "weight", 422),
        ({"weight": float("inf")}, "weight", 422),
        ({"weight": -1}, "weight", 422),
        ({"swaps": [[1, 2, 0.01]]}, "swaps", 422),
        ({"authenticated": True}, "authenticated", 422),
        ({"klicked": [1]}, "clicked", 422),
        ({"user": "bob"}, "request_id", 404),
    ],
)
def test_bad_feedback_names_the_field(make_client: Any, events: Any, change: Any, field: str, status: int) -> None:
    client = make_client()
    uid = client.post("/search", json={"query": "plum", "user": "ann"}).json()["id"]
    content = json.dumps({"request_id": uid, "clicked": [1], **change})
    answer = client.post("/feedback", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert field in answer.json()["message"]
    assert len(events()) == 1


def test_only_who_was_shown_it_may_give_feedback_and_learns_nothing(make_client: Any, events: Any) -> None:
    client, ann, bob = make_client(tokens=True), bearer("ann", "hr"), bearer("bob", "hr", "law")
    found = client.post("/search", json={"query": "red"}, headers=ann).json()
    assert {result["doc_id"] for result in found["results"]} == {"a", "b", "c"}
    given = {"request_id": found["id"], "clicked": [1]}
    never = client.post("/feedback", json={**given, "request_id": str(uuid4())}, headers=bob)
    for headers in (bob, {}, bearer(None, "hr")):
        refused = client.post("/feedback", json=given, headers=headers)
        assert (refused.status_code, refused.json()["message"]) == (404, never.json()["message"])
    hidden = client.post("/feedback", json={**given, "clicked": ["d"]}, headers=ann)
    unknown = client.post("/feedback", json={**given, "clicked": ["x"]}, headers=ann)
    assert (hidden.status_code, hidden.json()["message"]) == (422, unknown.json()["message"])
    assert client.post("/feedback", json={**given, "user": "bob"}, headers=ann).status_code == 200
    assert client.post("/feedback", json=given, headers=bearer("ann", "law")).status_code == 200  # of another team now
    assert len({event["user"] for event in events()}) == 1


def test_a_user_is_forgotten(make_client: Any, events: Any) -> None:
    client = make_client(tokens=True)
    people = {"ann": bearer("ann", "hr"), "bob": bearer("bob", "write")}
    uids = {
        name: client.post("/search", json={"query": "red"}, headers=who).json()["id"] for name, who in people.items()
    }
    for name, who in people.items():
        assert client.post("/feedback", json={"request_id": uids[name], "clicked": [1]}, headers=who).status_code == 200
    assert client.delete("/feedback?user=ann", headers=people["ann"]).status_code == 403
    deleted = client.delete("/feedback?user=ann", headers=people["bob"])
    assert (deleted.status_code, deleted.json()["events"]) == (200, 2)
    assert {event["request_id"] for event in events()} == {uids["bob"]}
    gone = client.post("/feedback", json={"request_id": uids["ann"], "clicked": [1]}, headers=people["ann"])
    assert gone.status_code == 404
    assert client.request("DELETE", "/feedback", json={"user": "bob"}, headers=people["bob"]).json()["events"] == 2
    assert events() == []
    assert client.delete("/feedback", headers=people["bob"]).status_code == 400


def test_a_subject_does_not_give_feedback_for_holders_of_principals(make_client: Any, events: Any) -> None:
    client, writer = make_client(tokens=True), bearer("w", "write")
    people = [bearer("hr,law"), bearer(None, "hr", "law"), bearer(None, "hr,law")]
    uids = [client.post("/search", json={"query": "red"}, headers=who).json()["id"] for who in people]
    for who in people:
        status = [client.post("/feedback", json={"request_id": uid, "clicked": [1]}, headers=who) for uid in uids]
        assert [answer.status_code for answer in status] == [200 if who == other else 404 for other in people]
    assert len({event["user"] for event in events()}) == 3
    for query, count in (("hr,law&kind=sub", 2), ("hr,law&kind=name", 0), ('["hr,law"]', 2), ("hr,law", 2)):
        assert client.delete(f"/feedback?user={query}", headers=writer).json()["events"] == count, query
    assert client.delete("/feedback?user=hr&kind=team", headers=writer).status_code == 422
    assert events() == []


def test_exploration_exchanges_neighbours_and_says_how_probable_it_was(
    make_client: Any, events: Any, tmp_path: Path
) -> None:
    """Against the order without it: chi-square of 600 draws."""
    client = make_client(explore=0.25, queries=True)
    usual = [
        result["doc_id"]
        for result in make_client(queries=True).post("/search", json={"query": "red plum"}).json()["results"]
    ]
    shown = [client.post("/search", json={"query": "red plum"}).json() for _ in range(600)]
    drawn: Counter[tuple[int, bool]] = Counter()
    for answer, event in zip(shown, events()[1:], strict=True):
        ids = [result["doc_id"] for result in answer["results"]]
        assert event["ids"] == ids
        ((first, second, probability),) = event["swaps"]
        assert 1 <= first < second == first + 1 <= min(len(ids), MAX_EXPLORED)
        order = list(usual)
        if is_exchanged := probability == 0.25:
            order[first - 1 : second] = order[first - 1 : second][::-1]
        assert ids == order
        drawn[first, is_exchanged] += 1
    log = read_log(tmp_path / "log")
    assert not log.left_out
    assert Counter(session.swaps for session in log.sessions).total() == 601
    assert {swap for session in log.sessions for swap in session.swaps} == {
        (first, first + 1, probability) for first in (1, 2, 3) for probability in (0.25, 0.75)
    }
    expected = {(first, exchanged): 200 * (0.25 if exchanged else 0.75) for first in (1, 2, 3) for exchanged in (0, 1)}
    assert sum((drawn[key] - count) ** 2 / count for key, count in expected.items()) < 25  # 5 degrees: p = 1e-4


def test_a_full_disk_costs_the_memory_and_not_the_answer(make_client: Any, monkeypatch: Any, caplog: Any) -> None:
    client = make_client()
    uid = client.post("/search", json={"query": "plum"}).json()["id"]

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("graphrerank.serving.feedback_log.append_bytes", fail)
    with caplog.at_level(logging.ERROR, LOGGER):
        answers = [client.post("/search", json={"query": "secret plum"}) for _ in range(3)]
    assert {answer.status_code for answer in answers} == {200}
    assert [record.message for record in caplog.records if record.name == LOGGER] == [
        "feedback log could not be written"
    ]
    refused = client.post("/feedback", json={"request_id": uid, "clicked": [1]})
    assert (refused.status_code, refused.json()["message"]) == (507, "the feedback could not be written")


def test_a_client_bounds_nothing_of_an_event(make_client: Any, events: Any) -> None:
    """The longest query, name of a user and lists of results that a request may have make short events."""
    client = make_client(queries=True)
    body = {"query": "\U0001f600" * 20_000, "documents": TEXTS, "user": "\U0001f600" * 1000}
    uid = client.post("/v2/rerank", json=body).json()["id"]
    lists = {kind: [1, "1"] * 500 for kind in ("clicked", "cited", "accepted", "dismissed")}
    given = client.post("/feedback", json={"request_id": uid, **lists, "user": "\U0001f600" * 1000})
    assert given.status_code == 200, given.text
    shown, feedback = events()
    assert (shown["query"], shown["query_chars"]) == ("\U0001f600" * 1000, 20_000)
    assert len(json.dumps(shown, ensure_ascii=False).encode()) < 5000
    assert len(json.dumps(feedback).encode()) < 600


def test_who_is_authenticated(make_client: Any, events: Any) -> None:
    """A token says who a user is; a name in a request says nothing, unless the operator trusts it."""
    tokens = make_client(tokens=True)
    for headers in (bearer("ann", "hr"), bearer(None, "hr"), bearer("bob"), {}):
        tokens.post("/search", json={"query": "red", "user": "eve"}, headers=headers)
    assert [event["authenticated"] for event in events()] == [True, True, True, False]
    assert [event["client"] is None for event in events()] == [True, True, True, False]
    make_client().post("/search", json={"query": "red", "user": "eve"})
    make_client(trust_users=True).post("/search", json={"query": "red", "user": "eve"})
    make_client(trust_users=True).post("/search", json={"query": "red"})
    assert [event["authenticated"] for event in events()[4:]] == [False, True, False]


def test_users_that_a_client_invents_are_one_to_learning(make_client: Any, tmp_path: Path) -> None:
    client = make_client(queries=True)
    for number in range(20):
        found = client.post("/search", json={"query": "plum", "user": f"invented {number}"}).json()
        given = {"request_id": found["id"], "accepted": [2], "dismissed": [1], "weight": 10}
        assert client.post("/feedback", json={**given, "user": f"invented {number}"}).status_code == 200
    log = read_log(tmp_path / "log")
    assert {session.known_user for session in log.sessions} == {None}
    assert {max(session.gains) for session in log.sessions} == {2.0}  # of one acceptance, whatever its weight
    assert float(user_weights(log.sessions).sum()) == pytest.approx(1.0)


def test_the_request_of_the_page() -> None:
    page = (ROOT / "docs" / "feedback.md").read_text(encoding="utf-8")
    body = AddFeedback.model_validate_json(page.split("-d '")[1].split("'")[0])
    assert (body.clicked, body.cited) == ([1, 3], ["solaris"])
