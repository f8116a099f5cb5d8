"""What text documents of OpenDocument show."""

import pytest

from graphrerank_documents.document import Document, UnreadableError
from graphrerank_documents.formats.opendocument import read_odt
from tests.support.files import zip_of

PARTS = "office:1.0 text:1.0 table:1.0 drawing:1.0 svg-compatible:1.0 style:1.0"
NAMESPACES = " ".join(
    f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{part}"'
    for prefix, part in zip(("office", "text", "table", "draw", "svg", "style"), PARTS.split(), strict=True)
)
HEAD = f'<office:document-content {NAMESPACES} xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:dc="http://purl.org/dc/elements/1.1/">'
BODY = """<office:automatic-styles>
<style:style style:name="P1" style:parent-style-name="Preformatted_20_Text"/>
</office:automatic-styles><office:body><office:text>
<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes><text:p text:style-name="Title">The pump</text:p>
<text:table-of-content><text:index-body><text:p>Set up 1</text:p></text:index-body></text:table-of-content>
<text:p>Intro<text:s text:c="2"/>text<text:note><text:note-citation>1</text:note-citation>
<text:note-body><text:p>A note.</text:p></text:note-body></text:note>
see <text:a xlink:href="#1.Set%20up|outline">below</text:a>,
<text:a xlink:href="../other.odt">other</text:a>
and <text:bookmark-ref text:ref-name="m">mark</text:bookmark-ref>.
<draw:frame><draw:image xlink:href="x.png"/>
<svg:title>a pump curve</svg:title></draw:frame>
<office:annotation><dc:creator>Ada</dc:creator><text:p>Check this.</text:p></office:annotation></text:p>
<text:h text:outline-level="2"><text:bookmark-start text:name="m"/>Set up</text:h>

<text:list><text:list-item><text:p>one</text:p>
<text:list><text:list-item><text:p>deep</text:p></text:list-item></text:list></text:list-item></text:list>
<table:table><table:table-header-rows><table:table-row>
<table:table-cell><text:p>Unit</text:p></table:table-cell>
<table:table-cell><text:p>Most</text:p></table:table-cell></table:table-row></table:table-header-rows><table:table-row>
<table:table-cell><text:p>bar</text:p></table:table-cell>
<table:table-cell><text:p>6</text:p><text:p>x</text:p></table:table-cell></table:table-row></table:table>
<text:p text:style-name="P1">code();</text:p></office:text></office:body>"""


def odt(content: str, **files: str) -> bytes:
    paths = {"manifest": "META-INF/manifest.xml"}
    parts = {paths.get(name, f"{name}.xml"): text for name, text in files.items()}
    return zip_of({"content.xml": content} | parts)


def read(content: bytes) -> Document:
    (document,) = read_odt(content, "a/b.odt")
    return document


def test_headings_paragraphs_lists_tables_notes_and_links() -> None:
    document = read(odt(f"{HEAD}{BODY}</office:document-content>"))
    assert document.title == "The pump"
    assert [(section.heading, block.text) for section in document.sections for block in section.blocks] == [
        ("The pump", "Intro text see below, other and mark."),
        ("The pump", "A note."),
        ("The pump", "a pump curve"),
        ("The pump", "Check this."),
        ("Set up", "- one"),
        ("Set up", "- deep"),
        ("Set up", "bar | 6 x"),
        ("Set up", "code();"),
    ]
    first, second = document.sections
    assert [link.target for link in first.blocks[0].links] == ["#Set up", "other.odt", "#m"]
    assert "m" in second.anchors
    assert [block.header for block in second.blocks if block.header] == ["Unit | Most"]


def test_the_title_is_that_of_the_metadata_if_no_heading_is_one() -> None:
    meta = '<m xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The manual</dc:title></m>'
    text = "<office:body><office:text><text:p>Text.</text:p></office:text></office:body>"
    assert read(odt(f"{HEAD}{text}</office:document-content>", meta=meta)).title == "The manual"


def test_numbers_of_thousands_of_digits() -> None:
    huge = "9" * 5000
    body = f'<text:h text:outline-level="{huge}">H</text:h><text:p>a<text:s text:c="{huge}"/>b</text:p>'
    text = f"<office:body><office:text>{body}</office:text></office:body></office:document-content>"
    (section,) = read(odt(f"{HEAD}{text}")).sections
    assert (section.heading, section.blocks[0].text) == ("H", "a b")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not ODT"),
        (odt("<"), "not XML"),
        (odt("<a/>"), "not a text document of OpenDocument"),
        (odt("<a/>", manifest="<encryption-data/>"), "encrypted"),
        (odt(HEAD + "<office:body><office:text>" + "<text:list>" * 5000), "not XML"),
    ],
)
def test_what_is_no_text_document(content: bytes, reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason):
        read(content)
