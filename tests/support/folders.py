"""Data set folders, written as users write them."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]


@pytest.fixture
def write_folder(tmp_path: Path) -> Write:
    """Write a small data set folder; each table can be replaced, as text, bytes or records, or left out with None."""

    def write(path: Path = tmp_path / "small", **tables: Any) -> Path:
        content: dict[str, Any] = {
            "corpus": [
                {"_id": "a", "title": "Ant", "text": "An insect."},
                {"_id": "b", "title": "", "text": "A bird."},
                {"_id": "c", "title": "Cat", "text": ""},
                {"_id": "d d", "text": "A dog.", "metadata": {"split": "dev"}},
            ],
            "queries": [
                {"_id": "q1", "text": "Which insect?"},
                {"_id": "q2", "text": "Which pets?", "metadata": {"kind": "list"}},
                {"_id": "q3", "text": "Nothing?"},
            ],
            "edges": "source\ttarget\ttype\na\tb\tlikes\nc\td d\thates\n",
            "train": "query-id\tcorpus-id\tscore\nq1\ta\t1\nq1\tb\t0\n",
            "test": "query-id\tcorpus-id\tscore\nq2\tc\t2\nq2\td d\t1\n",
        } | tables
        (path / "qrels").mkdir(parents=True)
        for name, table in content.items():
            suffix = "jsonl" if name in ("corpus", "queries") else "tsv"
            folder = path / "qrels" if name not in ("corpus", "queries", "edges") else path
            if table is not None:
                (folder / f"{name}.{suffix}").write_bytes(as_bytes(table))
        return path

    return write


def as_bytes(table: str | bytes | Iterable[Mapping[str, Any]]) -> bytes:
    if isinstance(table, bytes):
        return table
    text = table if isinstance(table, str) else "".join(json.dumps(record) + "\n" for record in table)
    return text.encode("utf-8")
