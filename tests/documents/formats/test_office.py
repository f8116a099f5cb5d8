"""What documents of office programs and books show."""

import random
from collections.abc import Callable, Iterator
from datetime import datetime
from io import BytesIO
from typing import Any

import pytest

from graphrerank_documents.document import Document, UnreadableError
from graphrerank_documents.formats import office
from tests.support.files import zip_of

docx = pytest.importorskip("docx", reason="python-docx is optional")
pptx = pytest.importorskip("pptx", reason="python-pptx is optional")
openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is optional")
READERS = {"docx": office.read_docx, "pptx": office.read_pptx, "xlsx": office.read_xlsx, "epub": office.read_epub}


def saved(document: Any) -> bytes:
    """Return the bytes of a document that its library saves."""
    file = BytesIO()
    document.save(file)
    return file.getvalue()


def blocks(document: Document) -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield the heading, text, header and targets of each block."""
    for part in document.sections:
        for block in part.blocks:
            yield part.heading, block.text, block.header, [link.target for link in block.links]


def element(tag: str, text: str = "", **attributes: str) -> Any:
    made = docx.oxml.OxmlElement(tag)
    if text:
        made.text = text
    for name, value in attributes.items():
        made.set(docx.oxml.ns.qn(name.replace("_", ":")), value)
    return made


def document_of_word() -> Any:
    document = docx.Document()
    document.add_heading("The pump", 0)
    document.add_paragraph("Intro text.")
    document.add_heading("Set up", 1)._p.append(element("w:bookmarkStart", w_name="setup", w_id="1"))
    paragraph = document.add_paragraph("See ")._p
    relation = document.part.relate_to(
        "https://x.org/y", docx.opc.constants.RELATIONSHIP_TYPE.HYPERLINK, is_external=True
    )
    for link in (element("w:hyperlink", r_id=relation), element("w:hyperlink", w_anchor="setup")):
        run = element("w:r")
        run.append(element("w:t", "this"))
        link.append(run)
        paragraph.append(link)
    document.add_paragraph("first", style="List Bullet")
    document.add_paragraph("second", style="List Number")
    table = document.add_table(rows=3, cols=2)
    for row, texts in zip(table.rows, (("Unit", "Most"), ("bar", "6"), ("kelvin", "300\nor so")), strict=True):
        for cell, text in zip(row.cells, texts, strict=True):
            cell.text = text
    document.styles.add_style("Our 'heading'", 1).base_style = document.styles["Heading 2"]
    document.add_paragraph("By its base", style="Our 'heading'")
    document.add_paragraph("Bye\nnow")
    document.styles.add_style("Listing", 1).font.name = "Courier New"
    for line in ("for x:", "    go()"):
        document.add_paragraph(line, style="Listing")
    document.add_paragraph("In the contents")._p.append(element("w:bookmarkStart", w_name="_Toc1", w_id="2"))
    levelled = document.add_paragraph("By its level")._p
    levelled.get_or_add_pPr().append(element("w:outlineLvl", w_val="1"))
    return document


def slides() -> Any:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "Pumps"
    frame = slide.placeholders[1].text_frame
    frame.text = "one"
    run = frame.add_paragraph().add_run()
    run.text, run.hyperlink.address = "two", "https://x.org"
    slide.notes_slide.notes_text_frame.text = "Say hello"
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    table = slide.shapes.add_table(2, 2, 0, 0, 100, 100).table
    for place in range(4):
        table.cell(place // 2, place % 2).text = f"c{place}"
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, 10, 10).text_frame.text = "in a group"
    return deck


def workbook() -> Any:
    book = openpyxl.Workbook()
    book.active.title = "Pumps"
    for row in (["Report"], [], ["Name", "Since", "Bar"], ["A", datetime(2024, 1, 2), 6.5], [None, None, True]):
        book.active.append(row)
    book.create_sheet("Empty")
    return book


def book_of_chapters() -> bytes:
    chapter = (
        "<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><head><title/></head><body>{}</body></html>"
    )
    items = "<item id='a' href='a%201.xhtml'/><item id='b' href='sub/b.xhtml'/><item id='lost' href='lost.xhtml'/>"
    package = (
        "<package xmlns='http://www.idpf.org/2007/opf'><metadata xmlns:dc='http://purl.org/dc/elements/1.1/'>"
        f"<dc:title>Book</dc:title></metadata>"
        f"<manifest>{items}<item id='n' href='n.xhtml' properties='nav'/></manifest>"
        "<spine><itemref idref='n'/><itemref idref='b'/><itemref idref='a'/><itemref idref='lost'/></spine></package>"
    )
    root = "<container><rootfiles><rootfile full-path='OEBPS/c.opf'/></rootfiles></container>"
    return zip_of(
        {
            "META-INF/container.xml": root.replace("<container", "<container xmlns='urn:oasis:names:tc:opendocument'"),
            "OEBPS/c.opf": package,
            "OEBPS/a 1.xhtml": chapter.format("<h1>One</h1><p>Text <a href='sub/b.xhtml#x'>b</a></p>"),
            "OEBPS/sub/b.xhtml": chapter.format("<p id='x'>More</p>"),
            "OEBPS/n.xhtml": chapter.format("<p>Contents</p>"),
        }
    )


MAKERS: dict[str, Callable[[], bytes]] = {
    "docx": lambda: saved(document_of_word()),
    "pptx": lambda: saved(slides()),
    "xlsx": lambda: saved(workbook()),
    "epub": book_of_chapters,
}


def test_docx():
    (document,) = office.read_docx(MAKERS["docx"](), "a.docx")
    assert document.title == "The pump"
    assert list(blocks(document)) == [
        ("The pump", "Intro text.", "", []),
        ("Set up", "See thisthis", "", ["https://x.org/y", "#setup"]),
        ("Set up", "- first", "", []), ("Set up", "- second", "", []),
        ("Set up", "bar | 6", "Unit | Most", []), ("Set up", "kelvin | 300 or so", "Unit | Most", []),
        ("By its base", "Bye\nnow", "", []), ("By its base", "for x:\n    go()", "", []),
    ]  # fmt: skip
    assert document.sections[1].anchors == ("setup",)
    assert [(part.heading, part.anchors) for part in document.sections[-2:]] == [
        ("In the contents", ("_Toc1",)), ("By its level", ()),
    ]  # fmt: skip


def test_pptx():
    (document,) = office.read_pptx(MAKERS["pptx"](), "a.pptx")
    assert document.title == "Pumps"
    assert list(blocks(document)) == [
        ("Pumps", "- one", "", []), ("Pumps", "- two", "", ["https://x.org"]), ("Pumps", "Say hello", "", []),
        ("Slide 2", "c2 | c3", "c0 | c1", []), ("Slide 2", "in a group", "", []),
    ]  # fmt: skip
    assert [part.anchors for part in document.sections] == [("slide-1",), ("slide-2",)]


def test_xlsx():
    (document,) = office.read_xlsx(MAKERS["xlsx"](), "a.xlsx")
    assert (document.name, document.title) == ("a.xlsx#Pumps", "a: Pumps")
    header = "Name | Since | Bar"
    book = openpyxl.Workbook()
    for row in ([None, "a", "b"], [0, 1, 2]):
        book.active.append(row)
        book.create_sheet("Numbers").append([1, 2])
    first, second, _ = office.read_xlsx(saved(book), "a.xlsx")
    assert [(text, top) for _, text, top, _ in (*blocks(first), *blocks(second))] == [
        ("0 | 1 | 2", "| a | b"),
        ("1 | 2", ""),
    ]
    assert [(text, top) for _, text, top, _ in blocks(document)] == [
        ("Report", ""), ("A | 2024-01-02 | 6.5", header), ("|  | True", header),
    ]  # fmt: skip


def test_epub():
    second, first = office.read_epub(MAKERS["epub"](), "b/a.epub")
    assert [(each.name, each.title) for each in (first, second)] == [
        ("b/a.epub#OEBPS/a 1.xhtml", "Book: One"), ("b/a.epub#OEBPS/sub/b.xhtml", "Book"),
    ]  # fmt: skip
    assert list(blocks(first)) == [("One", "Text b", "", ["sub/b.xhtml#x"])]
    assert (second.sections[0].anchors, dict(second.dropped)) == (("x",), {"unreadable chapters": 1})


@pytest.mark.parametrize("kind", READERS)
def test_broken_files_are_unreadable(kind):
    content, chance = MAKERS[kind](), random.Random(0)
    changed = []
    for _ in range(30):
        copy = bytearray(content)
        for _ in range(chance.choice([1, 10, 100])):
            copy[chance.randrange(len(copy))] = chance.randrange(256)
        changed.append(bytes(copy))
    cut = [content[: chance.randrange(len(content))] for _ in range(5)]
    for broken in (*changed, *cut, b"", b"PK", b"\xd0\xcf\x11\xe0" + b"x" * 600, zip_of({"a": "b"})):
        try:
            READERS[kind](broken, f"a.{kind}")
        except UnreadableError as error:
            assert str(error)  # noqa: PT017


@pytest.mark.parametrize("kind", READERS)
def test_bombs_are_not_unpacked(kind):
    for files in ({"word/document.xml": " " * 30_000_000}, {str(number): "" for number in range(10_001)}):
        with pytest.raises(UnreadableError, match=r"when unpacked|more than 10,000 files"):
            READERS[kind](zip_of(files), f"a.{kind}")


def test_notes_and_captions_of_an_epub() -> None:
    html = '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml">'
    head = html + "<head><title>{}</title></head><body>{}</body></html>"
    pages = {
        "a.xhtml": head.format(
            "One",
            '<h1>One</h1><p>A pump<a href="#n1">1</a> and a valve<a href="notes.xhtml#n2">2</a>.</p>'
            "<figure><img src='a.png'/><figcaption>Figure 1: the seal</figcaption></figure>"
            "<table><caption>Table 1</caption><tr><td>a</td><td>b</td></tr></table>"
            "<aside id='n1' hidden='hidden'><p>The first note.</p></aside><aside><p>By the way.</p></aside>",
        ),
        "notes.xhtml": head.format("Notes", "<h1>Notes</h1><ol><li id='n2'>The second note.</li></ol>"),
        "unused.xhtml": head.format("Unused", "<p>Nobody links here.</p>"),
    }
    items = "".join(f'<item id="{name}" href="{name}" media-type="application/xhtml+xml"/>' for name in pages)
    package = f'<package><metadata/><manifest>{items}</manifest><spine><itemref idref="a.xhtml"/></spine></package>'
    container = '<container><rootfiles><rootfile full-path="c.opf"/></rootfiles></container>'
    book = zip_of({"META-INF/container.xml": container, "c.opf": package, **pages})
    chapter, notes = office.read_epub(book, "b.epub")
    texts = [block.text for section in chapter.sections for block in section.blocks]
    assert texts == [
        *("A pump1 and a valve2.", "Figure 1: the seal", "Table 1", "a | b", "The first note.", "By the way."),
    ]
    assert (notes.name, notes.title) == ("b.epub#notes.xhtml", "b: Notes")
    assert [block.text for section in notes.sections for block in section.blocks] == ["- The second note."]
