"""A corpus folder grows while ``python serve.py index=...`` serves it, and after ``kill -9`` nothing is lost."""

import httpx
import psutil
import pytest

from tests.support.folders import write_dataset
from tests.support.running import running

pytestmark = pytest.mark.slow  # many processes

KEY = {"authorization": "Bearer word"}


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
