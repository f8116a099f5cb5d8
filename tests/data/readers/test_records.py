"""Records of untrusted data set folders that are too long or too deep."""

import gzip
import json
from pathlib import Path

import pytest

from graphrerank.data.readers import records
from graphrerank.data.readers.records import read_jsonl, read_lines


@pytest.mark.parametrize("zipped", [False, True])
def test_a_line_without_end_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool
) -> None:
    monkeypatch.setattr(records, "MAX_LINE_BYTES", 1000)
    path = tmp_path / ("a.jsonl.gz" if zipped else "a.jsonl")
    content = b"short\n" + b"x" * 1000 + b"\n" + b"y" * 10_000_000
    path.write_bytes(gzip.compress(content) if zipped else content)
    lines = read_lines(path)
    assert next(lines) == (1, "short")
    with pytest.raises(ValueError, match=r"line 2: expected at most 1,000 bytes, got more"):
        next(lines)


@pytest.mark.parametrize("depth", [40, 900, 100_000])
def test_a_record_that_is_nested_too_deeply_is_refused(tmp_path: Path, depth: int) -> None:
    (tmp_path / "a.jsonl").write_text('{"_id": "a"}\n{"metadata": ' + "[" * depth + "]" * depth + "}\n")
    rows = read_jsonl(tmp_path / "a.jsonl")
    assert next(rows) == (1, {"_id": "a"})
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: expected JSON"):
        next(rows)


def test_numbers_of_lines_and_many_brackets_that_are_no_depth(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfa\r\n\n  \nb\nc")
    assert list(read_lines(tmp_path / "a")) == [(1, "a"), (4, "b"), (5, "c")]
    record = {"_id": "a", "text": "[" * 100, "metadata": {"list": [{"a": []}] * 50}}
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n")
    assert list(read_jsonl(tmp_path / "a.jsonl")) == [(1, record)]
