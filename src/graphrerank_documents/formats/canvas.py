"""Parse canvases of Obsidian (JSON Canvas): their cards, and the notes and pages that they show."""

import json
from pathlib import PurePosixPath
from typing import Any

from graphrerank_documents.document import MAX_NAME, Document, Link, UnreadableError
from graphrerank_documents.formats.front_matter import front_matter
from graphrerank_documents.formats.markdown import MarkdownReader
from graphrerank_documents.formats.text import decode_text, without_blobs

_MAX_NODES = 5000


def read_canvas(content: bytes, name: str) -> list[Document]:
    """Parse a canvas. Each card is text, and each shown note or page is a link.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document. Its lines are those of the texts of the cards, one after the other.

    Raises:
        UnreadableError: If ``content`` is not a canvas.
    """
    try:
        canvas = json.loads(decode_text(content) or "{}")
    except (ValueError, RecursionError) as error:
        raise UnreadableError("not JSON") from error
    nodes = canvas.get("nodes", []) if isinstance(canvas, dict) else None
    if not isinstance(nodes, list):
        raise UnreadableError("not a canvas")
    reader, line = MarkdownReader(b"", name), 1
    for node in nodes[:_MAX_NODES]:
        text, links = _card(node if isinstance(node, dict) else {}, line)
        if links:
            reader.add(text, line, links)
        elif text:
            text, counts = without_blobs(text)
            reader.dropped = {key: reader.dropped.get(key, 0) + count for key, count in counts.items()} | reader.dropped
            reader.read(text, line)
        line += text.count("\n") + 1
    document = reader.document(front_matter("", name))
    return [document]


def _card(node: dict[str, Any], line: int) -> tuple[str, list[Link]]:
    """Return the text of a card, and its link if it shows a note, another file or a page."""
    kinds = {"text": "text", "file": "file", "link": "url", "group": "label"}
    value = node.get(kinds.get(str(node.get("type")), ""))
    if not isinstance(value, str) or not value.strip():
        return "", []
    if node["type"] == "file":
        section = node.get("subpath")
        target = f"/{value}{section if isinstance(section, str) else ''}"
        return PurePosixPath(value).stem[:MAX_NAME], [Link(target, line)]
    return value, [Link(value, line)] if node["type"] == "link" else []
