"""Repositories that were made to write, hang or end the command that reads them."""

import json
import os
import sys
from pathlib import Path

import pytest

from graphrerank_documents import reading
from graphrerank_documents.git_history import build_from_git
from tests.documents.test_reading import READER

pygit2 = pytest.importorskip("pygit2", reason="pygit2 is optional")

FILE, LINK, FOLDER, MODULE = "100644", "120000", "40000", "160000"
GUIDE = "# Guide\n\nHow to use pumps.\n\n## Limits\n\nNever more than {} bar.\n"
Entry = tuple[str, bytes, object]  # mode, name and blob or tree


class Repository:
    """A bare repository whose trees are written byte by byte, so that their names are not checked."""

    def __init__(self, folder: Path) -> None:
        self.git = pygit2.init_repository(str(folder), bare=True)
        self.folder, self.parents = folder, list[object]()

    def blob(self, text: str | bytes) -> object:
        return self.git.create_blob(text.encode() if isinstance(text, str) else text)

    def tree(self, *entries: Entry) -> object:
        entries = sorted(entries, key=lambda entry: entry[1] + b"/" * (entry[0] == FOLDER))  # as git looks them up
        content = b"".join(mode.encode() + b" " + name + b"\0" + id_.raw for mode, name, id_ in entries)
        return self.git.write(pygit2.enums.ObjectType.TREE, content)

    def commit(self, message: str, tree: object) -> None:
        author = pygit2.Signature("A", "a@b.c", 1_700_000_000 + 60 * len(self.parents), 0)
        before = self.parents[-1:]
        self.parents.append(self.git.create_commit("refs/heads/main", author, author, message, tree, before))
        self.git.set_head("refs/heads/main")

    def history(self, *entries: Entry, versions: int = 5) -> Path:
        """Commit versions of a guide next to the entries; return the folder."""
        for number in range(versions):
            guide = self.blob(GUIDE.format(number))
            self.commit(f"The highest pressure is {number} bar now", self.tree((FILE, b"guide.md", guide), *entries))
        return self.folder


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "pumps.git")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds the temporary folder, in which nothing else may appear."""
    (tmp_path / "work" / "tmp").mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "work" / "tmp"))
    return tmp_path / "work"


def ids(folder: Path) -> list[str]:
    return [json.loads(line)["_id"] for line in (folder / "corpus.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", [b"../../relative.py", b"/absolute", b"../relative.py"])
def test_a_file_of_a_tree_is_not_written_elsewhere(
    repository: Repository, workplace: Path, tmp_path: Path, name: bytes
) -> None:
    target = os.fsencode(workplace / "absolute.py") if name == b"/absolute" else name
    folder = repository.history((FILE, target, repository.blob("print('run by the next Python')\n")))
    build_from_git([str(folder)], tmp_path / "data")
    assert [path.name for path in tmp_path.rglob("*.py")] == []


def test_no_name_of_a_tree_leads_out_of_the_output(repository: Repository, workplace: Path, tmp_path: Path) -> None:
    code = repository.blob("print('run by the next Python')\n")
    above = repository.tree((FILE, b"sitecustomize.py", code), (FOLDER, b"..", repository.tree((FILE, b"e.py", code))))
    absolute = os.fsencode(workplace / "absolute.py")
    folder = repository.history(
        (FILE, b"../../relative.py", code),
        (FILE, absolute, code),
        (FILE, b"a/b.py", code),
        (FILE, b"C:\\x.py", code),
        (FILE, b"a\\b.py", code),
        (FILE, b".git", code),
        (FOLDER, b"..", above),
        (FOLDER, b".", above),
        (FOLDER, b"../..", above),
        (FOLDER, os.fsencode(workplace), above),
        (FOLDER, b".git", repository.tree((FILE, b"hook.py", code))),
        (FOLDER, b"src", repository.tree((FOLDER, b"../../..", above), (FILE, b"pump.py", code))),
        (LINK, b"link.md", repository.blob("/etc/passwd")),
        (MODULE, b"module", repository.git[repository.blob("x")].id),
    )
    build_from_git([str(folder)], tmp_path / "data")
    written = [path.relative_to(workplace).as_posix() for path in workplace.rglob("*")]
    assert written == ["tmp"]
    assert not (tmp_path / "relative.py").exists()
    assert ids(tmp_path / "data") == ["guide.md#guide", "guide.md#limits", "src/pump.py"]


def test_a_name_that_is_no_name_is_listed_as_not_read(repository: Repository, tmp_path: Path) -> None:
    code = repository.blob("x = 1\n")
    build_from_git([str(repository.history((FILE, b"../x.py", code), (FILE, b"..", code)))], tmp_path / "data")
    account = json.loads((tmp_path / "data" / "index.json").read_text())
    assert account["unread"] == {"invalid file name": ["..", "../x.py"]}


def test_a_name_that_is_there_twice_is_read_once(repository: Repository, tmp_path: Path) -> None:
    first, second = repository.blob("# One\n\nFirst.\n"), repository.blob("# Two\n\nSecond.\n")
    build_from_git([str(repository.history((FILE, b"a.md", first), (FILE, b"a.md", second)))], tmp_path / "data")
    texts = [json.loads(line) for line in (tmp_path / "data" / "corpus.jsonl").read_text().splitlines()]
    assert [row["text"] for row in texts if row["_id"].startswith("a.md")] == ["First."]


@pytest.mark.slow  # 300,000 entries a second
def test_trees_that_hold_each_other_without_end_are_refused(repository: Repository, tmp_path: Path) -> None:
    tree = repository.tree((FILE, b"a.md", repository.blob("# A\n\nText.\n")))
    for _ in range(12):  # 10^12 files in 13 objects
        tree = repository.tree(*((FOLDER, b"%d" % number, tree) for number in range(10)))
    with pytest.raises(ValueError, match="more than 1,000,000 files"):
        build_from_git([str(repository.history((FOLDER, b"bomb", tree)))], tmp_path / "data")


def test_deep_trees_are_listed_to_a_depth(repository: Repository, tmp_path: Path) -> None:
    tree = repository.tree((FILE, b"a.md", repository.blob("# A\n\nText.\n")))
    for _ in range(3000):
        tree = repository.tree((FOLDER, b"d", tree))
    build_from_git([str(repository.history((FOLDER, b"deep", tree)))], tmp_path / "data")
    assert ids(tmp_path / "data") == ["guide.md#guide", "guide.md#limits"]


def test_versions_that_hang_end_or_fill_their_process_cost_their_questions(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "sitecustomize.py").write_text(READER)
    monkeypatch.setattr("sys.path", [str(tmp_path / "code"), *sys.path])
    monkeypatch.setattr(reading, "SECONDS", 10.0)
    monkeypatch.setattr(reading, "SECONDS_PER_MB", 0.0)
    contents = ["one", "wait for ever", "two", "end", "three", "fill", "four", "five", "six", "seven", "last"]
    for number, content in enumerate(contents):
        guide = repository.blob(GUIDE.format(number))
        tried = repository.blob(content)
        repository.commit(
            f"The file holds text number {number}",
            repository.tree((FILE, b"guide.md", guide), (FILE, b"a.tried", tried)),
        )
    card = build_from_git([str(repository.folder)], tmp_path / "data", workers=2)
    # the versions "wait for ever" and "end" fail
    assert card["dropped"] == {"changes a file that cannot be read": 2, "first commit": 1}
    assert card["counts"]["queries"] == len(contents) - 3
