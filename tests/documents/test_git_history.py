"""Questions from the history of small repositories, whose right labels are known."""

import json
import shutil
import subprocess

import pytest

from graphrerank.cli.main import main
from graphrerank.data.dataset import Dataset
from graphrerank_documents import git_history
from graphrerank_documents.git_history import build_from_git
from graphrerank_documents.git_repository import GitRepository

pytest.importorskip("pygit2", reason="pygit2 is optional")
pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.usefixtures("parses_here"),
]

PUMP = '''"""Pumps."""


def start(pump):
    """Start a pump."""
    pump.on = True
    return pump


def stop(pump):
    """Stop a pump."""
    pump.on = False
    return pump


class Valve:
    """A valve."""

    def open(self):
        """Open the valve."""
        self.is_open = True
        return self

    def close(self):
        """Close the valve."""
        self.is_open = False
        return self
'''
GUIDE = "# Guide\n\nHow to use pumps.\n\n## Limits\n\nNever more than six bar.\n\n## Cleaning\n\nUse water.\n"


class Repository:
    """A repository with commits a minute apart."""

    def __init__(self, folder):
        self.folder, self.minute = folder, 0
        folder.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments):
        date = f"2024-01-01T00:{self.minute:02}:00Z"
        environment = {
            **{"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b.c", "GIT_COMMITTER_NAME": "A", "GIT_AUTHOR_DATE": date},
            **{"GIT_COMMITTER_EMAIL": "a@b.c", "GIT_COMMITTER_DATE": date, "GIT_CONFIG_GLOBAL": "/dev/null"},
            **{"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(self.folder)},
        }
        subprocess.run(["git", "-C", str(self.folder), *arguments], check=True, env=environment, capture_output=True)

    def commit(self, message, **files):
        self.minute += 1
        for name, content in files.items():
            path = self.folder / name.replace("__", ".")
            path.write_text(content)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)


@pytest.fixture
def repository(tmp_path):
    made = Repository(tmp_path / "pumps")
    made.commit("First version of everything", pump__py=PUMP, guide__md=GUIDE)
    pump, guide = PUMP, GUIDE

    def change(message, old, new, *, of="pump"):
        nonlocal pump, guide
        if of == "pump":
            assert pump.count(old) == 1
            pump = pump.replace(old, new)
        else:
            guide = guide.replace(old, new)
        made.commit(message, pump__py=pump, guide__md=guide)

    change(
        "fix(core): a pump that runs cannot start again (#12)",
        "    pump.on = True\n",
        "    pump.on = pump.on or True\n",
    )
    change("State the highest pressure in bar", "six bar", "6 bar", of="guide")
    change("Revert the highest pressure", "6 bar", "six bar", of="guide")
    change("Speed up pump.py by a factor", "pump.on = False", "pump.on = None")
    change("typo", "Open the valve", "Opens the valve")
    change("Closing a valve twice is no error", "        self.is_open = False\n", "        self.is_open = bool(0)\n")
    change("Clean pumps with warm water only", "Use water.", "Use warm water.", of="guide")
    change(
        "New function counts the pumps", "class Valve:", "def count(pumps):\n    return len(pumps)\n\n\nclass Valve:"
    )
    change(
        "Opening a valve returns nothing now",
        "        self.is_open = True\n        return self\n",
        "        self.is_open = True\n",
    )
    change("Name the unit of the pressure limit", "six bar", "six bar (0.6 MPa)", of="guide")
    return made


def judged(folder, split):
    rows = (folder / "qrels" / f"{split}.tsv").read_text().splitlines()[1:]
    texts = {row["_id"]: row["text"] for row in map(json.loads, (folder / "queries.jsonl").read_text().splitlines())}
    return {(texts[query], node) for query, node, _ in (row.split("\t") for row in rows)}


def test_questions_find_what_their_commits_changed(repository, tmp_path):
    card = build_from_git([str(repository.folder)], tmp_path / "data")
    train, val, test = (judged(tmp_path / "data", split) for split in ("train", "val", "test"))
    assert train == {
        ("a pump that runs cannot start again", "pump.py#start"),
        ("State the highest pressure in bar", "guide.md#limits"),
        ("Closing a valve twice is no error", "pump.py#Valve.close"),
        ("Clean pumps with warm water only", "guide.md#cleaning"),
    }
    assert val == {("Opening a valve returns nothing now", "pump.py#Valve.open")}
    assert test == {("Name the unit of the pressure limit", "guide.md#limits")}
    assert card["counts"]["queries"] == 6
    assert card["dropped"] == {
        "revert": 1, "message names a file that it changes": 1, "message of fewer than 3 words": 1,
        "changes no function or section that was there": 1, "first commit": 1,
    }  # fmt: skip
    corpus = (tmp_path / "data" / "corpus.jsonl").read_text()
    assert "def count" in corpus  # the tree is that before the first question of val
    assert "0.6 MPa" not in corpus
    assert set(Dataset.from_folder(tmp_path / "data").splits) == {"train", "val", "test"}


def test_the_newest_commits_are_read(repository, tmp_path):
    card = build_from_git([str(repository.folder)], tmp_path / "data", max_commits=7)
    questions = {text for split in ("train", "val", "test") for text, _ in judged(tmp_path / "data", split)}
    assert questions == {
        "Closing a valve twice is no error",
        "Clean pumps with warm water only",
        "Opening a valve returns nothing now",
        "Name the unit of the pressure limit",
    }
    assert card["dropped"]["older than the newest 7 commits (max_commits)"] == 4


def test_an_interrupted_build_resumes(repository, tmp_path, monkeypatch):
    expected = build_from_git([str(repository.folder)], tmp_path / "expected")
    read = {"changes": [], "passages": []}
    interrupt_after = 2

    def noting(name, method):
        def call(self, items):
            if len(read["passages"]) >= interrupt_after:
                raise KeyboardInterrupt
            read[name] += items
            return method(self, items)

        return call

    for name in read:
        monkeypatch.setattr(GitRepository, name, noting(name, getattr(GitRepository, name)))
    for constant in ("SHARD_COMMITS", "SHARD_VERSIONS"):
        monkeypatch.setattr(git_history, constant, 2)
    with pytest.raises(KeyboardInterrupt):
        build_from_git([str(repository.folder)], tmp_path / "data", downloads=tmp_path / "cache")
    assert not (tmp_path / "data").exists()
    interrupt_after = 1000
    card = build_from_git([str(repository.folder)], tmp_path / "data", downloads=tmp_path / "cache")
    for key in ("tree", "counts", "dropped"):
        assert card[key] == expected[key]
    assert judged(tmp_path / "data", "train") == judged(tmp_path / "expected", "train")
    assert len(read["changes"]) == len(set(read["changes"])) == 11
    assert len(read["passages"]) == len(set(read["passages"])) > 2


def test_other_settings_read_again(repository, tmp_path):
    """The cache of commits depends on what makes a question, and that of files on the length of passages."""
    issues, cache = tmp_path / "issues.jsonl", tmp_path / "cache"
    issues.write_text('{"number": 12, "title": "Pressing the button twice makes noise"}\n')
    build_from_git([str(repository.folder)], tmp_path / "first", downloads=cache)
    build_from_git([str(repository.folder)], tmp_path / "second", downloads=cache, issues=str(issues))
    build_from_git([str(repository.folder)], tmp_path / "third", issues=str(issues))
    assert judged(tmp_path / "second", "train") == judged(tmp_path / "third", "train")
    assert judged(tmp_path / "first", "train") != judged(tmp_path / "second", "train")


def test_titles_of_issues_ask_in_place_of_messages(repository, tmp_path, capsys):
    issues, out = tmp_path / "issues.jsonl", tmp_path / "data"
    issues.write_text('{"number": 12, "title": "Pressing the button twice makes noise"}\n')
    options = ["--from", str(repository.folder), "--out", str(out), "--option", f"issues={issues}"]
    assert main(["build", "git", *options]) == 0
    assert ("Pressing the button twice makes noise", "pump.py#start") in judged(out, "train")
    printed = capsys.readouterr().out
    assert "train: 4 judged queries, 4 judgements" in printed
    assert "dropped 1 x revert" in printed


def test_what_is_no_repository_or_has_no_questions_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="must be the folder of a git repository with commits"):
        build_from_git([str(tmp_path / "empty")], tmp_path / "out")
    made = Repository(tmp_path / "one")
    made.commit("The only commit of all", a__md="# A\n\nText.\n")
    with pytest.raises(ValueError, match="must have at least 3 commits that can be used as questions, got 0"):
        build_from_git([str(made.folder)], tmp_path / "out")
    assert not (tmp_path / "out").exists()
