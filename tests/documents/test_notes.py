"""Vaults of notes: titles by the names of files, and links in properties."""

import json
from pathlib import Path

import pytest

from graphrerank_documents.document import Block, Document, Link, Section
from graphrerank_documents.index_folder import index_folder
from graphrerank_documents.notes import is_vault, vault_note
from tests.support.documents import edges_of
from tests.support.files import write_files

pytestmark = pytest.mark.usefixtures("parses_here")


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    (folder / ".obsidian").mkdir(parents=True)
    return folder


def titles_and_edges(folder: Path, out: Path) -> tuple[list[str], set[tuple[str, str]], str]:
    made = index_folder(folder, out)
    rows = [json.loads(line) for line in (out / "corpus.jsonl").read_text().splitlines()]
    edges = out / "edges.tsv"
    lines = edges.read_text().splitlines()[1:] if edges.exists() else []
    return [row["title"] for row in rows], {tuple(line.split("\t")[:2]) for line in lines}, str(made)


def test_the_name_of_a_note_is_in_every_title(vault: Path, tmp_path: Path) -> None:
    (vault / "2024-05-01.md").write_text("# Tasks\n\n- [ ] call\n\n# Notes\n\nMet [[Ada Lovelace]] at noon.\n")
    (vault / "Ada Lovelace.md").write_text("# Life\n\nBorn in 1815.\n\n# Work\n\nWrote notes.\n")
    (vault / "Pump.md").write_text("Text before a heading.\n\n## Parts\n\nA seal.\n")
    (vault / "202401.md").write_text("# Water\n\nWet.\n\n## Ice\n\nCold.\n")
    titles, edges, _ = titles_and_edges(vault, tmp_path / "out")
    assert titles == [
        *("2024-05-01 > Tasks", "2024-05-01 > Notes", "202401 > Water", "202401 > Water > Ice"),
        *("Ada Lovelace > Life", "Ada Lovelace > Work", "Pump", "Pump > Parts"),
    ]
    assert edges == {("2024-05-01.md#notes", "Ada Lovelace.md#life")}


def test_headings_of_one_level_are_siblings_outside_a_vault(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "guide.md").write_text("# Install\n\nRun it.\n\n# Use\n\n## Start\n\nNow.\n")
    (folder / "tour.md").write_text("## One\n\nA.\n\n## Two\n\nB.\n")
    (folder / "pump.md").write_text("# Pump\n\nA.\n\n## Parts\n\nB.\n\n## Use\n\nC.\n")
    (folder / "said.md").write_text("---\ntitle: Said\n---\n# One\n\nA.\n\n# Two\n\nB.\n")
    titles, _, _ = titles_and_edges(folder, tmp_path / "out")
    assert titles == [
        *("guide > Install", "guide > Start", "Pump", "Pump > Parts", "Pump > Use"),
        *("Said > One", "Said > Two", "tour > One", "tour > Two"),
    ]


def test_links_in_properties(vault: Path, tmp_path: Path) -> None:
    (vault / "Pump.md").write_text(
        '---\nmaker: "[[Ada Lovelace|Ada]]"\nrelated:\n  - "[[Valve#Use]]"\n  - [[Seal]]\nparts: [[Gone]]\n'
        'cover: "![[pump.png]]"\nmatrix: [[1, 2]]\n---\nA pump.\n'
    )
    (vault / "Ada Lovelace.md").write_text("---\naliases: ['[[Countess]]', Ada Byron]\n---\nA person.\n")
    (vault / "Valve.md").write_text("# Valve\n\nIt shuts.\n\n## Use\n\nTurn it.\n")
    (vault / "Seal.md").write_text("---\nof: '[[Pump]]'\nmade by: [[Countess]]\nsize: 5\n---\n")
    titles, edges, account = titles_and_edges(vault, tmp_path / "out")
    assert edges == {
        ("Pump.md", "Ada Lovelace.md"),
        ("Pump.md", "Valve.md#use"),
        ("Pump.md", "Seal.md"),
        ("Seal.md", "Pump.md"),
        ("Seal.md", "Ada Lovelace.md"),
    }
    assert "6 links within the folder: 5 resolved (1 to a section), 1 broken: Pump.md:6 -> Gone" in account
    assert "Seal" in titles
    rows = [json.loads(line) for line in (tmp_path / "out" / "corpus.jsonl").read_text().splitlines()]
    assert next(row["text"] for row in rows if row["_id"] == "Seal.md") == "of: Pump\nmade by: Countess\nsize: 5"


def test_lists_of_lists_are_no_links(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text('+++\ntitle = "A"\n[[params]]\nto = "[[b]]"\n+++\nText.\n')
    (tmp_path / "docs" / "b.md").write_text('{"title": "B", "n": [["a"]], "m": [[1]]}\nText.\n')
    _, edges, account = titles_and_edges(tmp_path / "docs", tmp_path / "out")
    assert edges == {("a.md", "b.md")}
    assert "1 link within the folder: 1 resolved" in account


def test_a_vault_is_recognised_by_its_links() -> None:
    def page(kind: str, target: str, count: int, name: str = "a.md") -> Document:
        return Document(name, "A", (Section("", (Block("x", links=(Link(target, kind=kind),) * count),)),))

    assert is_vault([page("page", "B", 6), page("page", "B", 4, "b.md"), page("path", "http://b", 90)])
    assert not is_vault([page("page", "B", 9)])
    assert not is_vault([page("page", "B", 10), page("path", "b.md", 10)])
    assert not is_vault([page("page", "B", 10, "a.org")])


@pytest.mark.parametrize(
    ("name", "title", "expected"),
    [
        ("a/Pump.md", "Pump", "Pump"),
        ("a/Pump.md", "The pump", "Pump > The pump"),
        ("a/README.md", "a", "README"),
        ("a/pump.md", "Pump", "Pump"),
        ("a/pump.html", "The pump", "The pump"),
        ("a/pump.md#1", "Record", "Record"),
    ],
)
def test_titles(name: str, title: str, expected: str) -> None:
    assert vault_note(Document(name, title, ())).title == expected


def test_tags_of_logseq_lead_to_pages_of_their_name(tmp_path):
    files = {
        "pages/Pump.md": "- It pumps.\n",
        "pages/Big Tank.md": "- It holds.\n",
        "pages/area___valve.md": "- It closes.\n",
        "journals/2024_05_01.md": "- See #pump, (#[[Big Tank]]) and #unknown `#code`\n\n- tags:: area/valve, other\n",
        "notes/b.md": "Look at #pump.\n",
    }
    made = index_folder(write_files(tmp_path / "source", files), tmp_path / "out", workers=1)
    edges = {edge[:2] for edge in edges_of(tmp_path / "out")}
    pages = ("Pump", "Big Tank", "area___valve")
    assert edges == {("journals/2024_05_01.md", f"pages/{page}.md") for page in pages}
    assert (made.links.within, made.links.resolved) == (3, 3)


def test_a_link_in_obsidian_does_not_lead_to_a_note_with_that_heading(vault, tmp_path):
    files = {
        "Book.md": "---\naliases: [The book]\n---\n## Quotes\n\nA text.\n",
        "a.md": "[[Quotes]] [[The book]] [[Named]]\n",
        "b.md": "---\ntitle: Named\n---\nText.\n",
    }
    for name, text in files.items():
        (vault / name).write_text(text)
    index_folder(vault, tmp_path / "out", workers=1)
    rows = [row.split("\t")[:2] for row in (tmp_path / "out" / "edges.tsv").read_text().splitlines()[1:]]
    assert [target for source, target in rows if source == "a.md"] == ["Book.md#quotes", "b.md"]
