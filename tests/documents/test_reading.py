"""Files that hang, end or fill the process that reads them cost one entry each."""

import subprocess
import sys
from pathlib import Path

import pytest

from graphrerank_documents import reading
from graphrerank_documents.document import Block, Document, Link, Section
from graphrerank_documents.reading import ReadFile, read_file, read_files

READER = """
import os, signal, sys, types
from graphrerank_documents import readers, reading
from graphrerank_documents.document import Block, Document, Section

def read(content, name):
    if content == b"wait for ever":
        signal.alarm(60)  # ends the process, and fails the test, if nobody else does
        signal.pause()
    if content == b"end":
        os._exit(11)
    if content == b"fill":
        bytearray(1 << 31)
    if content == b"stumble":
        raise KeyError("x")
    return [Document(name, name, (Section("", (Block(content.decode()),)),))]

module = types.ModuleType("tried")
module.read = read
sys.modules["graphrerank_documents.formats.tried"] = module
readers.READERS[".tried"] = "tried.read"
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, and a reader of ``.tried`` in the processes that read."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "sitecustomize.py").write_text(READER)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "code"), *sys.path])
    (tmp_path / "docs").mkdir()
    return tmp_path / "docs"


def test_a_file_that_breaks_its_process_is_one_entry(source, monkeypatch):
    limits = {len("wait for ever"): 0.5}  # no other file is ended, however slow the machine is
    monkeypatch.setattr(reading, "seconds_for", lambda size: limits.get(size, 600.0))
    contents = ["one", "wait for ever", "two", "end", "three", "fill", "stumble", *(f"more {n}" for n in range(40))]
    for number, content in enumerate(contents):
        (source / f"{number:02}.tried").write_text(content)
    names = [f"{number:02}.tried" for number in range(len(contents))]
    files = list(read_files(source, [*names, "none.tried"], workers=2))
    assert [file.path for file in files] == [*names, "none.tried"]
    reasons = {contents[place]: file.reason for place, file in enumerate(files[:-1]) if file.reason}
    assert reasons == {
        "wait for ever": "takes too long to read",
        "end": "crashes the process that reads it",
        "fill": "needs more than 900 MB of memory",
        "stumble": "cannot be parsed (KeyError)",
    }
    assert files[-1].reason == "No such file or directory"
    read = [file.documents[0].sections[0].blocks[0].text for file in files if not file.reason]
    assert read == [content for content in contents if content not in reasons]


def test_a_record_is_the_file_again():
    block = Block("t", 2, (Link("a.md#b", 3, "path", "link"),), is_whole=True, header="h")
    section = Section("H", (block,), 1, 9, ("a",), ("b",), ("c.d",))
    document = Document("a.md", "A", (section,), ("/x",), "/b", {"f": "a.f"}, {"data URIs": 2})
    file = ReadFile("a.md", "0" * 64, (document,))
    assert ReadFile.from_record(file.record) == file


def test_a_missing_file_has_a_reason(tmp_path):
    assert read_file(tmp_path, "none.txt") == ReadFile("none.txt", "", reason="No such file or directory")


def test_modules_in_the_current_folder_are_not_imported(tmp_path, monkeypatch):
    (tmp_path / "graphrerank").mkdir()
    for name in ("graphrerank/__init__.py", "json.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'run')!r}, 'w')\nraise ImportError\n")
    (tmp_path / "a.md").write_text("# A\n\nText.\n")
    monkeypatch.chdir(tmp_path)
    (file,) = read_files(tmp_path, ["a.md"], workers=1)
    assert not (tmp_path / "run").exists()
    assert file.documents[0].title == "A"


@pytest.mark.parametrize("module", ["reading", "git_reader"])
def test_processes_that_read_load_no_torch(module: str) -> None:
    """Each of them would take seconds, and most of the memory that it may have."""
    code = f"import sys, graphrerank_documents.{module}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
