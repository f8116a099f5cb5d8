"""What the tests of document formats read from a document."""

from pathlib import Path

from graphrerank_documents.document import Document, Link
from graphrerank_documents.formats.restructured_text import read_rst


def read_page(text: str) -> Document:
    """Parse a page in reStructuredText."""
    (document,) = read_rst(text.encode(), "docs/page.rst")
    return document


def all_links(document: Document) -> list[Link]:
    """Return the links of all sections of a document."""
    return [link for section in document.sections for block in section.blocks for link in block.links]


def edges_of(folder: Path) -> list[tuple[str, ...]]:
    """Return source, target and type of each edge of a data set folder, none if it has no file of edges."""
    path = folder / "edges.tsv"
    return [tuple(line.split("\t")) for line in path.read_text().splitlines()[1:]] if path.exists() else []


def link_rows(document: Document) -> list[tuple[str, str, int]]:
    """Return kind, target and line of each link of a document."""
    return [(link.kind, link.target, link.line) for link in all_links(document)]
