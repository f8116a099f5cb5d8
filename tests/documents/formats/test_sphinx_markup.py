from graphrerank_documents.document import Section
from tests.support.documents import all_links, link_rows, read_page


def _texts(section: Section) -> list[str]:
    return [block.text for block in section.blocks]


def test_contents_are_links_to_documents() -> None:
    document = read_page(
        ".. toctree::\n   :glob:\n\n   install\n   The limits <sub/limits.rst>\n   guides/*\n   self\n   W <https://e.org>\n"
    )
    assert _texts(document.sections[0]) == ["install\nThe limits\nguides/*\nW"]
    assert link_rows(document) == [
        ("document", "install", 4),
        ("document", "sub/limits", 5),
        ("document", "guides/*", 6),
        ("path", "https://e.org", 8),
    ]


def test_objects_are_sections_with_symbols() -> None:
    document = read_page(
        "API\n===\n\n.. currentmodule:: pump\n\n.. class:: Motor(power)\n\n   Turns.\n\n   .. py:method:: start()\n\n"
        "      Starts, see :func:`~pump.core.stop` and :meth:`!own`.\n\nAfter.\n\n.. autofunction:: pump.run\n\n"
        ".. confval:: power\n\n   Watts.\n\n.. setting:: MODE\n\nThe mode\n--------\n\nSee :confval:`power`.\n"
    )
    shown = [(section.heading, section.line, section.end, section.symbols) for section in document.sections]
    assert shown == [
        ("API", 1, 5, ()),
        ("Motor(power)", 6, 9, ("pump.Motor",)),
        ("start()", 10, 12, ("pump.Motor.start",)),
        ("API", 13, 17, ("pump.run",)),
        ("power", 18, 23, ("confval:power",)),
        ("The mode", 24, 27, ("setting:MODE",)),
    ]
    assert document.sections[2].anchors == ("pump.Motor.start",)
    assert [link.target for link in all_links(document)] == ["pump.core.stop", "confval:power"]


def test_directives_show_their_content_and_open_nothing() -> None:
    document = read_page(
        ".. versionadded:: 3.2\n   Faster.\n\n.. tab-set::\n\n   .. tab-item:: Linux\n\n      Use :ref:`apt`.\n\n"
        ".. figure:: a.png\n   :alt: A pump\n\n   The caption\n\n.. raw:: t\n\n   <b>\n\n.. include:: /etc/passwd\n\n"
        ".. literalinclude:: ../run.py\n\n.. glossary::\n\n   bar\n   Bars\n      Of pressure.\n\n.. rubric:: Notes\n\n"
        "1. one\n2. two\n\n   more\n\nterm\n   What it is.\n\n[1]_ and |version|\n\n.. [1] A note.\n"
    )
    first, term, last = document.sections
    assert _texts(first) == [
        *("New in version 3.2 Faster.", "Linux", "Use apt.", "A pump", "The caption", "/etc/passwd", "../run.py")
    ]
    assert (term.heading, term.labels, _texts(term)) == ("bar, Bars", ("term:bar", "term:bars"), ["Of pressure."])
    assert _texts(last) == [
        *("Notes", "1. one", "2. two", "more", "term\nWhat it is.", "[1] and version", "[1] A note.")
    ]
    assert [link.kind for link in all_links(document)] == ["label", "path", "path"]
