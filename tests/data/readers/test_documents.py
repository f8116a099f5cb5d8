import json
from pathlib import Path
from typing import Any

import pytest

from graphrerank.data.readers.documents import read_queries


def write_queries(folder: Path, *metadata: dict[str, Any]) -> Path:
    rows = [{"_id": str(i), "text": "x", "metadata": entry} for i, entry in enumerate(metadata)]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@pytest.mark.parametrize(
    ("metadata", "answers"),
    [
        ({"answer": 0}, ["0"]),
        ({"answer": 1.5}, ["1.5"]),
        ({"answer": False}, ["no"]),
        ({"answer": ["Metz", None, " ", "Metz"], "answer_aliases": [True, "a"]}, ["Metz", "yes", "a"]),
        ({"answer": None, "answer_aliases": "Metz"}, ["Metz"]),
        ({"answer": "Metz", "answerable": True}, ["Metz"]),
        ({"answer": "Metz", "answerable": False}, []),
        ({}, None),
    ],
)
def test_right_answers(tmp_path: Path, metadata: dict[str, Any], answers: list[str] | None) -> None:
    assert [query.answers for query in read_queries(write_queries(tmp_path, metadata))] == [answers]


@pytest.mark.parametrize(
    ("metadata", "needed"),
    [
        ({"answer": {"text": "Metz"}}, "a text, a number, true or false, or a list of them as `answer`"),
        ({"answer_aliases": ["a", {}]}, "a text, a number, true or false, or a list of them as `answer_aliases`"),
        ({"answer": "a", "answerable": "false"}, "true or false as `answerable`"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, metadata: dict[str, Any], needed: str) -> None:
    with pytest.raises(ValueError, match=rf"queries\.jsonl, line 2: expected {needed}, got {{"):
        list(read_queries(write_queries(tmp_path, {}, metadata)))
