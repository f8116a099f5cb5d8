"""What canvases of Obsidian show."""

import json

import pytest

from graphrerank_documents.reading import read_content

NODES = [
    {"id": "1", "type": "text", "text": "See [[Pump]].\n\n- one"},
    {"id": "2", "type": "file", "file": "notes/Tank.md", "subpath": "#Use"},
    {"id": "3", "type": "link", "url": "https://example.org/x"},
    {"id": "4", "type": "group", "label": "Valves"},
    {"id": "5", "type": "file", "file": 4},
    "damaged",
]


def test_cards_are_text_and_links() -> None:
    (document,) = read_content(json.dumps({"nodes": NODES, "edges": []}).encode(), "a/Plan.canvas").documents
    assert document.title == "Plan"
    (section,) = document.sections
    assert [(block.text, [link.target for link in block.links]) for block in section.blocks] == [
        ("See Pump.", ["Pump"]),
        ("- one", []),
        ("Tank", ["/notes/Tank.md#Use"]),
        ("https://example.org/x", ["https://example.org/x"]),
        ("Valves", []),
    ]


@pytest.mark.parametrize(
    ("content", "reason"), [(b"{", "not JSON"), (b"[]", "not a canvas"), (b'{"nodes": 1}', "not a canvas")]
)
def test_what_is_no_canvas(content: bytes, reason: str) -> None:
    assert read_content(content, "a.canvas").reason == reason


def test_an_empty_canvas_has_no_text() -> None:
    (document,) = read_content(b"", "a.canvas").documents
    assert document.sections == ()
