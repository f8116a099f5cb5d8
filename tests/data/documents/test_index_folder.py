"""Folders of documents, and what reads data set folders on what is made of them."""

import json
import os

import pytest

from graphrerank.data.dataset import Dataset
from graphrerank.data.documents.index_folder import index_folder
from tests.support.graphs import named_edges


@pytest.fixture
def documents(tmp_path):
    folder = tmp_path / "docs"
    (folder / "api").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "x.md").write_text("no")
    (folder / "index.md").write_text(
        "# Home\n\nGo to [start](api/use.md#first-steps), [home](index.md), [out](http://a/b.md).\n"
    )
    (folder / "api" / "use.md").write_text(
        "# Use\n\nText.\n\n## First steps\n\nBack [home](../index.md) [gone](no.md).\n"
    )
    (folder / "page.html").write_text("<title>P</title><p>See <a href='index.md'>home</a>.</p>")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / ".hidden.md").write_text("no")
    (folder / "linked.md").symlink_to(folder / "index.md")
    return folder


def test_passages_places_and_links(documents, tmp_path):
    made = index_folder(documents, tmp_path / "out")
    assert (made.documents, made.chunks, made.links) == (3, 4, 3)
    assert made.unread == {
        ".png: no known format": ["picture.png"], "hidden": [".hidden.md"], "a link of the file system": ["linked.md"],
    }  # fmt: skip
    rows = [json.loads(line) for line in (tmp_path / "out" / "corpus.jsonl").read_text().splitlines()]
    assert [row["_id"] for row in rows] == ["index.md:0", "page.html:0", "api/use.md:0", "api/use.md:1"]
    assert rows[3]["title"] == "Use - First steps"
    assert rows[3]["metadata"] == {"doc_id": "api/use.md", "chunk_id": 1, "heading": "First steps"}
    lines = (tmp_path / "out" / "edges.tsv").read_text().splitlines()
    assert lines[1:] == [
        "index.md:0\tapi/use.md:1\tlink",
        "page.html:0\tindex.md:0\tlink",
        "api/use.md:1\tindex.md:0\tlink",
    ]
    joined = {edge[:2] for edge in named_edges(Dataset.from_folder(tmp_path / "out", adjacency=True).graph)}
    assert joined >= {("api/use.md:0", "api/use.md:1"), ("index.md:0", "page.html:0")}


def test_bad_arguments_leave_nothing(documents, tmp_path):
    with pytest.raises(ValueError, match="`source` must be a folder of documents"):
        index_folder(tmp_path / "none", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="`source` must hold documents"):
        index_folder(tmp_path / "empty", tmp_path / "out")
    (tmp_path / "empty" / "bad.json").write_text("{")
    with pytest.raises(ValueError, match=r"found no text in .*empty; not read: 1 x not JSON \(bad.json\)"):
        index_folder(tmp_path / "empty", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="`out` must not exist"):
        index_folder(documents, tmp_path / "empty")


def test_what_cannot_be_read_is_named_and_the_rest_is_read(documents, tmp_path):
    (documents / "old.txt").write_bytes(b"caf\xe9")
    (documents / "bad.json").write_text("{")
    (documents / "rows.json").write_text('[{"text": "one"}, {"text": " "}, 3]')
    (documents / "only.md").write_text("# Heading\n")
    (documents / " blank.md").write_text("text")
    made = index_folder(documents, tmp_path / "out")
    assert made.unread["not UTF-8"] == ["old.txt"]
    assert made.unread["not JSON"] == ["bad.json"]
    assert made.unread["no text"] == ["only.md", "rows.json#2", "rows.json#3"]
    assert sum("begins with a blank" in reason for reason in made.unread) == 1
    assert "not read: 3 x no text (only.md, rows.json#2, rows.json#3)" in str(made)
    assert "rows.json#1:0" in Dataset.from_folder(tmp_path / "out").graph.node_ids


def test_a_pipe_is_not_read_and_half_a_character_is_replaced(documents, tmp_path):
    os.mkfifo(documents / "pipe.txt")
    (documents / "half.jsonl").write_text('{"title": "T \\ud83d", "text": "half \\ud83d an emoji"}')
    made = index_folder(documents, tmp_path / "out")
    assert made.unread["no regular file"] == ["pipe.txt"]
    rows = [json.loads(line) for line in (tmp_path / "out" / "corpus.jsonl").read_text().splitlines()]
    (row,) = (row for row in rows if row["_id"].startswith("half.jsonl"))
    assert (row["title"], row["text"]) == ("T \N{REPLACEMENT CHARACTER}", "half \N{REPLACEMENT CHARACTER} an emoji")


def test_links_are_of_the_passage_that_has_them(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.html").write_text(
        f"<p>{'one ' * 6}<a href='b.html'>b</a></p><p>{'two ' * 6}<a href='c.html'>c</a></p>"
    )
    (folder / "b.html").write_text("<p>B <a href='/c.html?x=1#y'>c</a> <a href='mailto:a.html'>m</a></p>")
    (folder / "c.html").write_text("<p>C <a href='./'>home</a></p>")
    (folder / "index.md").write_text("# Home\n\n[[C]] [[No]] [b](b)\n")
    index_folder(folder, tmp_path / "out", max_words=8)
    lines = (tmp_path / "out" / "edges.tsv").read_text().splitlines()
    assert lines[1:] == [
        "a.html:0\tb.html:0\tlink",
        "a.html:1\tc.html:0\tlink",
        "b.html:0\tc.html:0\tlink",
        "c.html:0\tindex.md:0\tlink",
        "index.md:0\tc.html:0\tlink",
        "index.md:0\tb.html:0\tlink",
    ]


def test_passages_repeat_no_long_names(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.html").write_text(f"<title>{'t' * 5000}</title><h1>{'h' * 5000}</h1>{'word ' * 300}")
    index_folder(tmp_path / "docs", tmp_path / "out")
    rows = [json.loads(line) for line in (tmp_path / "out" / "corpus.jsonl").read_text().splitlines()]
    assert [row["title"] for row in rows] == [f"{'t' * 1000} - {'h' * 1000}"] * 2
