"""Checks of files, names and numbers that others made."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from graphrerank.cli.main import main
from graphrerank.data.dataset import Dataset
from graphrerank.data.readers.records import read_jsonl
from graphrerank.evaluation.tables import Cell, Table, print_table
from graphrerank.utils.markdown import markdown_table
from graphrerank.utils.safe_loading import (
    MAX_MODEL_LAYERS,
    check_arguments,
    check_depth,
    check_hub_model,
    check_name,
    printable,
    read_json,
    shown_name,
    untrusted_file,
)

NOT_NAMES = ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", ".hidden", "a\0b", "a\nb", "a\x1b[2J", "x" * 201]


@pytest.mark.parametrize("name", NOT_NAMES)
def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="`name` must be a plain name"):
        check_name(name=name)
    with pytest.raises(ValueError, match="`name` must be a plain name"):
        untrusted_file(tmp_path, name)


def test_names_and_models_of_the_hub() -> None:
    for name in ("a", "scifact-G", "model.pt", "Köln 2", "a:b", "all-MiniLM-L6-v2", "x" * 200):
        check_name(name=name)
    for model in ("owner/name", "name", "BAAI/bge-reranker-v2-m3", "a.b/c_d-e.1"):
        check_hub_model(model=model)


@pytest.mark.parametrize(
    "model",
    ["", "/a/b", "./a", "../a", "a/b/c", "a//b", "a/..", "a/../b", "~/a", ".a", "a b", "a--b/c", "a/b\n", "é/a"],
)
def test_a_file_names_no_folder(model: str) -> None:
    with pytest.raises(ValueError, match=r"`encoder\.model` in a file must be a model id .*encoder\.model=DIR"):
        check_hub_model(**{"encoder.model": model})


def test_a_folder_that_is_here_is_no_model_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "name").mkdir(parents=True)
    with pytest.raises(ValueError, match="must be a model id"):
        check_hub_model(model="owner/name")


def test_links_are_not_followed_but_those_of_the_hubs_cache(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "plain").write_text("x", encoding="utf-8")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "dangling").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    assert untrusted_file(folder, "plain") == folder / "plain"
    for name, found in (("link", "a link"), ("dangling", "a link"), ("pipe", "another kind of file")):
        with pytest.raises(ValueError, match=f"expected a regular file, got {found}"):
            untrusted_file(folder, name)
    with pytest.raises(ValueError, match="no such file"):
        untrusted_file(folder, "missing")

    snapshot = tmp_path / "models--a--b" / "snapshots" / "0"
    (blobs := tmp_path / "models--a--b" / "blobs").mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "1").write_text("x", encoding="utf-8")
    (blobs / "2").symlink_to(tmp_path / "secret")
    for name, target in (("good", "../../blobs/1"), ("chain", "../../blobs/2"), ("out", "../../../secret")):
        (snapshot / name).symlink_to(target)
    assert untrusted_file(snapshot, "good").read_text(encoding="utf-8") == "x"
    for name in ("chain", "out"):
        with pytest.raises(ValueError, match="got a link"):
            untrusted_file(snapshot, name)


def deep(levels: int) -> Any:
    content: Any = 1
    for _ in range(levels):
        content = [content]
    return content


def test_depth_has_a_bound() -> None:
    check_depth(deep(32), "here")
    check_depth({"a": [deep(30), 2.5, None, True, "x", float("nan")]}, "here")
    for levels in (33, 100_000):
        with pytest.raises(ValueError, match=r"^here: expected JSON with at most 32 levels"):
            check_depth(deep(levels), "here")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"[" * 60_000 + b"]" * 60_000, "not valid JSON"),
        (b'{"a": ' * 100 + b"1" + b"}" * 100, "at most 32 levels"),
        (b"\xff", "not valid JSON"),
        (b"1" * 5000, "not valid JSON"),
        (b'"' + b"x" * 2000 + b'"', "at most 1,000 bytes of JSON"),
    ],
)
def test_a_file_is_refused_by_name(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=rf"a\.json: .*{message}"):
        read_json(path, max_bytes=1_000 if "bytes" in message else 1 << 20)


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_layers": MAX_MODEL_LAYERS + 1},
        {"encoder": {"num_hidden_layers": 10_000}},
        {"num_layers": float("nan")},
        {"hidden_channels": [64] * 300},
        {"hidden_channels": [2**21]},
        {"restart_prob": 1e-9},
        {"a": [{"dim": -(2**21)}]},
        {"size": 10**400},
        {"names": {1, 2}},
        {"a": deep(33)},
    ],
)
def test_sizes_of_models_have_bounds(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|expected"):
        check_arguments(arguments)


def test_json_of_many_values_is_refused_before_it_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"[" + b"[]," * 70_000 + b"0]")
    monkeypatch.setattr(json, "loads", pytest.fail)
    with pytest.raises(ValueError, match=r"a\.json: expected at most 65,536 JSON values, got up to 140,001"):
        read_json(path, max_bytes=1 << 20)
    lines = tmp_path / "a.jsonl"
    lines.write_bytes(b'{"a": [' + b"[]," * (1 << 21) + b"0]}")
    with pytest.raises(ValueError, match=r"a\.jsonl, line 1: expected at most 4,194,304 JSON values"):
        list(read_jsonl(lines))


def test_a_name_is_shown_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert shown_name("a\x1b[2J\nb\tc\r\u2028Ä é 漢") == "a\\x1b[2J\\nb\\tc\\r\\u2028Ä é 漢"
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "a.md").write_text("# A\n\nSee [this](no&#10;hash%0A1.md) and [that](<no\u2028 hash.md>).\n")
    for name in ("b\nhash 1.json", "c.\nhash 2", "d\x1b[2J.json"):
        (documents / name).write_text("{")
    assert main(["index", str(documents), "--out", str(tmp_path / "data")]) == 0
    printed = capsys.readouterr().out
    assert not [line for line in printed.splitlines() if line.lstrip().startswith(("hash", "[2J"))]
    assert "b\\nhash 1.json" in printed
    (tmp_path / "data" / "queries.jsonl").write_text('{"_id": "q", "text": "What is it?"}\n')
    (tmp_path / "data" / "qrels").mkdir()
    qrels = tmp_path / "data" / "qrels" / "a\nhash 3.tsv"
    qrels.write_text("query-id\tcorpus-id\tscore\nq\ta.md#a\t1\n")
    assert "a\\nhash 3" in Dataset.from_folder(tmp_path / "data").summary()
    qrels.write_text("query-id\tcorpus-id\tscore\nq\tnone\t1\n")
    with pytest.raises(ValueError, match=r"a\\nhash 3\.tsv, line 2") as raised:
        Dataset.from_folder(tmp_path / "data")
    assert len(str(raised.value).splitlines()) == 1


def test_a_name_of_a_table_is_one_line() -> None:
    assert markdown_table(["a\n| b |"], [["c\nd"]]) == "| a\\n| b | |\n| --- |\n| c\\nd |"


def test_nothing_that_controls_a_terminal_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = "a\x1b[2J\x9b\r\x07\u202eb\udcff\t\nÄ é 漢 \U0001f600"
    assert printable(text) == "a\\x1b[2J\\x9b\\r\\x07\\u202eb\\udcff\t\nÄ é 漢 \U0001f600"
    folder = tmp_path / "a\x1b[31m"
    assert main(["report", str(folder), str(folder)]) == 1
    assert "a\\x1b[31m" in (shown := capsys.readouterr().err)
    assert "\x1b" not in shown
    assert "\\x1b" in warnings.formatwarning("\x1b", UserWarning, "a.py", 1)
    print_table(Table("n", ["x\x1b[2J"], [[Cell("y\x1b[31m")]]), title="t\x1b")
    assert "\x1b" not in capsys.readouterr().out
