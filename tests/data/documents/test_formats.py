"""What each format shows, as somebody who reads the file would say."""

import pytest

from graphrerank.data.documents.document import UnreadableError
from graphrerank.data.documents.formats import FORMATS, divide


def test_code_and_bytes_that_are_no_text(tmp_path, read):
    (document,) = read("a.py", "def f():\n    return 1\n")
    assert (document.title, document.sections[0].text) == ("a.py", "def f():\n    return 1")
    (tmp_path / "b.txt").write_bytes(b"caf\xe9")
    with pytest.raises(UnreadableError, match="not UTF-8"):
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
