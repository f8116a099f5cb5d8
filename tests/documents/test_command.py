import json
import os
import subprocess
import sys

import pytest

from graphrerank.cli.main import main
from graphrerank.data.dataset import Dataset

PAGES = {
    "lake.md": "# Lake\n\nThe lake Baikal is deep, and its water freezes in January. See [seal](seal.md).",
    "seal.md": "# Seal\n\nSeals of the lake hunt sculpins below the ice, and rest on islands.",
    "bread.md": "# Bread\n\nBread is baked of flour, water and salt in a hot oven.",
}


@pytest.fixture
def pages(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    for name, text in PAGES.items():
        (folder / name).write_text(text)
    return folder


def test_index(tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\nwords of a")
    assert main(["index", str(tmp_path / "docs"), "--out", str(tmp_path / "data")]) == 0
    shown = capsys.readouterr().out
    assert "1 documents, 1 passages, 0 edges" in shown
    assert "no drafted questions: the passages have too few words" in shown
    assert f"index={tmp_path / 'data'}" in shown
    (tmp_path / "docs" / "b.md").write_text("# B\n\nwords of [a](a.md)")
    assert main(["index", str(tmp_path / "docs"), "--out", str(tmp_path / "data")]) == 0
    shown = capsys.readouterr().out
    assert "files: 1 added, 0 changed, 0 removed; 1 passages unchanged" in shown
    assert "1 link within the folder: 1 resolved" in shown
    assert main(["index", str(tmp_path / "docs"), "--out", str(tmp_path / "docs")]) == 1
    assert "`out` must be new or written by `graphrerank index`" in capsys.readouterr().err


def test_the_folder_is_written_before_anything_is_printed(pages, tmp_path):
    reading, writing = os.pipe()
    os.close(reading)  # as after `graphrerank index ... | head -0`
    command = [sys.executable, "-m", "graphrerank.cli.main", "index", str(pages), "--out", str(tmp_path / "data")]
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run([*command, "--questions", "3"], stdout=pipe, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    assert Dataset.from_folder(tmp_path / "data").graph.num_nodes == 3


def test_a_prepared_corpus_is_brought_up_to_date(pages, tmp_path, capsys):
    data, corpus = str(tmp_path / "data"), str(tmp_path / "corpus")
    assert main(["index", str(pages), "--out", data, "--questions", "0"]) == 0
    assert main(["prepare", corpus, "data=folder", f"data.path={data}", "encoder=none"]) == 0
    (pages / "lake.md").write_text("# Lake\n\nThe lake is shallow.")
    (pages / "bread.md").unlink()
    assert main(["index", str(pages), "--out", corpus]) == 0
    assert f"1 passages added, 2 removed: 2 in {corpus}" in capsys.readouterr().out


def test_a_killed_command_is_run_again(pages, tmp_path, capsys):
    killed = "import os, sys; from graphrerank.cli.main import main; from graphrerank_documents import draft_folder\n"
    killed += "draft_folder.draft_folder = lambda *_, **__: os.kill(os.getpid(), 9)\nmain(sys.argv[1:])"
    command = ["index", str(pages), "--out", str(tmp_path / "data"), "--questions", "3"]
    assert subprocess.run([sys.executable, "-c", killed, *command], capture_output=True).returncode == -9
    assert [path.suffix for path in tmp_path.iterdir() if path != pages] == [".tmp"]
    assert main(command) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"docs", "data"}
    assert {path.name for path in (tmp_path / "data").iterdir()} == {
        *("corpus.jsonl", "edges.tsv", "drafted.jsonl", "documents.jsonl.gz", "index.json")
    }


def test_drafted_questions(pages, tmp_path, capsys):
    out = tmp_path / "data"
    assert main(["index", str(pages), "--out", str(out), "--questions", "40"]) == 0
    rows = [json.loads(line) for line in (out / "drafted.jsonl").read_text().splitlines()]
    assert f"{len(rows)} drafted questions, not asked by users" in capsys.readouterr().out
    assert 10 < len(rows) <= 10 * len(PAGES)
    for row in rows:
        held = " ".join(PAGES[name.partition("#")[0]] for name in row["relevant"])
        assert row["drafted_by"] == "words"
        assert row["kind"] in ("single", "long", "pair", "many")
        assert any(word.lower() in held.lower() for word in row["text"].split())
    assert {"lake.md#lake", "seal.md#seal"} in [set(row["relevant"]) for row in rows]  # along the link
    assert Dataset.from_folder(out).splits == {}  # nothing takes them for judged
    assert main(["index", str(pages), "--out", str(tmp_path / "none"), "--questions", "0"]) == 0
    assert not (tmp_path / "none" / "drafted.jsonl").exists()
    assert main(["index", str(pages), "--out", str(tmp_path / "no"), "--questions", "-1"]) == 1
    assert "`--questions` must not be negative, got -1" in capsys.readouterr().err


def test_a_language_model_writes_them(pages, tmp_path, capsys, endpoint, monkeypatch):
    pytest.importorskip("httpx", reason="httpx is optional")
    monkeypatch.setenv("GRAPHRERANK_CACHE", str(tmp_path / "cache"))

    def answer(self, question, echo):
        written = {"question": f"What of {question.count('- ')} passages?"}
        return {"choices": [{"message": {"content": json.dumps(written)}}]}

    endpoint[1].answer = answer
    asks = ["--questions", "8", "--language-model", "m", "--endpoint", endpoint[0]]
    assert main(["index", str(pages), "--out", str(tmp_path / "data"), *asks]) == 0
    rows = [json.loads(line) for line in (tmp_path / "data" / "drafted.jsonl").read_text().splitlines()]
    assert rows
    for row in rows:
        assert row["text"] == f"What of {len(row['relevant'])} passages?"
        assert row["drafted_by"] == "m"
    count = len(endpoint[1].requests)
    assert main(["index", str(pages), "--out", str(tmp_path / "again"), *asks]) == 0
    assert (tmp_path / "again" / "drafted.jsonl").read_bytes() == (tmp_path / "data" / "drafted.jsonl").read_bytes()
    assert len(endpoint[1].requests) == count  # answers are kept


def test_a_language_model_without_its_package_is_refused_before_anything_is_read(pages, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    assert main(["index", str(pages), "--out", str(tmp_path / "data"), "--language-model", "m"]) == 1
    assert "pip install 'graphrerank[llm]'" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
