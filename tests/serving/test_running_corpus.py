"""A corpus is searched and replaced by ``python serve.py artifact=... index=...``."""

import json
import time

import httpx
import pytest

from tests.support.running import running

pytestmark = pytest.mark.slow  # many processes

PASSAGES = {
    "solaris": "Solaris. A 1972 film directed by Andrei Tarkovsky.",
    "tarkovsky": "Andrei Tarkovsky. A director who is buried in Sainte-Geneviève-des-Bois.",
    "paris": "Paris. The capital of France.",
    "cake": "Cake. It is baked from flour and sugar.",
}


def write(folder, passages):
    """Write a data set folder."""
    (folder / "qrels").mkdir(parents=True)
    lines = [json.dumps({"_id": doc_id, "text": text}) for doc_id, text in passages.items()]
    (folder / "corpus.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "any"}\n')
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\nq\t{next(iter(passages))}\t1\n")
    (folder / "edges.tsv").write_text("solaris\ttarkovsky\tnames\n")
    return folder


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
