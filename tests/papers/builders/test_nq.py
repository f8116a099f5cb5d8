"""Chunks of pages: a page is a run of chunks with one title."""

from pathlib import Path
from typing import Any

from graphrerank.data.dataset import Dataset
from tests.support.raw import build, jsonl

TITLES = ["Ant", "Ant", "Ant", "Bee", "Ant", "Cat", "Cat"]
FILES: dict[str, Any] = {
    "nq/corpus.jsonl": jsonl(*({"_id": f"doc{i}", "title": t, "text": f"Chunk {i}."} for i, t in enumerate(TITLES))),
    "nq/queries.jsonl": jsonl({"_id": "test0", "text": "?"}, {"_id": "test1", "text": "!"}),
    "nq/qrels/test.tsv": "query-id\tcorpus-id\tscore\ntest0\tdoc1\t1\ntest1\tdoc6\t1\n",
}


def test_pages_with_a_relevant_chunk_and_the_order_of_their_chunks(tmp_path: Path) -> None:
    built = build(tmp_path, "nq", FILES)
    places = {doc["_id"]: (doc["metadata"]["doc_id"], doc["metadata"]["chunk_id"]) for doc in built.documents}
    assert places == {
        "doc0": ("doc0", 0), "doc1": ("doc0", 1), "doc2": ("doc0", 2), "doc5": ("doc5", 0), "doc6": ("doc5", 1),
    }  # fmt: skip
    assert built.judged("test") == {"test0": ["doc1"], "test1": ["doc6"]}
    assert built.card["notes"][0].startswith("4 pages of 7 chunks in the archive; 1 titles begin several pages")
    graph = Dataset.from_folder(built.folder, adjacency=True).graph
    assert graph.num_edges == 2 * 3  # doc0 - doc1 - doc2, doc5 - doc6


def test_all_pages(tmp_path: Path) -> None:
    assert len(build(tmp_path, "nq", FILES, all_pages=True).documents) == 7
