from graphrerank_documents.document import Document
from graphrerank_documents.formats.asciidoc import read_asciidoc
from tests.support.documents import all_links, link_rows


def _read(text: str, name: str = "docs/guide.adoc") -> Document:
    (document,) = read_asciidoc(text.encode(), name)
    return document


PAGE = """\
= Guide to {pump}
A. Author <a@example.org>
:pump: the pump
:site: https://example.org

See xref:install.adoc#first[installing], <<limits,the *limits*>>, <<Next Steps>>, link:a/b.pdf[the file],
{site}/x[the site], <<other.adoc#x>> and <<elsewhere>>. Not \\xref:no.adoc[] nor `+<<no>>+`.

// xref:hidden.adoc[]
[[limits]]
== Limits _of_ pressure

.A listing
[source,python]
----
xref:no.adoc[]
----

* one
* two <<limits>>
more

Bar:: Of pressure.

[#steps]
Next Steps
----------

NOTE: Press it.

include::part.adoc[]

[cols="1,2"]
|===
|Name |Value

|a
|xref:b.adoc[b]
|c |d
|===
"""


def test_sections_anchors_and_blocks() -> None:
    guide, limits, steps = _read(PAGE).sections
    assert (guide.heading, guide.line, guide.end) == ("Guide to {pump}", 1, 10)
    assert (limits.heading, limits.line, limits.end) == ("Limits of pressure", 11, 25)
    assert limits.anchors == ("limits", "_limits_of_pressure", "limits-of-pressure")
    assert (limits.labels, steps.anchors[0]) == (("limits",), "steps")
    assert [(block.text, block.is_whole, block.is_tight) for block in limits.blocks] == [
        ("A listing", False, False),
        ("xref:no.adoc[]", True, False),
        ("- one", False, False),
        ("- two limits more", False, True),
        ("Bar Of pressure.", False, False),
    ]
    assert [(block.text, block.header) for block in steps.blocks] == [
        ("NOTE: Press it.", ""),
        ("part.adoc", ""),
        ("a | b", "Name | Value"),
        ("c | d", "Name | Value"),
    ]


def test_links_have_kinds_and_lines() -> None:
    assert link_rows(_read(PAGE)) == [
        ("path", "install.adoc#first", 6),
        ("path", "#limits", 6),
        ("path", "#Next Steps", 6),
        ("path", "a/b.pdf", 6),
        ("path", "https://example.org/x", 7),
        ("path", "other.adoc#x", 7),
        ("path", "#elsewhere", 7),
        ("path", "#limits", 20),
        ("path", "part.adoc", 31),
        ("path", "b.adoc", 38),
    ]


def test_paths_of_antora_begin_at_a_module() -> None:
    text = "= A\n\nxref:b.adoc[] xref:api:c.adoc#d[] xref:x::e.adoc[] xref:./f.adoc[]\n\ninclude::partial$g.adoc[]\n"
    document = _read(text, "docs/modules/ROOT/pages/more/a.adoc")
    assert [link.target for link in all_links(document)] == [
        *("../b.adoc", "../../../api/pages/c.adoc#d", "./f.adoc", "../../partials/g.adoc")
    ]


def test_attributes_that_grow_are_bounded() -> None:
    doubled = "".join(f":a{i}: {{a{i - 1}}}{{a{i - 1}}}\n" for i in range(1, 200))
    text = f":a0: {'x' * 900}\n{doubled}\n" + "{a199} " * 2000
    document = _read(text)
    assert sum(len(block.text) for block in document.sections[0].blocks) < 3 * len(text)
