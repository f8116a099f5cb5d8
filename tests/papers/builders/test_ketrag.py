"""KET-RAG's files, made small, with and without MuSiQue's own."""

from pathlib import Path
from typing import Any

import pytest

from tests.papers.builders.test_multi_hop import HOTPOT, MUSIQUE
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


@pytest.mark.parametrize("file", ["hotpot_dev.json", "data/dev.json"])
def test_judgements_from_the_data_sets_of_the_questions(tmp_path: Path, file: str) -> None:
    own: dict[str, Any] = {"musique_ans_v1.0_dev.jsonl": jsonl(*MUSIQUE), file: HOTPOT}
    built = build(tmp_path, "ketrag", FILES | own)
    assert built.judged("test_silver") == {"2hop__1_2": ["ket:1"], "h1": ["ket:3"]}
    assert [(each["id"], each["reason"]) for each in built.dropped] == [
        ("h0", "a supporting paragraph is not in the text"),
        ("new", "the question is not in the files of its data set"),
    ]


def test_against_the_folder_with_musiques_own_file_made_of_it(datasets: Path, tmp_path: Path) -> None:
    from graphrerank.data.readers.documents import read_documents, read_queries

    folder = datasets / "ketrag_musique"
    documents, queries = list(read_documents(folder)), list(read_queries(folder))
    passages = {doc.doc_id: (doc.title, doc.text) for doc in documents}
    judged: dict[str, list[str]] = {}
    for line in (folder / "qrels" / "test_silver.tsv").read_text().splitlines()[1:]:
        query, doc, _ = line.split("\t")
        judged.setdefault(query, []).append(doc)
    musique = [
        {"id": query, "question": "", "answer": "", "answerable": True, "paragraphs": [
            {"idx": i, "title": passages[doc][0], "paragraph_text": passages[doc][1], "is_supporting": True}
            for i, doc in enumerate(docs)
        ]}
        for query, docs in judged.items()
    ]  # fmt: skip
    pairs = [{"id": q.query_id, "question": q.text, "answer": q.metadata["answer"]} for q in queries]
    files: dict[str, Any] = {
        "input/document.txt": "\n".join(doc.text for doc in documents),
        "qa-pairs.json": pairs,
        "musique_ans_v1.0_dev.jsonl": jsonl(*musique),
    }
    built = build(tmp_path, "ketrag", files)
    assert [(doc["_id"], doc["text"]) for doc in built.documents] == [(doc.doc_id, doc.text) for doc in documents]
    assert [query["_id"] for query in built.queries] == [query.query_id for query in queries]
    assert len(judged) == 114
    assert {q: sorted(docs) for q, docs in built.judged("test_silver").items()} == {
        q: sorted(docs) for q, docs in judged.items()
    }
