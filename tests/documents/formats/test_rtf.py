"""What documents in RTF show, in the dialects of Word and LibreOffice."""

import random

import pytest

from graphrerank_documents.document import Document, UnreadableError
from graphrerank_documents.formats.rtf import read_rtf

PAGE = r"""{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fcharset0 Arial;}{\f1\fcharset204 Arial;}}
{\colortbl;\red0\green0\blue0;}
{\stylesheet{\ql Normal;}{\s1\outlinelevel0 heading 1;}{\s2{\*\keycode x;}heading 2;}{\*\cs10 Default;}
{\s5 HTML Preformatted;}}
{\info{\title The pump manual}{\author Ada}}{\header Page header}
\pard\s1 The pump\par
\pard It\'92s a \b pump\b0  for \u8364?5 {\f1\'cd\'e0\'f1\'ee\'f1}. See {\field
{\*\fldinst HYPERLINK "other.rtf"}{\fldrslt {\ul the other}}} and {\field
{\*\fldinst{HYPERLINK \\l "setup"}}{\fldrslt below}}.
{\footnote \chftn A note.} {\v hidden}{\pict\pngblip 8950}\par
\pard\s2{\*\bkmkstart setup}Set up{\*\bkmkend setup}\par
\pard{\listtext\tab 1.}\ls1 first\par
\pard{\listtext 2.}\ls1 second \u-10179?\u-8704?\par
\trowd\pard\intbl Unit\cell Most\cell\row
\trowd\pard\intbl bar\cell 6\par x\cell\row
\pard\s5 code();\par
\pard Bye\line now \{x\}\par}"""


def read(text: str) -> Document:
    (document,) = read_rtf(text.encode("latin-1"), "a/b.rtf")
    return document


def texts(document: Document) -> list[tuple[str, str]]:
    return [(section.heading, block.text) for section in document.sections for block in section.blocks]


def test_headings_paragraphs_lists_tables_notes_and_links() -> None:
    document = read(PAGE)
    assert document.title == "The pump"
    assert texts(document) == [
        ("The pump", "It\u2019s a pump for \u20ac5 \u041d\u0430\u0441\u043e\u0441. See the other and below. (A note.)"),
        ("Set up", "- first"),
        ("Set up", "- second \U0001f600"),
        ("Set up", "bar | 6 x"),
        ("Set up", "code();"),
        ("Set up", "Bye\nnow {x}"),
    ]
    first, second = document.sections
    assert [link.target for link in first.blocks[0].links] == ["other.rtf", "#setup"]
    assert second.anchors == ("setup",)
    assert [block.header for block in second.blocks if block.header] == ["Unit | Most"]
    assert [block.text for block in second.blocks if block.is_whole] == ["bar | 6 x", "code();"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"{\rtf1\mac caf\'8e}", "caf\u00e9"),
        (r"{\rtf1\ansi\ansicpg932 \'83\'7c\'83\'93\'83\'76}", "\u30dd\u30f3\u30d7"),
        (r"{\rtf1\uc0\u20320\u22909}", "\u4f60\u597d"),
        (r"{\rtf1 a\bin4 {{}}b}", "ab"),
        (r"{\rtf1 {\upr{old}{\*\ud{new}}} x}", "old x"),
        (r"{\rtf1 {\shp{\*\shpinst{\sp{\sn a}{\sv b}}{\shptxt in a box\par}}}}", "in a box"),
        ("{\\rtf1 a\\\nb}", "a"),
        (r"{\rtf1\trowd\intbl open\cell row", "open"),
    ],
)
def test_encodings_and_destinations(text: str, shown: str) -> None:
    assert texts(read(text))[0][1] == shown


@pytest.mark.parametrize("content", [b"", b"text", b"{\\html}", b"\x00"])
def test_what_is_no_rtf(content: bytes) -> None:
    with pytest.raises(UnreadableError, match="not RTF"):
        read_rtf(content, "a.rtf")


def test_too_many_groups_are_refused() -> None:
    with pytest.raises(UnreadableError, match="more than 10,000 nested groups"):
        read("{\\rtf1 " + "{" * 10_001)


@pytest.mark.parametrize(
    "part", [r"\'41", r"\u65?", "{x}", r"{\field{\*\fldinst x}{\fldrslt y}}", r"\par ", "}", r"\cell\row "]
)
def test_long_files_take_linear_time(part: str) -> None:
    assert read("{\\rtf1 a" + part * (300_000 // len(part))).sections


def test_any_part_of_a_document_is_read() -> None:
    draw = random.Random(0)
    for _ in range(200):
        start, end = sorted(draw.choices(range(6, len(PAGE)), k=2))
        read(f"{{\\rtf1 {PAGE[start:end]}")
