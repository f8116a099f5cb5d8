"""What is left out of an index, why, and how it is read all the same."""

import json

import pytest

from graphrerank.cli.main import main
from graphrerank_documents.index_folder import index_folder
from graphrerank_documents.selection import INSTALLED, FileSelection, usual_file_reason, usual_folder_reason
from tests.support.files import write_files

pytestmark = pytest.mark.usefixtures("parses_here")

FILES = {
    ".gitignore": "kept_apart/\n*.draft.md\n/secret.md\n",
    "README.md": "# Pump\n\nSee [use](guide/use.md), [built](dist/view.js) and [apart](kept_apart/p.md).\n",
    "guide/use.md": "# Use\n\nStart it.\n",
    "guide/.gitignore": "*.txt\n!good.txt\n",
    "guide/bad.txt": "bad",
    "guide/good.txt": "good",
    "guide/secret.md": "# Not the one at the top\n\nText.\n",
    "kept_apart/p.md": "# P\n\nText.\n",
    "one.draft.md": "# Draft\n\nText.\n",
    "secret.md": "# Secret\n\nText.\n",
    "package-lock.json": '{"name": "x", "text": "lock"}',
    "node_modules/left/README.md": "# Left\n\nText.\n",
    "venv/lib/y.py": "def y(): ...\n",
    "dist/view.js": "function view() { return 1; }\n",
    "target/doc/z.html": "<p>doc</p>",
    "view.min.js": "function view(){return 1}",
    ".github/notes.md": "# Notes\n\nText.\n",
}
READ = ["README.md", "guide/good.txt", "guide/secret.md", "guide/use.md"]


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path / "docs", FILES)


def names_of(out):
    rows = map(json.loads, (out / "corpus.jsonl").read_text().splitlines())
    return sorted({row["metadata"]["doc_id"] for row in rows})


def test_what_was_not_written_by_hand_is_left_out_and_counted(folder, tmp_path):
    made = index_folder(folder, tmp_path / "out")
    assert names_of(tmp_path / "out") == READ
    assert {reason: (each.names, each.num_files) for reason, each in made.left_out.items()} == {
        "named by .gitignore": (["kept_apart/", "one.draft.md", "secret.md", "guide/bad.txt"], 4),
        "installed or built": (["dist/", "node_modules/", "target/", "venv/"], 4),
        "lock file": (["package-lock.json"], 1),
        "generated": (["view.min.js"], 1),
    }
    assert made.unread["hidden"] == [".github/", ".gitignore", "guide/.gitignore"]
    assert (
        "left out: 10 files: 1 generated (view.min.js); 4 installed or built (dist/, node_modules/, target/, ...); "
        in str(made)
    )
    assert "--include PATTERN or --all reads them" in str(made)
    assert json.loads((tmp_path / "out" / "index.json").read_text())["left_out"]["lock file"]["num_files"] == 1
    assert made.links.dead == []  # files that are left out exist


@pytest.mark.parametrize(
    ("selection", "more", "fewer"),
    [
        (FileSelection(exclude=("guide/",)), [], READ[1:]),
        (FileSelection(exclude=("*.txt", "/README.md")), [], READ[:2]),
        (FileSelection(include=("kept_apart/",)), ["kept_apart/p.md"], []),
        (FileSelection(include=("node_modules/left/README.md",)), ["node_modules/left/README.md"], []),
        (FileSelection(include=("node_modules/", ".github/")), [".github/notes.md", "node_modules/left/README.md"], []),
        (FileSelection(include=("*.draft.md",), exclude=("one*",)), [], []),
        (
            FileSelection(everything=True, exclude=("venv/",)),
            [name for name in FILES if not name.endswith(".gitignore") and not name.startswith("venv")],
            [],
        ),
    ],
)  # fmt: skip
def test_options(selection, more, fewer, folder, tmp_path):
    index_folder(folder, tmp_path / "out", selection=selection)
    assert set(names_of(tmp_path / "out")) == (set(READ) | set(more)) - set(fewer)


def test_options_of_the_command(folder, tmp_path, capsys):
    out = str(tmp_path / "out")
    options = ["--exclude", "guide/", "--include", "kept_apart/", "--include", "secret.md", "--questions", "0"]
    assert main(["index", str(folder), "--out", out, *options]) == 0
    assert names_of(tmp_path / "out") == ["README.md", "kept_apart/p.md", "secret.md"]
    assert "5 named by --exclude (guide/)" in capsys.readouterr().out
    assert main(["index", str(folder), "--out", out, "--all", "--questions", "0"]) == 0
    assert set(names_of(tmp_path / "out")) == {name for name in FILES if not name.endswith(".gitignore")}


def test_pages_in_a_folder_named_build_are_documents():
    pages, code = (lambda: ["index.md", "a.js"]), (lambda: ["a.js"])
    assert usual_folder_reason("build", ["README.md"], pages) == ""
    assert usual_folder_reason("build", ["package.json"], pages) == INSTALLED
    assert usual_folder_reason("build", ["README.md"], code) == INSTALLED
    assert usual_folder_reason("build", ["go.mod"], lambda: ["build.go", "README.md"]) == ""
    assert usual_folder_reason("venv", [], lambda: ["__init__.py"]) == ""
    assert usual_folder_reason("dist", [], lambda: ["view.d.ts"]) == INSTALLED
    assert usual_folder_reason("vendor", [], lambda: ["modules.txt"]) == INSTALLED
    assert usual_folder_reason("vendor", [], pages) == ""
    assert usual_folder_reason("env", [], lambda: ["pyvenv.cfg"]) == INSTALLED
    assert usual_file_reason("yarn.lock") == "lock file"
    assert usual_file_reason("Cargo.toml") == ""
