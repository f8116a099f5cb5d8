"""Documents to passages: cut at headings, then blocks, sentences, words, and characters at last."""

from collections.abc import Iterator
from dataclasses import dataclass

from graphrerank.data.documents.document import Document, Link
from graphrerank.text.languages import ENGLISH

MAX_CHARS = 4000  # of a passage's text; only there a block is cut that should stay whole


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of a document."""

    id: str  # its document's name, `#` and its section's own anchor, `~2` for the second passage of a section
    title: str  # "page > section"
    text: str
    document: str  # the name of its document
    number: int  # within the document, from 0
    heading: str  # of its section
    section: int  # the number of its section within the document, from 0
    line: int = 0  # the first line in the file, from 1; 0 where the format has no lines
    links: tuple[Link, ...] = ()


def passages_of(
    document: Document, *, max_words: int, max_chars: int = MAX_CHARS, language: str = ENGLISH
) -> Iterator[Passage]:
    """Yield the passages of a document, of at most ``max_words`` words of the language where its blocks allow it."""
    raise NotImplementedError
