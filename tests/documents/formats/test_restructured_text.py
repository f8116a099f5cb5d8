import pytest

from graphrerank_documents.reading import read_content
from tests.support.documents import all_links, link_rows, read_page

PAGE = """\
:orphan:

.. _pump-install:

Installing :doc:`the pump </pump>`
==================================

Put it on level ground. See :ref:`Limits of
pressure <Max Limits>`, :doc:`../intro`, :term:`Bar`, `a page <sub/limits.rst>`_,
`first start`_ and |name|. Nothing links ``:ref:`code```.

.. |name| replace:: the `maker <https://example.org>`__

.. comment :ref:`hidden`

First start
-----------

Press::

   :ref:`not a link`

.. code-block:: python
   :caption: Pressing

   press(":doc:`no`")

`Done`__.

__ other.html

Übersicht
~~~~~~~~~
"""


def test_sections_have_lines_anchors_and_labels() -> None:
    document = read_page(PAGE)
    first, start, last = document.sections
    assert document.title == first.heading == "Installing the pump"
    assert (first.line, first.end, start.line, start.end) == (5, 15, 16, 31)
    assert (first.anchors, first.labels) == (("pump-install", "installing-the-pump"), ("pump-install",))
    assert start.anchors == ("first-start",)
    assert last.anchors == ("ubersicht",)
    assert [(block.text, block.is_whole) for block in start.blocks] == [
        ("Press:", False),
        (":ref:`not a link`", True),
        ("Pressing", False),
        ('press(":doc:`no`")', True),
        ("Done.", False),
    ]


def test_links_have_kinds_and_lines() -> None:
    assert link_rows(read_page(PAGE)) == [
        ("document", "/pump", 5),
        ("label", "max limits", 8),
        ("document", "../intro", 9),
        ("label", "term:bar", 9),
        ("path", "sub/limits.rst", 9),
        ("path", "#first-start", 10),
        ("path", "https://example.org", 10),
        ("path", "other.html", 28),
    ]


@pytest.mark.parametrize(
    "table",
    [
        "==== =====\nName Value\n==== =====\na    :ref:`b`\nc    d\n==== =====\n",
        "+----+---------+\n|Name|Value    |\n+====+=========+\n|a   |:ref:`b` |\n+----+---------+\n|c   |d        |\n"
        "+----+---------+\n",
        '.. csv-table::\n   :header: Name, Value\n\n   a, ":ref:`b`"\n   c, d\n',
        ".. list-table::\n   :header-rows: 1\n\n"
        "   * - Name\n     - Value\n"
        "   * - a\n     - :ref:`b`\n   * - c\n     - d\n",
    ],
)
def test_rows_of_tables_have_the_header(table: str) -> None:
    document = read_page(table)
    rows = document.sections[0].blocks
    assert [(row.text, row.header, row.is_tight) for row in rows] == [
        ("a | b", "Name | Value", False),
        ("c | d", "Name | Value", True),
    ]
    assert [link.target for link in all_links(document)] == ["b"]


def test_titles_of_any_level_and_long_files_keep_all_sections() -> None:
    parts = [f".. _l{i}:\n\nTitle {i}\n{'=-~^'[i % 4] * 9}\n\nSee `Title {i + 1}`_.\n" for i in range(300)]
    document = read_page("\n".join(parts))
    assert [section.labels for section in document.sections] == [(f"l{i}",) for i in range(300)]
    assert [section.line for section in document.sections] == [3 + 7 * i for i in range(300)]
    assert [link.target for link in all_links(document)] == [f"#title-{i}" for i in range(1, 300)]


def test_other_users_of_docutils_keep_their_directives() -> None:
    from docutils.core import publish_doctree

    read_page(PAGE)
    tree = publish_doctree(":ref:`a`\n\n.. toctree::\n", settings_overrides={"report_level": 5})
    assert tree.astext().count("Unknown") == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("".join(" " * i + "- a\n\n" for i in range(500)), "RecursionError"),
        ("a " * 30_000, "more than 50,000 characters in a line"),
        ("a\n\n" * 1_100_000, "3,000,000 in the file"),
    ],
)
def test_bombs_are_unreadable(text: str, reason: str) -> None:
    assert reason in read_content(text.encode(), "bomb.rst").reason


@pytest.mark.parametrize("mark", [":ref:`a ", "`a <", "*a **b `` | ", ".. |a| replace:: |a| |a|\n\n|a| "])
def test_many_marks_of_a_paragraph_are_read_to_the_end(mark: str) -> None:
    assert read_page((mark * 12_000)[:48_000]).name == "docs/page.rst"
