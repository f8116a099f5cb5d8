"""What each format shows, as somebody who reads the file would say."""

import json

import pytest

from graphrerank.data.documents.document import Section
from graphrerank.data.documents.formats import FORMATS, divide


def read(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return FORMATS[path.suffix](path, name)


def test_markdown(tmp_path):
    content = (
        "intro\n\n# Guide\n\nSee [setup](setup.md#first).\n\n```sh\n# no heading\n```\n## Setup ##\n![x](y.png) done\n"
    )
    (document,) = read(tmp_path, "a.md", content)
    assert document.title == "Guide"
    assert [section.heading for section in document.sections] == ["", "Guide", "Setup"]
    assert document.sections[1].links == ("setup.md#first",)
    assert "# no heading" in document.sections[1].text
    assert document.sections[2].links == ()


def test_what_markdown_does_not_show(tmp_path):
    front = '---\ntitle: "My: page"\ntags:\n  - a\n---\n'
    content = f"{front}<!-- a\nnote -->\n# Guide\none <!-- b --> two\n```\n<!-- code -->\n```\n<!-- c -->"
    (document,) = read(tmp_path, "a.md", content)
    assert document.title == "My: page"
    assert [(s.heading, s.text) for s in document.sections] == [
        ("", ""),
        ("Guide", "one  two\n```\n<!-- code -->\n```"),
    ]
    (document,) = read(tmp_path, "b.md", "---\nA rule above, and no settings.\n\n---\n\nEnd <!-- of it")
    assert document.sections[0].text == "---\nA rule above, and no settings.\n\n---\n\nEnd <!-- of it"


def test_html(tmp_path):
    content = (
        "<html><head><title>The &amp; page</title><style>p{}</style></head><body><p>One <b>bold</b>\n word.</p>"
        "<p>Two</p>"
        "<script>alert('no')</script><h2>Next <i>part</i></h2>after <a href='b.html#x'>link</a></body></html>"
    )
    (document,) = read(tmp_path, "a.html", content)
    assert document.title == "The & page"
    assert [(s.heading, s.text) for s in document.sections] == [
        ("", "One bold word.\n\nTwo"),
        ("Next part", "after link"),
    ]
    assert document.sections[1].links == ("b.html#x",)


def test_json_and_jsonl(tmp_path):
    rows = [{"_id": "x", "title": "T", "text": "one"}, {"content": "two"}]
    for name, content in (("a.json", json.dumps(rows)), ("a.jsonl", "\n".join(map(json.dumps, rows)))):
        found = read(tmp_path, name, content)
        assert [document.name for document in found] == [f"{name}#x", f"{name}#2"]
        assert [(document.title, document.sections[0].text) for document in found] == [("T", "one"), ("", "two")]
    with pytest.raises(ValueError, match=r"b.jsonl:2: not JSON"):
        read(tmp_path, "b.jsonl", '{"text": "a"}\n{')
    with pytest.raises(ValueError, match=r"c.json:1: needed an object with a text in one of \['text'.*got \{'n': 1\}"):
        read(tmp_path, "c.json", '{"n": 1}')


def test_code_and_bytes_that_are_no_text(tmp_path):
    (document,) = read(tmp_path, "a.py", "def f():\n    return 1\n")
    assert (document.title, document.sections[0].text) == ("a.py", "def f():\n    return 1")
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ValueError, match=r"b.txt: not UTF-8"):
        FORMATS[".txt"](tmp_path / "b.txt", "b.txt")


def test_pdf(tmp_path):
    pypdf = pytest.importorskip("pypdf", reason="pypdf is optional")
    writer = pypdf.PdfWriter()
    page = writer.add_blank_page(width=200, height=200)
    stream = pypdf.generic.DecodedStreamObject()
    stream.set_data(b"BT /F1 12 Tf 20 100 Td (infected sticks) Tj ET")
    page[pypdf.generic.NameObject("/Contents")] = writer._add_object(stream)
    font = pypdf.generic.DictionaryObject(
        {pypdf.generic.NameObject(k): pypdf.generic.NameObject(v)
         for k, v in {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}.items()}
    )  # fmt: skip
    fonts = pypdf.generic.DictionaryObject({pypdf.generic.NameObject("/F1"): font})
    page[pypdf.generic.NameObject("/Resources")] = pypdf.generic.DictionaryObject(
        {pypdf.generic.NameObject("/Font"): fonts}
    )
    writer.write(tmp_path / "a.pdf")
    (document,) = FORMATS[".pdf"](tmp_path / "a.pdf", "a.pdf")
    assert [section.text for section in document.sections] == ["infected sticks"]
    (tmp_path / "b.pdf").write_bytes(b"%PDF-1.4 nonsense")
    with pytest.raises(ValueError, match=r"b.pdf: cannot be read as PDF"):
        FORMATS[".pdf"](tmp_path / "b.pdf", "b.pdf")


def test_no_word_is_lost_and_no_chunk_too_long():
    text = "\n\n".join(" ".join(f"w{i}.{j}" for j in range(n)) for i, n in enumerate((3, 30, 1, 7, 7, 12)))
    for limit in (1, 5, 12, 100):
        chunks = list(divide(Section("", text), limit))
        assert " ".join(chunks).split() == text.split()
        assert max(len(chunk.split()) for chunk in chunks) <= limit
