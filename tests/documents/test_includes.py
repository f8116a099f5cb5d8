"""Files that pages include: what an RST file includes is RST, and nothing outside the folder is opened."""

import json
from pathlib import Path

import pytest

from graphrerank_documents import index_folder as module
from graphrerank_documents.document import Document
from graphrerank_documents.includes import included_paths, includers_of
from graphrerank_documents.index_folder import IndexedFolder, index_folder
from graphrerank_documents.reading import read_content
from tests.support.documents import edges_of
from tests.support.files import write_files

pytestmark = pytest.mark.usefixtures("parses_here")

PAGES = {
    "includes/install.txt": ".. _bundles:\n\nBundles\n-------\n\nInstall ``x[redis]``, see :doc:`/faq`.\n",
    "index.rst": "Start\n=====\n\n.. include:: includes/install.txt\n\n.. toctree::\n\n   faq\n",
    "faq.rst": "FAQ\n===\n\nWhich extras? See :ref:`bundles`. Use a :keyword:`with` statement.\n",
}


def indexed(
    folder: Path, files: dict[str, str], out: Path
) -> tuple[IndexedFolder, dict[str, str], set[tuple[str, str]]]:
    made = index_folder(write_files(folder, files), out)
    rows = [json.loads(line) for line in (out / "corpus.jsonl").read_text().splitlines()]
    return made, {row["_id"]: row["text"] for row in rows}, {(source, target) for source, target, _ in edges_of(out)}


def test_what_an_rst_file_includes_is_rst(tmp_path: Path) -> None:
    made, texts, edges = indexed(tmp_path / "docs", PAGES, tmp_path / "out")
    assert texts["includes/install.txt#bundles"] == "Install x[redis], see faq."
    assert texts["faq.rst#faq"] == "Which extras? See bundles. Use a with statement."
    assert edges == {
        ("faq.rst#faq", "includes/install.txt#bundles"),
        ("index.rst#start", "includes/install.txt#bundles"),
        ("index.rst#start", "faq.rst#faq"),
        ("includes/install.txt#bundles", "faq.rst#faq"),
    }
    assert made.links.dead == []


def test_files_of_any_suffix_and_includes_in_included_files(tmp_path: Path) -> None:
    files = {
        "a/index.rst": "Start\n=====\n\n.. include:: /shared/one.inc\n",
        "shared/one.inc": "One ``a`` and :doc:`near`.\n\n.. include:: two.txt\n",
        "shared/two.txt": ".. _two:\n\nTwo ``b``.\n",
        "a/near.rst": "Near\n====\n\nSee :ref:`the second <two>`.\n",
        "shared/three.inc": "Not included.\n",
        "a/code.rst": "Code\n====\n\n.. include:: ../four.txt\n   :literal:\n",
        "four.txt": "``four``\n",
    }
    made, texts, edges = indexed(tmp_path / "docs", files, tmp_path / "out")
    assert texts["shared/one.inc"] == "One a and near.\n\ntwo.txt"
    assert texts["shared/two.txt"] == "Two b."
    assert texts["four.txt"] == "``four``"
    assert ("shared/one.inc", "a/near.rst#near") in edges  # relative to the file that includes it
    assert ("a/near.rst#near", "shared/two.txt") in edges
    assert made.unread == {".inc: unknown format": ["shared/three.inc"]}


def test_an_update_equals_a_new_folder(tmp_path: Path) -> None:
    folder, out = tmp_path / "docs", tmp_path / "out"
    indexed(folder, PAGES, out)
    assert indexed(folder, {}, out)[1:] == indexed(folder, {}, tmp_path / "again")[1:]
    changed = indexed(folder, {"index.rst": "Start\n=====\n\nNothing is included.\n"}, out)
    assert "``x[redis]``" in changed[1]["includes/install.txt"]
    assert changed[1:] == indexed(folder, {}, tmp_path / "new")[1:]


def test_nothing_outside_the_folder_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret.inc"
    secret.write_text("A secret.\n")
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "linked.inc").symlink_to(secret)
    (folder / ".hidden.inc").write_text("A secret.\n")
    (folder / "large.inc").write_text("A secret.\n" * 20)
    monkeypatch.setattr(module, "MAX_BYTES", 100)
    monkeypatch.setattr("graphrerank_documents.sources.MAX_BYTES", 100)
    page = f"A\n=\n\n.. include:: ../secret.inc\n\n.. include:: {secret}\n"
    more = "".join(f"\n.. include:: {name}\n" for name in ("linked.inc", ".hidden.inc"))
    _, texts, _ = indexed(
        folder, {"a.rst": page, "b.rst": "B\n=\n" + more, "c.rst": "C\n=\n\n.. include:: large.inc\n"}, tmp_path / "out"
    )
    assert not any("A secret" in text for text in texts.values())


def test_circles_end(tmp_path: Path) -> None:
    files = {
        "a.rst": "A\n=\n\n.. include:: b.inc\n",
        "b.inc": "B.\n\n.. include:: c.inc\n",
        "c.inc": "C.\n\n.. include:: b.inc\n",
    }
    _, texts, _ = indexed(tmp_path / "docs", files, tmp_path / "out")
    assert {"b.inc", "c.inc"} <= texts.keys()


def test_includers() -> None:
    pages = [Document("a.rst", "A", (), includes=("b.txt", "none.txt")), Document("b.txt", "B", ())]
    assert includers_of(pages) == {1: [0]}
    assert list(included_paths(pages[0], {"b.txt"})) == ["b.txt"]


def test_a_content_in_another_format() -> None:
    file = read_content(b".. _a:\n\nText ``b``.\n", "a.txt", ".rst")
    assert (file.read_as, file.documents[0].sections[0].labels) == (".rst", ("a",))
