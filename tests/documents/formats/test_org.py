import pytest

from graphrerank_documents.document import Document, UnreadableError
from graphrerank_documents.formats.org import read_org
from tests.support.documents import link_rows


def _read(text: str) -> Document:
    (document,) = read_org(text.encode(), "notes.org")
    return document


PAGE = """\
:PROPERTIES:
:ID: 12-ab
:END:
#+TITLE: The pump
See [[file:install.org::*First start][installing]], [[id:34-cd][limits]],
[[*Next steps]], [[#own]] and https://example.org. Not ~[[no]]~.
* TODO [#A] Limits :work:
SCHEDULED: <2020-01-01 Wed>
:PROPERTIES:
:CUSTOM_ID: own
:ID: 34-cd
:END:
# [[file:hidden.org]]
- one
- two
#+BEGIN_SRC python
* = "[[no]]"
#+END_SRC
** Next steps
| Name | Value |
|------+-------|
| a    | [[./b.org][b]] |
| c    | d     |
"""


def test_sections_anchors_and_blocks() -> None:
    document = _read(PAGE.replace('* = "', 'a = "'))
    first, limits, steps = document.sections
    assert document.title == "The pump"
    assert (first.heading, first.labels, first.line, first.end) == ("", ("id:12-ab",), 1, 6)
    assert (limits.heading, limits.line, limits.end) == ("Limits", 7, 18)
    assert (limits.anchors, limits.labels) == (("own", "limits"), ("own", "id:34-cd"))
    assert [(block.text, block.is_whole, block.is_tight) for block in limits.blocks] == [
        ("- one", False, False),
        ("- two", False, True),
        ('a = "[[no]]"', True, False),
    ]
    assert [(row.text, row.header, row.line) for row in steps.blocks] == [
        ("a | b", "Name | Value", 22),
        ("c | d", "Name | Value", 23),
    ]


def test_links_have_kinds_and_lines() -> None:
    assert link_rows(_read(PAGE)) == [
        ("path", "install.org#first-start", 5),
        ("label", "id:34-cd", 5),
        ("path", "#Next steps", 6),
        ("path", "#own", 6),
        ("path", "https://example.org", 6),
        ("path", "./b.org", 22),
    ]


def test_too_many_headings_are_unreadable() -> None:
    with pytest.raises(UnreadableError, match="more than 50,000 headings"):
        _read("* a\n" * 60_000)


def test_a_link_without_a_target_is_text() -> None:
    (document,) = read_org(b"Before [[ ]] and [[ ][shown]] after.", "a.org")
    (block,) = document.sections[0].blocks
    assert block.text.split() == ["Before", "and", "shown", "after."]
    assert [link.target for link in block.links if link.target] == []
