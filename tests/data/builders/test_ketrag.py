"""KET-RAG's files, made small, with and without MuSiQue's own."""

from pathlib import Path
from typing import Any

from tests.data.builders.test_multi_hop import HOTPOT, MUSIQUE
from tests.support.raw import build, jsonl

FILES: dict[str, Any] = {
    "ragtest-musique/input/document.txt": "It flies.\nIt  walks.\nIt flies.\nMeow. Purr.\n",
    "ragtest-musique/qa-pairs/qa-pairs.json": [
        {"id": "2hop__1_2", "answer": "bee", "question": "Who?"}, {"id": "h0", "answer": "", "question": "Who flies?"},
        {"id": "h1", "answer": "cat", "question": "Who purrs?"}, {"id": "new", "answer": "x", "question": "What?"},
    ],
}  # fmt: skip


def test_answers_without_judgements(tmp_path: Path) -> None:
    built = build(tmp_path, "ketrag", FILES)
    assert [(doc["_id"], doc["text"]) for doc in built.documents][1] == ("ket:1", "It  walks.")
    assert built.queries[0] == {"_id": "2hop__1_2", "text": "Who?", "metadata": {"answer": "bee"}}
    assert built.card["counts"]["qrels"] == {}


def test_judgements_from_the_data_sets_of_the_questions(tmp_path: Path) -> None:
    own: dict[str, Any] = {"musique_ans_v1.0_dev.jsonl": jsonl(*MUSIQUE), "hotpot_dev.json": HOTPOT}
    built = build(tmp_path, "ketrag", FILES | own)
    assert built.judged("test_silver") == {"2hop__1_2": ["ket:1"], "h1": ["ket:3"]}
    assert [(each["id"], each["reason"]) for each in built.dropped] == [
        ("h0", "a supporting paragraph is not in the text"),
        ("new", "the question is not in the files of its data set"),
    ]


def test_the_real_texts_stay_as_they_are(datasets: Path, tmp_path: Path) -> None:
    from graphrerank.data import read_documents, read_queries

    folder = datasets / "ketrag_musique"
    documents, queries = list(read_documents(folder)), list(read_queries(folder))
    pairs = [{"id": q.query_id, "question": q.text, "answer": q.metadata["answer"]} for q in queries]
    files: dict[str, Any] = {"input/document.txt": "\n".join(doc.text for doc in documents), "qa-pairs.json": pairs}
    built = build(tmp_path, "ketrag", files)
    assert [(doc["_id"], doc["text"]) for doc in built.documents] == [(doc.doc_id, doc.text) for doc in documents]
    assert [query["_id"] for query in built.queries] == [query.query_id for query in queries]
