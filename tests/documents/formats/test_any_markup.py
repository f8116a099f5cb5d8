"""Readers of markup never fail: on parts of a page, on marks and on bytes in any order."""

import random
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrerank_documents.document import Document, UnreadableError
from graphrerank_documents.formats.asciidoc import read_asciidoc
from graphrerank_documents.formats.latex import read_latex
from graphrerank_documents.formats.org import read_org
from graphrerank_documents.formats.restructured_text import read_rst
from tests.documents.formats import test_asciidoc, test_latex, test_org, test_restructured_text

Read = Callable[[bytes, str], list[Document]]
READERS = {
    "asciidoc": (
        read_asciidoc,
        test_asciidoc.PAGE,
        [*".:_`*|=-+<>[]#! \n", "\n\n", "|===\n", "----\n", "xref:", "<<", "a", "[[", "::"],
    ),
    "latex": (
        read_latex,
        test_latex.PAGE,
        [*"\\{}$&%[]_^~ \na", "\\section{", "\\begin{tabular}", "\\ref{", "\\item ", "\\'"],
    ),
    "org": (
        read_org,
        test_org.PAGE,
        [*":*|=-+<>[]#~ \n", "\n* ", "#+BEGIN_SRC\n", ":PROPERTIES:\n", ":ID: x\n", "[[", "]]"],
    ),
    "rst": (
        read_rst,
        test_restructured_text.PAGE,
        [*".:_`*|=-+<>[]#! \n", "\n\n", "   ", ".. ", "::", "a", ":ref:`", "class", "``"],
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_any_part_of_a_page_is_read(name: str) -> None:
    read, page, _ = READERS[name]
    rng = random.Random(0)
    for _ in range(60):
        start, end = sorted(rng.choices(range(len(page)), k=2))
        (document,) = read(page[start:end].encode(), "a.txt")
        assert all(section.line <= section.end for section in document.sections)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_marks_are_read(name: str, data: st.DataObject) -> None:
    read, _, marks = READERS[name]
    (document,) = read("".join(data.draw(st.lists(st.sampled_from(marks)))).encode(), "a.txt")
    for section in document.sections:
        assert all(block.text.strip() for block in section.blocks)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=40, deadline=None)
@given(content=st.binary())
def test_any_bytes_are_read_or_unreadable(name: str, content: bytes) -> None:
    with suppress(UnreadableError):
        assert len(READERS[name][0](content, "a.txt")) == 1
