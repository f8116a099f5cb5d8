"""BEIR's layout as it is, and NQ as pages: a page is a run of chunks with one title."""

from pathlib import Path
from typing import Any

import pytest

from graphrerank.data.dataset import Dataset
from graphrerank.installation.plugins import find_builder
from graphrerank.utils.files import hash_files
from tests.support.raw import build, jsonl

FILES: dict[str, Any] = {
    "set/corpus.jsonl": jsonl(
        {"_id": "1", "title": "T", "text": "x", "metadata": {"url": "u"}}, {"_id": "2", "title": "", "text": ""}
    ),
    "set/queries.jsonl": jsonl({"_id": "q", "text": "?", "metadata": {}}),
    "set/qrels/test.tsv": "query-id\tcorpus-id\tscore\nq\t1\t2\nq\t2\t1\nq\t9\t1\np\t1\t1\n",
}


def test_dangling_judgements_and_empty_documents_are_listed(tmp_path: Path) -> None:
    built = build(tmp_path, "beir", FILES)
    assert built.documents == [{"_id": "1", "title": "T", "text": "x", "metadata": {"url": "u"}}]
    assert built.queries == [{"_id": "q", "text": "?"}]
    assert (built.folder / "qrels" / "test.tsv").read_text() == "query-id\tcorpus-id\tscore\nq\t1\t2\n"
    assert [(each["kind"], each["id"]) for each in built.dropped] == [
        ("document", "2"), ("judgement", "q 9"), ("judgement", "p 1"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["scifact", "nfcorpus"])
def test_a_real_folder_stays_as_it_is(datasets: Path, tmp_path: Path, name: str) -> None:
    find_builder("beir")([str(datasets / name)], tmp_path / "out", downloads=tmp_path)
    files = ["corpus.jsonl", "queries.jsonl", *(f"qrels/{path.name}" for path in (datasets / name / "qrels").iterdir())]
    differ = [file for file in files if hash_files([tmp_path / "out" / file]) != hash_files([datasets / name / file])]
    assert differ == []


TITLES = ["Ant", "Ant", "Ant", "Bee", "Ant", "Cat", "Cat"]
NQ: dict[str, Any] = {
    "nq/corpus.jsonl": jsonl(*({"_id": f"doc{i}", "title": t, "text": f"Chunk {i}."} for i, t in enumerate(TITLES))),
    "nq/queries.jsonl": jsonl({"_id": "test0", "text": "?"}, {"_id": "test1", "text": "!"}),
    "nq/qrels/test.tsv": "query-id\tcorpus-id\tscore\ntest0\tdoc1\t1\ntest1\tdoc6\t1\n",
}


def test_nqs_pages_with_a_relevant_chunk_and_the_order_of_their_chunks(tmp_path: Path) -> None:
    built = build(tmp_path, "nq", NQ)
    places = {doc["_id"]: (doc["metadata"]["doc_id"], doc["metadata"]["chunk_id"]) for doc in built.documents}
    assert places == {
        "doc0": ("doc0", 0), "doc1": ("doc0", 1), "doc2": ("doc0", 2), "doc5": ("doc5", 0), "doc6": ("doc5", 1),
    }  # fmt: skip
    assert built.judged("test") == {"test0": ["doc1"], "test1": ["doc6"]}
    assert built.card["notes"][0].startswith("4 pages of 7 chunks in the archive; 1 titles begin several pages")
    graph = Dataset.from_folder(built.folder, adjacency=True).graph
    assert graph.num_edges == 2 * 3  # doc0 - doc1 - doc2, doc5 - doc6
    assert len(build(tmp_path / "all", "nq", NQ, all_pages=True).documents) == 7
