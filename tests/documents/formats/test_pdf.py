"""What the text layer of PDF files shows."""

import random
from collections.abc import Sequence
from io import BytesIO

import pytest

from graphrerank_documents.document import Document, UnreadableError
from graphrerank_documents.formats.pdf import read_pdf

pypdf = pytest.importorskip("pypdf", reason="pypdf is optional")


def pdf(pages: Sequence[Sequence[str]], outline: Sequence[tuple[str, int]] = (), *, password: str = "") -> bytes:
    """Write a file of lines, with headings and the pages of an outline."""
    generic, name = pypdf.generic, pypdf.generic.NameObject
    writer = pypdf.PdfWriter()
    font = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica", "/Encoding": "/WinAnsiEncoding"}
    fonts = generic.DictionaryObject(
        {name("/F1"): generic.DictionaryObject({name(k): name(v) for k, v in font.items()})}
    )
    for lines in pages:
        page = writer.add_blank_page(width=600, height=800)
        stream = generic.DecodedStreamObject()
        shown = "".join(f"({line}) Tj 0 -14 Td " for line in lines)
        stream.set_data(f"BT /F1 12 Tf 20 780 Td {shown}ET".encode("cp1252"))
        page[name("/Contents")] = writer._add_object(stream)
        page[name("/Resources")] = generic.DictionaryObject({name("/Font"): fonts})
    for heading, number in outline:
        writer.add_outline_item(title=heading, page_number=number)
    writer.add_uri(0, "https://x.org/y", (0, 0, 10, 10))
    writer.add_metadata({"/Title": "Pumps"})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    file = BytesIO()
    writer.write(file)
    return file.getvalue()


def shown(document: Document) -> list[tuple[str, tuple[str, ...], list[str]]]:
    return [(part.heading, part.anchors, [block.text for block in part.blocks]) for part in document.sections]


def test_sections_of_an_outline():
    pages = [
        [
            "Manual 1",
            "Preface",
            "1 Valves and",
            "their parts",
            "A valve opens at six bar, as the manu-",
            "facturer says.",
        ],
        ["Manual 2", "It closes later.", "1.1 Springs", "They are of steel."],
        ["Manual 3", "2 Pumps", "- first, which is a long item", "- second"],
    ]
    (document,) = read_pdf(pdf(pages, [("Valves and their parts", 0), ("Springs", 1), ("Pumps", 2)]), "a.pdf")
    assert document.title == "Pumps"
    assert shown(document) == [
        ("", ("page=1",), ["Preface"]),
        ("Valves and their parts", ("page=2",),
         ["A valve opens at six bar, as the manufacturer says.", "It closes later."]),
        ("Springs", (), ["They are of steel."]),
        ("Pumps", ("page=3",), ["- first, which is a long item", "- second"]),
    ]  # fmt: skip
    assert [link.target for link in document.sections[1].blocks[0].links] == ["https://x.org/y"]


def test_pages_without_an_outline():
    (document,) = read_pdf(pdf([["infected sticks"], ["and more"]]), "a.pdf")
    assert shown(document) == [("Page 1", ("page=1",), ["infected sticks"]), ("Page 2", ("page=2",), ["and more"])]


def test_broken_and_encrypted_files_are_unreadable():
    content, chance = pdf([["one", "two"]] * 4, [("one", 0)]), random.Random(0)
    broken = [content[: chance.randrange(len(content))] for _ in range(10)]
    for _ in range(40):
        copy = bytearray(content)
        for _ in range(chance.choice([1, 10, 100])):
            copy[chance.randrange(len(copy))] = chance.randrange(256)
        broken.append(bytes(copy))
    for each in broken:
        try:
            read_pdf(each, "a.pdf")
        except UnreadableError as error:
            assert "PDF" in str(error) or "page" in str(error) or "encrypted" in str(error)  # noqa: PT017
    with pytest.raises(UnreadableError, match="encrypted"):
        read_pdf(pdf([["one"]], password="x"), "a.pdf")
    with pytest.raises(UnreadableError, match="cannot be read as PDF"):
        read_pdf(b"%PDF-1.4 nonsense", "b.pdf")
