"""What each format shows, as somebody who reads the file would say."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphrerank.data.documents.old_formats import FORMATS, Document, UnreadableError, divide

Read = Callable[[str, str], list[Document]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a text as a file of a name."""

    def read_content(name: str, content: str) -> list[Document]:
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return FORMATS[path.suffix](path, name)

    return read_content


def test_encodings_that_a_file_names(tmp_path):
    (tmp_path / "a.txt").write_bytes("Größe".encode("utf-16"))
    (tmp_path / "b.html").write_bytes('<meta charset="iso-8859-1"><p>Größe'.encode("latin-1"))
    (tmp_path / "c.html").write_bytes(b"<meta charset='hex'><p>00")
    for name in ("a.txt", "b.html"):
        (document,) = FORMATS[(tmp_path / name).suffix](tmp_path / name, name)
        assert document.sections[0].text == "Größe"
    with pytest.raises(UnreadableError, match="not HEX"):
        FORMATS[".html"](tmp_path / "c.html", "c.html")


def test_code_and_bytes_that_are_no_text(tmp_path, read):
    (document,) = read("a.py", "def f():\n    return 1\n")
    assert (document.title, document.sections[0].text) == ("a.py", "def f():\n    return 1")
    (tmp_path / "b.txt").write_bytes(b"caf\xe9")
    with pytest.raises(UnreadableError, match="not UTF-8"):
        FORMATS[".txt"](tmp_path / "b.txt", "b.txt")


def test_pdf(tmp_path):
    pypdf = pytest.importorskip("pypdf", reason="pypdf is optional")
    generic, name = pypdf.generic, pypdf.generic.NameObject
    writer = pypdf.PdfWriter()
    page = writer.add_blank_page(width=200, height=200)
    stream = generic.DecodedStreamObject()
    stream.set_data(b"BT /F1 12 Tf 20 100 Td (infected sticks) Tj ET")
    page[name("/Contents")] = writer._add_object(stream)
    font = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    fonts = generic.DictionaryObject(
        {name("/F1"): generic.DictionaryObject({name(k): name(v) for k, v in font.items()})}
    )
    page[name("/Resources")] = generic.DictionaryObject({name("/Font"): fonts})
    writer.write(tmp_path / "a.pdf")
    (document,) = FORMATS[".pdf"](tmp_path / "a.pdf", "a.pdf")
    assert [section.text for section in document.sections] == ["infected sticks"]
    (tmp_path / "b.pdf").write_bytes(b"%PDF-1.4 nonsense")
    with pytest.raises(UnreadableError, match="cannot be read as PDF"):
        FORMATS[".pdf"](tmp_path / "b.pdf", "b.pdf")


def test_no_word_is_lost_and_no_chunk_too_long():
    text = "\n\n".join(" ".join(f"w{i}.{j}" for j in range(n)) for i, n in enumerate((3, 30, 1, 7, 7, 12)))
    for limit in (1, 5, 12, 100):
        chunks = list(divide(text, limit))
        assert " ".join(chunk for _, chunk in chunks).split() == text.split()
        assert max(len(chunk.split()) for _, chunk in chunks) <= limit
        assert all(text.startswith(chunk, place) for place, chunk in chunks)


def test_two_characters_without_spaces_are_a_word():
    text = "東京タワーは高い。ABC is 333 m tall。" * 3
    chunks = [chunk for _, chunk in divide(text, 5)]
    assert "".join(chunks).replace(" ", "") == text.replace(" ", "")
    assert chunks[0] == "東京タワーは高い。ABC"


def test_html(read):
    content = (
        "<html><head><title>The &amp; page</title><style>p{}</style></head><body><p>One <b>bold</b>\n word.</p>"
        "<p>Two</p>"
        "<script>alert('no')</script><h2>Next <i>part</i></h2>after <a href='b.html#x'>link</a></body></html>"
    )
    (document,) = read("a.html", content)
    assert document.title == "The & page"
    shown = [("", "One bold word.\n\nTwo"), ("Next part", "after link")]
    assert [(s.heading, s.text) for s in document.sections] == shown
    assert document.sections[1].links == ((6, "b.html#x"),)


def test_html_without_optional_tags_with_cells_and_pictures(read):
    content = (
        "<!DOCTYPE html><head><title>T</title><svg><title>icon</title></svg><body><p>One <a href=x.html>two</a>"
        "<table><tr><td>Weight</td><td>5 kg</td></tr></table><p> <a href='y.html'>three</a>"
    )
    (document,) = read("a.html", content)
    assert document.title == "T"
    (section,) = document.sections
    assert section.text == "One two\n\nWeight 5 kg\n\nthree"
    assert [(section.text[place:], target) for place, target in section.links] == [
        ("two\n\nWeight 5 kg\n\nthree", "x.html"), ("three", "y.html"),
    ]  # fmt: skip


def test_markdown(read):
    content = (
        "intro\n\n# Guide\n\nSee [setup](setup.md#first).\n\n```sh\n# no heading\n```\n## Setup ##\n![x](y.png) done\n"
    )
    (document,) = read("a.md", content)
    assert document.title == "Guide"
    assert [section.heading for section in document.sections] == ["", "Guide", "Setup"]
    assert document.sections[1].links == ((4, "setup.md#first"),)
    assert "# no heading" in document.sections[1].text
    assert document.sections[2].links == ()


def test_front_matter_underlined_headings_fences_in_fences_and_comments(read):
    content = (
        "---\ntitle: 'The: page'\ntags:\n  - a\n---\n<!-- a\nnote -->\nText <!-- b -->end.\n\nFirst `part`\n=====\n\n"
    )
    content += "~~~\n```\n<!-- # code -->\n~~~\n\na | b\n---\n- x\n---\n<!-- c -->"
    (document,) = read("a.md", content.replace("\n", "\r\n"))
    assert document.title == "The: page"
    assert [(section.heading, section.text) for section in document.sections] == [
        ("", "Text end."), ("First part", "~~~\n```\n<!-- # code -->\n~~~"), ("a | b", "- x\n---"),
    ]  # fmt: skip
    (document,) = read("b.md", "---\nA rule above, and no settings.\n\n---\n\nEnd <!-- of it")
    assert document.sections[0].text == "---\nA rule above, and no settings.\n\n---\n\nEnd <!-- of it"


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("[a](b.md 'title') [c](<d e.md>) ![i](i.png) [f](g%20h.md)", ["b.md", "d e.md", "g%20h.md"]),
        ("[a][X y] [b][] and [b] but [no]\n\n[x  Y]: one.md 'T'\n[B]: <t w.md>", ["one.md", "t w.md", "t w.md"]),
        ("[[Page]] [[dir/Page#Part|label]] [[#Here]]", ["[[Page]]", "[[dir/Page#Part]]", "[[#Here]]"]),
    ],
)  # fmt: skip
def test_links_of_markdown(read, text, targets):
    (document,) = read("a.md", text)
    links = document.sections[0].links
    assert [target for _, target in links] == targets
    assert all(text[place] == "[" for place, _ in links)


def test_json_and_jsonl(read):
    rows = [{"_id": "x", "title": "T", "text": "one"}, {"content": "two"}]
    for name, content in (("a.json", json.dumps(rows)), ("a.jsonl", "\n".join(map(json.dumps, rows)))):
        found = read(name, content)
        assert [document.name for document in found] == [f"{name}#x", f"{name}#2"]
        assert [(document.title, document.sections[0].text) for document in found] == [("T", "one"), ("", "two")]
    with pytest.raises(UnreadableError, match="not JSON in line 2"):
        read("b.jsonl", '{"text": "a"}\n{')
    (document,) = read("c.jsonl", '{"text": "a\u2028b"}\n')  # U+2028 ends no line of JSONL
    assert document.sections[0].text == "a\u2028b"
    with pytest.raises(UnreadableError, match="not JSON"):
        read("e.json", f'{{"text": "a", "n": {"9" * 5000}}}')  # more digits than Python reads
    twice = read("d.json", '[{"id": 1, "text": "a"}, {"id": 1, "text": "b"}, "c", 4]')
    assert [document.name for document in twice] == ["d.json#1", "d.json#1:2", "d.json#3", "d.json#4"]
    assert [document.sections[0].text for document in twice] == ["a", "b", "c", ""]


def test_objects_without_a_text_say_what_they_have(read):
    row = {"id": 7, "name": "Saw", "size": {"width": 2, "unit": "cm"}, "tags": ["a", "b"]}
    row |= {"vector": [1.5], "sold": None, "new": True}
    (document,) = read("a.json", json.dumps(row))
    assert (document.name, document.title) == ("a.json", "Saw")
    assert document.sections[0].text == "size.width: 2\nsize.unit: cm\ntags: a, b\nnew: true"


def test_tables(read):
    found = read("a.csv", '\ufeffid;name;text\r\n x ;Foo;"a; b\nc"\r\ny;Bar;\r\n')
    shown = [("a.csv#x", "Foo", "a; b\nc"), ("a.csv#y", "Bar", "")]
    assert [(d.name, d.title, d.sections[0].text) for d in found] == shown
    found = read("a.tsv", 'what\t"size"\nsaw\t5"\n')
    assert [(d.name, d.sections[0].text) for d in found] == [("a.tsv#2", 'what: saw\n"size": 5"')]
    assert read("b.csv", "a,b\n") == read("c.csv", "") == []
    with pytest.raises(UnreadableError, match="line 2 has more columns than the 2 that the first one names"):
        read("d.csv", "a,b\n1,2,3\n")


@pytest.fixture
def soon() -> Iterator[None]:
    """Fail where a reader takes quadratic time: minutes or hours, in the place of a second."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("took more than linear time"))
    signal.alarm(90)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("heading.md", "# x" + " " * 200_000 + "x"),
        ("comment.md", "<!--" * 100_000),
        ("lines.md", "\n" * 200_000 + "x"),
        ("code.md", "```\n" + "\n" * 200_000 + "x"),
        ("labels.md", "# " + "[](" * 100_000),
        ("comment.html", "<!--" * 100_000),
        ("tag.html", "<a " * 100_000),
        ("h1.html", "<h1>a" * 50_000),
        ("ends.html", "<h1>" * 50_000 + "</h2>" * 50_000 + "a"),
    ],
)
def test_long_files_take_linear_time(read, name, content):
    (document,) = read(name, content)
    assert document.title or any(section.text or section.heading for section in document.sections)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("svg.html", "<svg>a" * 50_000, "more than 100 hidden parts in one another"),
        ("quote.html", "<!--a>" * 50_000, "more than 100 tags or comments without an end"),
        ("name.html", "<meta charset=punycode>-" + "b" * 500_000, "not PUNYCODE"),
        ("number.html", f"&#{'9' * 5000};", "not HTML"),
        ("section.html", "<![new[ x ]]>", "not HTML"),
        ("records.json", f"[{'0,' * 1_000_000}0]", "more than 1,000,000 records"),
    ],
)
def test_files_beyond_the_limits_are_refused(read, name, content, message):
    with pytest.raises(UnreadableError, match=message):
        read(name, content)


def test_names_are_cut(read):
    (document,) = read("a.json", json.dumps({"k" * 5000: {"a": 1, "b": 2}}))
    assert document.sections[0].text == f"{'k' * 100}: 1\n{'k' * 100}: 2"
    (document, _) = read("b.json", json.dumps([{"id": "i" * 5000, "text": "t"}, "u"]))
    assert len(document.name) < 1010
