"""UltraDomain's form, made small."""

from pathlib import Path

from tests.support.raw import build, jsonl

BOOK = "Bees fly far. Ants walk. Cats sleep all day. Dogs run."


def test_chunks_of_each_context_once(tmp_path: Path) -> None:
    record = {"input": "Who flies?", "context": BOOK, "answers": ["bees"], "meta": {"title": "Animals"}}
    lines = jsonl(
        record,
        record | {"input": "Who walks?"},
        {"input": "Who?", "context": "Another book.", "dataset": "fin", "answers": []},
    )
    built = build(tmp_path, "ultradomain", {"agriculture.jsonl": lines}, chunk_words=6, overlap_words=0)
    texts = [(doc["title"], doc["text"], doc["metadata"]["chunk_id"]) for doc in built.documents]
    assert texts == [
        ("Animals", "Bees fly far. Ants walk.", 0), ("Animals", "Cats sleep all day. Dogs run.", 1),
        ("", "Another book.", 0),
    ]  # fmt: skip
    first, second = (doc["_id"] for doc in built.documents[:2])
    assert built.edges == [[first, second, "next_chunk"]]
    assert [query["_id"] for query in built.queries] == [f"agriculture:{i}" for i in range(3)]
    assert built.queries[0]["metadata"] == {
        "answer": ["bees"], "domain": "agriculture", "doc_id": built.documents[0]["metadata"]["doc_id"],
    }  # fmt: skip
