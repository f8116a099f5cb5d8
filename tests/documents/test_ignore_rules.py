"""Ignore files mean what they mean to git, which is the oracle."""

import random
import shutil
import subprocess

import pytest

from graphrerank_documents.folder_walk import list_folder
from graphrerank_documents.ignore_rules import IgnoreRules, parse_rules
from graphrerank_documents.selection import FileSelection

FOLDERS = ["a", "b.c", "docs", "docs/a", "docs/a/b.c", "x y", "x y/docs"]
FILES = ["n.md", "m.txt", "a.md", "#h.md", "!k.md", "[q].md", "t .md"]
PATTERNS = [
    *(
        "*.md",
        "/n.md",
        "docs/",
        "docs",
        "/docs/a",
        "a",
        "**/a",
        "a/**",
        "**/b.c/*",
        "docs/**/n.md",
        "!n.md",
        "!docs/a/",
    ),
    *("*", "!*.txt", "[mn].*", "[!m].md", "[^n].md", r"\#h.md", r"\!k.md", r"\[q\].md", "# comment", "", "?.md", "/*"),
    *("x y/", "b.c/n.md", "docs/*", "!docs/*/m.txt", "m.txt  ", "/**/a.md", "*.*", "**", "a/", "*/a.md"),
]


def listed(folder):
    return set(list_folder(folder, folder / "out", FileSelection()).names)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle")
@pytest.mark.parametrize("seed", range(8))
def test_against_git(seed, tmp_path):
    draw = random.Random(seed)
    for place in FOLDERS:
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (tmp_path / place / name).write_text("text")
    for place in ["", *draw.sample(FOLDERS, 3)]:
        lines = draw.sample(PATTERNS, draw.randrange(1, 6))
        (tmp_path / place / ".gitignore").write_text("\n".join(lines))
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    command = ["git", "-C", str(tmp_path), "-c", "core.excludesFile=", "ls-files", "-z", "-o", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    assert listed(tmp_path) == {name for name in names if name and not name.endswith(".gitignore")}
    names = [name.removeprefix("docs/") for name in names if name.startswith("docs/") and not name.endswith("ignore")]
    if names:  # otherwise the whole folder may be ignored, which a user reads by naming it
        assert listed(tmp_path / "docs") == set(names)


def test_many_stars_take_linear_time():
    (rule,) = parse_rules(["*a" * 400 + "b"])
    rules = IgnoreRules([("", (rule,))])
    assert not rules.excludes("a" * 250, is_folder=False)
    assert not IgnoreRules([("", parse_rules(["**/a/" * 200 + "b"]))]).excludes("a/" * 400 + "c", is_folder=False)
    assert parse_rules(["x" * 2000]) == ()
