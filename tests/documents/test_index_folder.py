"""Folders of documents, what reads data set folders on what is made of them, and updates."""

import gzip
import json
import os
import pkgutil

import pytest

from graphrerank.data.dataset import Dataset
from graphrerank_documents import index_folder as module
from graphrerank_documents.grow_index import grow_index
from graphrerank_documents.index_folder import index_folder
from tests.support.documents import edges_of
from tests.support.files import write_files
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


def rows_of(folder):
    return [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]


def test_passages_and_links(documents, tmp_path):
    made = index_folder(documents, tmp_path / "out")
    assert (made.documents, made.passages, made.edges) == (3, 4, 3)
    assert made.unread == {
        ".png: unknown format": ["picture.png"], "hidden": [".hidden.md"], "a symbolic link": ["linked.md"],
    }  # fmt: skip
    assert "4 links within the folder: 3 resolved (1 to a section), 1 broken: api/use.md:7 -> no.md" in str(made)
    rows = rows_of(tmp_path / "out")
    assert [row["_id"] for row in rows] == ["index.md#home", "page.html", "api/use.md#use", "api/use.md#first-steps"]
    assert rows[3]["title"] == "Use > First steps"
    assert rows[3]["metadata"] == {"doc_id": "api/use.md", "chunk_id": 1, "heading": "First steps", "line": 5}
    assert edges_of(tmp_path / "out") == [
        ("index.md#home", "api/use.md#first-steps", "link"),
        ("page.html", "index.md#home", "link"),
        ("api/use.md#first-steps", "index.md#home", "link"),
    ]
    joined = {edge[:2] for edge in named_edges(Dataset.from_folder(tmp_path / "out", adjacency=True).graph)}
    assert joined >= {("api/use.md#use", "api/use.md#first-steps"), ("index.md#home", "page.html")}


def test_a_folder_of_a_website_with_a_file_index_json_is_read(documents, tmp_path):
    (documents / "site").mkdir()
    (documents / "site" / "index.json").write_text('[{"title": "Pump", "content": "A pump."}]')
    made = index_folder(documents, tmp_path / "out")
    assert "a data set folder" not in made.unread
    assert "site/index.json" in (tmp_path / "out" / "corpus.jsonl").read_text()


def test_bad_arguments_leave_nothing(documents, tmp_path):
    with pytest.raises(ValueError, match="`source` must be a folder of documents"):
        index_folder(tmp_path / "none", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="`source` must contain documents"):
        index_folder(tmp_path / "empty", tmp_path / "out")
    (tmp_path / "empty" / "bad.json").write_text("{")
    with pytest.raises(ValueError, match=r"found none in .*empty; not read: 1 x not JSON.* \(bad.json\)"):
        index_folder(tmp_path / "empty", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="`out` must be new or written by `graphrerank index`"):
        index_folder(documents, tmp_path / "empty")


def test_what_cannot_be_read_is_named_and_the_rest_is_read(documents, tmp_path, monkeypatch):
    (documents / "bytes.txt").write_bytes(b"\0\1\2\xff" * 9)
    (documents / "bad.json").write_text("{")
    (documents / "rows.json").write_text('[{"text": "one"}, {"text": " "}, 3]')
    (documents / "only.md").write_text("# Heading\n")
    (documents / " blank.md").write_text("text")
    (documents / "elsewhere").symlink_to(tmp_path)
    os.mkfifo(documents / "pipe.txt")
    index_folder(documents / "api", documents / "made")
    (documents / "closed").mkdir()

    def refusing(inner):
        def call(path, *given, **further):
            if "closed" in str(path) and (inner is not status or not str(path).endswith("closed")):
                raise PermissionError(13, "Permission denied", str(path))
            return inner(path, *given, **further)

        return call

    status = os.stat
    monkeypatch.setattr(os, "scandir", refusing(os.scandir))
    monkeypatch.setattr(os, "stat", refusing(os.stat))
    made = index_folder(documents, tmp_path / "out")
    assert made.unread["no text"] == ["only.md", "rows.json#2", "rows.json#3"]
    assert made.unread["a symbolic link to a folder"] == ["elsewhere"]
    assert made.unread["a data set folder"] == ["made"]
    assert made.unread["not a regular file"] == ["pipe.txt"]
    assert made.unread["folder cannot be opened: Permission denied"] == ["closed"]
    assert made.unread["binary, not a text"] == ["bytes.txt"]
    assert made.unread["not JSON in line 1"] == ["bad.json"]
    assert sum("starts with white space" in reason for reason in made.unread) == 1
    assert "not read: 3 x no text (only.md, rows.json#2, rows.json#3)" in str(made)
    assert "rows.json#1" in Dataset.from_folder(tmp_path / "out").graph.node_ids


def test_an_update_reads_what_changed_and_gives_what_a_new_folder_gives(documents, tmp_path, monkeypatch):
    out = tmp_path / "out"
    index_folder(documents, out)
    (out / "queries.jsonl").write_text('{"_id": "q", "text": "Where does it start?"}\n')
    (out / "drafted.jsonl").write_text(
        '{"text": "kept", "relevant": ["index.md#home"]}\n{"text": "gone", "relevant": ["page.html"]}\n'
    )
    (documents / "page.html").unlink()
    (documents / "new.md").write_text("# New\n\nSee [use](api/use.md).\n")
    (documents / "api" / "use.md").write_text("# Use\n\nText.\n\n## Zeroth step\n\nSit.\n\n## First steps\n\nBack.\n")
    read = []
    monkeypatch.setattr(
        module,
        "read_files",
        lambda *given, inner=module.read_files, **how: (read.append(file) or file for file in inner(*given, **how)),
    )
    made = index_folder(documents, out)
    assert [file.path for file in read] == ["new.md", "api/use.md"]
    assert (made.update.added, made.update.changed, made.update.removed, made.update.kept_passages) == (1, 1, 1, 2)
    assert "files: 1 added, 1 changed, 1 removed; 2 passages unchanged" in str(made)
    index_folder(documents, tmp_path / "fresh")
    for name in ("corpus.jsonl", "edges.tsv", "documents.jsonl.gz"):
        assert (out / name).read_bytes() == (tmp_path / "fresh" / name).read_bytes()
    assert (out / "queries.jsonl").exists()
    assert (out / "drafted.jsonl").read_text() == '{"text": "kept", "relevant": ["index.md#home"]}\n'
    assert not any(path.name.startswith(".out") for path in tmp_path.iterdir())


@pytest.mark.usefixtures("parses_here")
@pytest.mark.parametrize("damage", [b"", b"\x1f\x8b\x08\x00half", gzip.compress(b"x")[:10] + b"\xff" * 40])
def test_a_damaged_record_of_what_was_read_is_read_again(documents, tmp_path, damage):
    index_folder(documents, tmp_path / "out")
    before = (tmp_path / "out" / "corpus.jsonl").read_bytes()
    (tmp_path / "out" / "documents.jsonl.gz").write_bytes(damage)
    index_folder(documents, tmp_path / "out")
    assert (tmp_path / "out" / "corpus.jsonl").read_bytes() == before


@pytest.mark.usefixtures("parses_here")
@pytest.mark.parametrize("damage", [b"{", b'[1]\n"x"\n{}\n', b"\xff\n"])
def test_a_damaged_corpus_is_written_anew(documents, tmp_path, damage):
    made = index_folder(documents, tmp_path / "out")
    before = (tmp_path / "out" / "corpus.jsonl").read_bytes()
    lines = before.splitlines(keepends=True)
    (tmp_path / "out" / "corpus.jsonl").write_bytes(b"".join([*lines[1:], damage]))
    update = index_folder(documents, tmp_path / "out").update
    assert (tmp_path / "out" / "corpus.jsonl").read_bytes() == before
    assert update is not None
    assert update.kept_passages == made.passages - 1


def test_a_folder_without_a_corpus_is_not_replaced(documents, tmp_path):
    website = write_files(tmp_path / "website", {"index.json": "{}", "page.html": "<p>mine</p>"})
    with pytest.raises(ValueError, match="`out` must be new or written by `graphrerank index`"):
        index_folder(documents, website)
    assert (website / "page.html").read_text() == "<p>mine</p>"


def test_a_folder_that_can_be_listed_but_not_entered_is_named(documents, tmp_path, monkeypatch):
    write_files(documents / "listed", {"a.md": "text", "below/b.md": "text", "mkdocs.yml": "site_url: x"})
    real = os.stat

    def status(path, *given, **further):
        if "listed/" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *given, **further)

    monkeypatch.setattr(os, "stat", status)
    monkeypatch.setattr(os, "access", lambda path, mode: "listed" not in str(path))
    made = index_folder(documents, tmp_path / "out")
    assert made.unread["folder cannot be opened: Permission denied"] == ["listed"]
    assert made.documents == 3


@pytest.mark.usefixtures("parses_here")
def test_a_prepared_corpus_follows_its_documents(documents, tmp_path):
    from graphrerank.corpus_store.opening import open_corpus
    from graphrerank.corpus_store.preparation import prepare_corpus

    index_folder(documents, tmp_path / "data")
    prepare_corpus(Dataset.from_folder(tmp_path / "data", edges=["edges.tsv"], adjacency=True), tmp_path / "corpus")
    (documents / "page.html").unlink()
    (documents / "api" / "use.md").write_text("# Use\n\nText.\n\n## First steps\n\nGo [home](../index.md) now.\n")
    _, growth = grow_index(documents, tmp_path / "corpus")
    assert (growth.num_added, growth.num_removed, growth.num_nodes) == (1, 2, 3)
    index_folder(documents, tmp_path / "fresh")
    fresh = Dataset.from_folder(tmp_path / "fresh", edges=["edges.tsv"], adjacency=True).graph
    grown = open_corpus(tmp_path / "corpus").graph
    assert {edge[:2] for edge in named_edges(grown)} == {edge[:2] for edge in named_edges(fresh)}


@pytest.mark.usefixtures("parses_here")
def test_half_a_character_is_replaced(documents, tmp_path):
    (documents / "half.jsonl").write_text('{"title": "T \\ud83d", "text": "half \\ud83d an emoji"}')
    index_folder(documents, tmp_path / "out")
    (row,) = (row for row in rows_of(tmp_path / "out") if row["_id"].startswith("half.jsonl"))
    assert (row["title"], row["text"]) == ("T \N{REPLACEMENT CHARACTER}", "half \N{REPLACEMENT CHARACTER} an emoji")


@pytest.mark.usefixtures("parses_here")
def test_links_are_of_the_passage_that_has_them(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.html").write_text(
        f"<p>{'one ' * 6}<a href='b.html'>b</a></p><p>{'two ' * 6}<a href='c.html'>c</a></p>"
    )
    (folder / "b.html").write_text("<p>B <a href='/c.html?x=1'>c</a> <a href='mailto:a.html'>m</a></p>")
    (folder / "c.html").write_text("<p>C <a href='./'>home</a></p>")
    (folder / "index.md").write_text("# Home\n\n[[C]] [[No]] [b](b)\n")
    index_folder(folder, tmp_path / "out", max_words=8)
    assert edges_of(tmp_path / "out") == [
        ("a.html", "b.html", "link"),
        ("a.html~2", "c.html", "link"),
        ("b.html", "c.html", "link"),
        ("c.html", "index.md#home", "link"),
        ("index.md#home", "c.html", "link"),
        ("index.md#home", "b.html", "link"),
    ]


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("graphrerank_documents.index_folder.passages_of", "cannot be divided into passages (IndexError)"),
        ("graphrerank_documents.index_folder.edge_keys", "cannot be divided into passages (IndexError)"),
        ("graphrerank_documents.symbols.SymbolIndex._add", "read, but its symbols cannot be indexed (IndexError)"),
        ("graphrerank_documents.links._Resolver.find", "read, but links cannot be resolved (IndexError)"),
    ],
)
def test_no_file_ends_the_index(step, reason, documents, tmp_path, monkeypatch):
    owner, _, name = step.rpartition(".")
    owner = pkgutil.resolve_name(owner)
    inner = getattr(owner, name)

    def failing(*arguments, **options):
        arguments_text = str([str(argument) for argument in arguments])
        is_bad = "page.html" in arguments_text or ("find" in step and arguments[1:2] == (page,))
        if is_bad:
            raise IndexError("list index out of range")
        return inner(*arguments, **options)

    page = 1  # number of page.html
    monkeypatch.setattr(owner, name, failing)
    made = index_folder(documents, tmp_path / "out")
    assert made.unread[reason] == ["page.html"]
    assert f"1 x {reason} (page.html)" in str(made)
    assert {row["_id"] for row in rows_of(tmp_path / "out")} >= {"index.md#home", "api/use.md#first-steps"}
    assert ("index.md#home", "api/use.md#first-steps", "link") in edges_of(tmp_path / "out")


@pytest.mark.usefixtures("parses_here")
def test_a_crate_below_two_folders_named_src(tmp_path):
    folder = write_files(
        tmp_path / "docs",
        {
            "README.md": "# Ship\n\nServices.\n",
            "src/freight/src/main.rs": 'mod fee;\n\nfn main() { println!("{} fee::gone(2)", fee::cost(1)); }\n',
            "src/freight/src/fee.rs": "pub fn cost(n: i32) -> i32 { n }\n",
        },
    )
    made = index_folder(folder, tmp_path / "out")
    assert (made.documents, made.unread) == (3, {})
    main, fee = "src/freight/src/main.rs", "src/freight/src/fee.rs"
    assert {(f"{main}#main", f"{fee}#cost", "call"), (main, fee, "import")} <= set(edges_of(tmp_path / "out"))


@pytest.mark.usefixtures("parses_here")
@pytest.mark.parametrize("top", ["", "src/"])
def test_files_without_text_are_packages(top, tmp_path):
    folder = write_files(
        tmp_path / "docs",
        {
            f"{top}plant/__init__.py": "",
            f"{top}plant/run.py": "from plant.pump import Motor, make\n\n\ndef run():\n    return make().go(1)\n\n\n"
            "class Fast(Motor):\n    pass\n",
            f"{top}plant/pump.py": "class Motor:\n    def go(self, n):\n        return n\n\n\n"
            "def make():\n    return Motor()\n",
            "tests/test_pump.py": "from plant.pump import make\n\n\ndef test_make():\n    assert make().go(1) == 1\n",
        },
    )
    made = index_folder(folder, tmp_path / "out")
    assert (made.documents, made.unread) == (3, {"no text": [f"{top}plant/__init__.py"]})
    run, pump, test = f"{top}plant/run.py", f"{top}plant/pump.py", "tests/test_pump.py"
    assert set(edges_of(tmp_path / "out")) >= {
        (run, f"{pump}#make", "import"), (run, f"{pump}#Motor", "import"), (f"{run}#run", f"{pump}#make", "call"),
        (f"{run}#Fast", f"{pump}#Motor", "inherits"), (test, f"{pump}#make", "import"),
        (f"{test}#test_make", f"{pump}#make", "tests"), (f"{pump}#make", f"{pump}#Motor", "call"),
    }  # fmt: skip


@pytest.mark.usefixtures("parses_here")
def test_links_to_files_without_text_are_not_broken(tmp_path):
    files = {
        "a.md": "# A\n\nSee [[Stub]], [empty](empty.md) and [gone](gone.md).\n",
        "Stub.md": "---\ntags: [x]\n---\n",
        "empty.md": "",
    }
    made = index_folder(write_files(tmp_path / "docs", files), tmp_path / "out")
    assert made.links.dead == [("a.md", 3, "gone.md")]
    assert (made.links.within, made.links.resolved, made.edges) == (3, 2, 0)
    assert made.unread == {"no text": ["Stub.md", "empty.md"]}
