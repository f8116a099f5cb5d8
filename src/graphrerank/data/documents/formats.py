"""Files to documents, one function for each format, and texts to passages."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from graphrerank.data.documents.document import Document, Section, UnreadableError, text_of
from graphrerank.data.documents.html_page import read_html
from graphrerank.data.documents.markdown import read_markdown
from graphrerank.data.documents.records import read_json, read_jsonl, read_table
from graphrerank.extras import optional
from graphrerank.text.languages import UNSPACED

_WORD = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\s{UNSPACED}]+")


def read_text(path: Path, name: str) -> list[Document]:
    """Read a text or a program as one section."""
    return [Document(name, path.name, (Section("", text_of(path).strip()),))]


def read_pdf(path: Path, name: str) -> list[Document]:
    """Read the text layer of a PDF file, a section for each page."""
    pypdf = optional("pypdf", "a PDF file")
    try:
        reader = pypdf.PdfReader(path)
        pages = [page.extract_text() for page in reader.pages]
        title = str((reader.metadata or {}).get("/Title") or "")
    except Exception as error:  # a parser of untrusted files fails in many ways
        raise UnreadableError("cannot be read as PDF") from error
    return [Document(name, title or path.stem, tuple(Section("", page.strip()) for page in pages))]


Read = Callable[[Path, str], list[Document]]
PROGRAMS = "c cc cpp cs css go h hpp java js jsx kt lua php pl py r rb rs scala sh sql swift toml ts tsx yaml yml"
FORMATS: dict[str, Read] = {
    **dict.fromkeys((".md", ".markdown"), read_markdown),
    **dict.fromkeys((".html", ".htm", ".xhtml"), read_html),
    **dict.fromkeys((".txt", ".rst", ".tex", *(f".{name}" for name in PROGRAMS.split())), read_text),
    ".json": read_json,
    **dict.fromkeys((".jsonl", ".ndjson"), read_jsonl),
    **dict.fromkeys((".csv", ".tsv"), read_table),
    ".pdf": read_pdf,
}


def divide(text: str, max_words: int) -> Iterator[tuple[int, str]]:
    r"""Divide a text into chunks of at most ``max_words`` words, at the ends of paragraphs where that can be.

    Two characters of a script without spaces are a word. Each chunk comes with its place in the text.

    Example:
        >>> list(divide("a b\n\nc d\n\ne f g h i", 4))
        [(0, 'a b\n\nc d'), (10, 'e f g h'), (18, 'i')]
    """
    start, end, size = 0, 0, 0  # of the chunk, and its words
    for first, last in _paragraphs(text):
        words = [first + word.start() for word in _WORD.finditer(text[first:last])]
        if size and size + len(words) > max_words:
            yield start, text[start:end].strip()
            size = 0
        start = start if size else first
        done = 0
        while len(words) - done > max_words:
            cut = words[done + max_words]
            yield start, text[start:cut].strip()
            start, done = cut, done + max_words
        size, end = size + len(words) - done, last
    if size:
        yield start, text[start:end].strip()


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each paragraph starts and ends."""
    start = 0
    for gap in re.finditer(r"\n\s*\n", text):
        yield start, gap.start()
        start = gap.end()
    yield start, len(text)
