"""What texts and data in XML show."""

import pytest

from graphrerank_documents.document import LABEL, PATH, UnreadableError
from graphrerank_documents.formats.xml import read_xml

pytest.importorskip("lxml", reason="lxml is optional")

ENTITIES = "".join(f"<!ENTITY e{i} '{f'&e{i - 1};' * 10}'>" for i in range(1, 12))
BOMB = f"<!DOCTYPE a [<!ENTITY e0 'aaaaaaaaaa'>{ENTITIES}]><a b='&e11;'/>"


def test_titles_are_headings_and_ids_are_labels():
    content = """<!DOCTYPE book SYSTEM "x.dtd" [<!ENTITY f SYSTEM "file:///etc/passwd"><!ENTITY l "lll">]>
<book xmlns:xlink="http://www.w3.org/1999/xlink" xml:id="b"><title>Book</title>
<chapter id="c1"><title>One <em>two</em></title>
<para>Text em<emphasis>ph</emphasis>asis&nbsp;&f;, see <xref linkend="c2"/> and <link xlink:href="http://x.y/z"><b>z</b></link>.
<programlisting>a
  b</programlisting> after</para>
<itemizedlist><listitem><para>i1</para></listitem><listitem><para>i2</para></listitem></itemizedlist></chapter>
<chapter id="c2"><title>Two</title><row><entry>a <b>b</b></entry><entry>c</entry></row></chapter></book>"""
    (document,) = read_xml(content.encode(), "a.xml")
    assert document.title == "Book"
    assert [(part.heading, part.labels) for part in document.sections] == [
        ("Book", ("b",)), ("One two", ("c1",)), ("Two", ("c2",)),
    ]  # fmt: skip
    first, code, *others = document.sections[1].blocks
    assert (first.text, code.text, code.is_whole) == ("Text emphasis &f;, see and z.", "a\n  b", True)
    assert [(link.target, link.kind) for link in first.links] == [("c2", LABEL), ("http://x.y/z", PATH)]
    assert [block.text for block in others] == ["after", "- i1", "- i2"]
    assert [block.text for block in document.sections[2].blocks] == ["a b | c"]


def test_encoding_that_a_file_says():
    content = '<?xml version="1.0" encoding="ISO-8859-1"?><doc><title>Pumpe</title><p>Größe</p></doc>'
    (document,) = read_xml(content.encode("latin-1"), "a.xml")
    assert (document.title, document.sections[0].blocks[0].text) == ("Pumpe", "Größe")


def test_data_say_the_names_of_their_elements():
    content = b"<all><id>x</id><part><name>foo</name><size>2</size></part><user id='4' name='Bob'/></all>"
    (document,) = read_xml(b"<!-- c -->" + content, "pom.xml")
    assert [block.text for block in document.sections[0].blocks] == [
        *("id: x", "name: foo\nsize: 2", "user: id=4, name=Bob"),
    ]


def test_texts_of_neighbours_are_not_glued():
    content = b"""<task><shortdesc>Short.</shortdesc><steps><step><cmd>Do <b>a</b><i>b</i>.</cmd></step><step>
    <cmd>Rest.</cmd></step></steps><p>x</p>
    <links><link href='x.dita'>X</link><link href='y.dita'>Y</link></links></task>"""
    (document,) = read_xml(content, "a.dita")
    blocks = [(block.text, [link.target for link in block.links]) for block in document.sections[0].blocks]
    assert blocks == [("Short.", []), ("Do ab.", []), ("Rest.", []), ("x", []), ("X", ["x.dita"]), ("Y", ["y.dita"])]


def test_data_have_links():
    (document,) = read_xml(
        b"<map><part id='a'><topicref href='a.dita'/></part><part><ref linkend='b'/></part></map>", "a.xml"
    )
    links = [[(link.target, link.kind) for link in block.links] for block in document.sections[0].blocks]
    assert links == [[("a.dita", PATH)], [("b", LABEL)]]
    assert document.sections[0].anchors == document.sections[0].labels == ("a",)


def test_titles_that_are_attributes():
    content = b"<topic id='a' title='Start'><p>x</p><chapter id='b' title='Next'><p>y</p></chapter></topic>"
    (document,) = read_xml(content, "a.topic")
    assert [(part.heading, part.anchors) for part in document.sections] == [("Start", ("a",)), ("Next", ("b",))]


def test_a_page_is_read_as_one():
    (document,) = read_xml(b"<html><body><h1>Page</h1><p>Text</p></body></html>", "a.xml")
    assert (document.title, document.is_page) == ("Page", True)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"<a>", b"\xff\xfe", b"<a>\0</a>", b"<a>" * 100_000, b"<a>" + b"x" * 11_000_000 + b"</a>",
        b"<?xml version='1.0' encoding='none'?><a>x</a>",
        BOMB.encode(),
    ],
)  # fmt: skip
def test_broken_and_swelling_files_are_refused(content):
    with pytest.raises(UnreadableError, match="not XML"):
        read_xml(content, "a.xml")


@pytest.mark.parametrize(
    "content",
    [
        "<a " + " ".join(f"b{i}='x'" for i in range(50_000)) + "/>", f"<a>{'x<b/>' * 50_000}</a>",
        f"<row>{'<b>x</b>' * 50_000}</row>", f"<d>{'<title>' * 200}x{'</title>' * 200}</d>",
    ],
)  # fmt: skip
def test_long_files_are_read_to_the_end(content):
    read_xml(content.encode(), "a.xml")
