"""BEIR's layout, taken as it is."""

from pathlib import Path
from typing import Any

import pytest

from graphrerank.files import hash_files
from tests.support.raw import build, jsonl

FILES: dict[str, Any] = {
    "set/corpus.jsonl": jsonl(
        {"_id": "1", "title": "T", "text": "x", "metadata": {"url": "u"}}, {"_id": "2", "title": "", "text": ""}
    ),
    "set/queries.jsonl": jsonl({"_id": "q", "text": "?", "metadata": {}}),
    "set/qrels/test.tsv": "query-id\tcorpus-id\tscore\nq\t1\t2\nq\t2\t1\nq\t9\t1\np\t1\t1\n",
}


def test_what_is_there_stays_and_what_is_not_is_listed(tmp_path: Path) -> None:
    built = build(tmp_path, "beir", FILES)
    assert built.documents == [{"_id": "1", "title": "T", "text": "x", "metadata": {"url": "u"}}]
    assert built.queries == [{"_id": "q", "text": "?"}]
    assert (built.folder / "qrels" / "test.tsv").read_text() == "query-id\tcorpus-id\tscore\nq\t1\t2\n"
    assert [(each["kind"], each["id"]) for each in built.dropped] == [
        ("document", "2"), ("judgement", "q 9"), ("judgement", "p 1"),
    ]  # fmt: skip


def test_bad_lines_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"test\.tsv, line 2: needed an integer as score, found 'x'"):
        build(tmp_path, "beir", FILES | {"set/qrels/test.tsv": "query-id\tcorpus-id\tscore\nq\t1\tx\n"})
    with pytest.raises(ValueError, match=r"corpus\.jsonl, line 1: needed strings as `_id`"):
        build(tmp_path, "beir", FILES | {"set/corpus.jsonl": '{"_id": 1, "text": "x"}\n'})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["scifact", "nfcorpus"])
def test_a_real_folder_stays_as_it_is(datasets: Path, tmp_path: Path, name: str) -> None:
    from graphrerank_papers.builders.registry import build_dataset

    build_dataset("beir", [str(datasets / name)], tmp_path / "out", downloads=tmp_path)
    files = ["corpus.jsonl", "queries.jsonl", *(f"qrels/{path.name}" for path in (datasets / name / "qrels").iterdir())]
    differ = [file for file in files if hash_files([tmp_path / "out" / file]) != hash_files([datasets / name / file])]
    assert differ == []
