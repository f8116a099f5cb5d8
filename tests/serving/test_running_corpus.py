"""``graphrerank serve index=...`` searches a corpus, replaces it, and adds documents, which survive ``kill -9``."""

import time

import httpx
import psutil
import pytest

from graphrerank.models.checkpoint import PRETRAINED
from tests.support.folders import write_dataset
from tests.support.running import running

pytestmark = pytest.mark.slow  # many processes

KEY = {"authorization": "Bearer word"}
PASSAGES = {
    "solaris": "Solaris. A 1972 film directed by Andrei Tarkovsky.",
    "tarkovsky": "Andrei Tarkovsky. A director who is buried in Sainte-Geneviève-des-Bois.",
    "paris": "Paris. The capital of France.",
    "cake": "Cake. It is baked from flour and sugar.",
}


def write(folder, passages):
    return write_dataset(
        folder,
        corpus=[{"_id": doc_id, "text": text} for doc_id, text in passages.items()],
        queries=[{"_id": "q", "text": "any"}],
        edges=[("solaris", "tarkovsky", "names")],
        test=[("q", "solaris")],
    )


def test_a_corpus_is_searched_and_replaced(tmp_path):
    now = tmp_path / "now"
    now.symlink_to(write(tmp_path / "one", PASSAGES))
    with running(tmp_path, "artifact=base", f"index={now}") as service:

        def search(query, **fields):
            response = httpx.post(f"{service.url}/search", json={"query": query, **fields}, timeout=60)
            assert response.status_code == 200, response.text
            return response.json()

        question = "Where is the director of the film Solaris buried?"
        found = search(question, top_n=2, return_documents=True)
        assert {result["doc_id"] for result in found["results"]} == {"solaris", "tarkovsky"}
        first = found["results"][0]
        assert first["document"]["text"] == PASSAGES[first["doc_id"]]
        assert 0 < first["probability"] < 1
        assert [result["doc_id"] for result in search(question, min_probability=first["probability"])["results"]] == [
            first["doc_id"]
        ]
        assert len(search(question)["results"]) == 4

        body = {"query": question, "documents": list(PASSAGES.values()), "edges": [[0, 1]]}
        reranked = httpx.post(f"{service.url}/v2/rerank", json=body, timeout=60).json()["results"]
        assert {result["index"] for result in reranked[:2]} == {0, 1}

        other = tmp_path / "other"
        more = {**PASSAGES, "stalker": "Stalker. A 1979 film directed by Andrei Tarkovsky."}
        other.symlink_to(write(tmp_path / "two", more))
        other.replace(now)
        deadline = time.monotonic() + 60
        while search("1979")["meta"]["index"] == found["meta"]["index"] and time.monotonic() < deadline:
            time.sleep(0.2)
        assert "stalker" in {result["doc_id"] for result in search("film Stalker of 1979")["results"]}
        assert httpx.post(f"{service.url}/search", json={"query": ""}, timeout=60).status_code == 422


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path, run_command):
    names = ["river", "stone", "metal", "cloud"]
    source = write_dataset(
        tmp_path / "source",
        corpus=[{"_id": f"p{i}", "title": name, "text": f"A text about {name}."} for i, name in enumerate(names)],
        queries=[{"_id": "q", "text": "What is a river?"}],
        edges=[("p0", "p1", "next")],
        test=[("q", "p0")],
    )
    corpus = tmp_path / "corpus"
    run_command("prepare", str(corpus), "data=folder", f"data.path={source}", "encoder=none")
    plan = (
        *("artifact=base", f"index={corpus}", "encoder=none", "retriever=bm25", "pipeline=vector_search"),
        *("workers=2", "api_key=word"),
    )

    def ask(service, method, path, body, headers=KEY):
        return httpx.request(method, f"{service.url}{path}", json=body, headers=headers, timeout=60)

    def best(service, query):
        answer = ask(service, "POST", "/search", {"query": query, "top_n": 1}).json()
        return answer["results"][0]["doc_id"], answer["meta"]["index"]

    zebra = {"documents": [{"id": "z", "text": "A zebra."}], "edges": [["z", "p2"]]}
    with running(tmp_path, *plan) as service:
        for method, body in (("POST", zebra), ("DELETE", {"ids": ["p1"]})):
            assert ask(service, method, "/documents", body, {}).status_code == 401
        assert ask(service, "DELETE", "/documents", {"ids": "p1"}).status_code == 422
        added = ask(service, "POST", "/documents", zebra)
        assert added.status_code == 200, added.text
        assert (added.json()["added"], added.json()["documents"]) == (1, 5)
        for _ in range(6):  # both workers
            assert best(service, "zebra") == ("z", added.json()["meta"]["index"])
        removed = ask(service, "DELETE", "/documents", {"ids": ["p1", "unknown"]})
        assert removed.json()["removed"] == 1
        for process in [psutil.Process(service.process.pid), *service.workers()]:
            process.kill()
    with running(tmp_path, *plan) as service:
        assert best(service, "zebra") == ("z", removed.json()["meta"]["index"])
        assert best(service, "stone")[0] == "p0"  # nothing holds the word any longer
        assert ask(service, "DELETE", "/documents", {"ids": ["z"]}).json()["documents"] == 3
        assert best(service, "zebra")[0] == "p0"


def test_feedback_survives_a_kill_and_artifacts_are_replaced(tmp_path, run_command):
    """Two workers, each of which knows what the other one showed."""
    corpus, current, log = write(tmp_path / "corpus", PASSAGES), tmp_path / "current", tmp_path / "log"
    current.symlink_to(PRETRAINED / "base")
    plan = (f"artifact={current}", f"index={corpus}", "workers=2")
    plan += (f"feedback.path={log}", f"shadow={PRETRAINED / 'attack'}", "api_key=word")

    def ask(service, path, body, method="POST"):
        return httpx.request(method, f"{service.url}{path}", json=body, headers=KEY, timeout=60)

    def search(service):
        found = ask(service, "/search", {"query": "a film", "user": "ann"})
        assert found.status_code == 200, found.text
        return found.json()["id"]

    def deployed(service):
        return ask(service, "/info", None, "GET").json()["deployment"]["artifact"]

    with running(tmp_path, *plan) as service:
        shown = [search(service) for _ in range(8)]
        assert all(ask(service, "/feedback", {"request_id": uid, "clicked": [1]}).status_code == 200 for uid in shown)
        shown += [search(service) for _ in range(8)]
        before = deployed(service)
        (tmp_path / "next").symlink_to(PRETRAINED / "attack")
        (tmp_path / "next").replace(current)
        deadline = time.monotonic() + 300
        while before in {deployed(service) for _ in range(8)}:
            assert time.monotonic() < deadline, "the artifact was not taken over"
            time.sleep(0.5)
        text = service.log.read_text()
        for process in [psutil.Process(service.process.pid), *service.workers()]:
            process.kill()
    with running(tmp_path, *plan) as service:
        assert all(ask(service, "/feedback", {"request_id": uid, "cited": [1]}).status_code == 200 for uid in shown)
        answer = ask(service, "/feedback", {"user": "bob"}, "DELETE")
        assert (answer.status_code, answer.json()["events"]) == (200, 0)
        assert int(run_command("forget", str(log), "ann").stdout.split()[0]) >= 8 + 16 + 16
        assert ask(service, "/feedback", {"request_id": shown[0], "cited": [1]}).status_code == 404
    assert '"event": "shadow"' in text
    assert "a film" not in text + "".join(path.read_text() for path in log.glob("*.jsonl"))
