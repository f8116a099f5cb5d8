"""Readers of formats that have lines: sections, as their blocks come."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath

from graphrerank_documents.document import MAX_NAME, MAX_TARGET, Block, Document, Link, Section
from graphrerank_documents.formats.text import decode_text, without_blobs

_MAX_MARKED = 20_000  # characters of a paragraph whose marks are read

Row = tuple[str, int, Sequence[Link]]  # a text, its line and its links


@dataclass
class Span:
    """A section that is being read."""

    heading: str
    line: int
    blocks: list[Block] = field(default_factory=list)
    anchors: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    goes_on: bool = False  # with the section around one that has ended


class LinedReader:
    """Collects the sections of a text, whose format opens them and adds their blocks."""

    def __init__(self, content: bytes, name: str) -> None:
        self.text, self.dropped = without_blobs(decode_text(content))
        self.name, self.title = name, ""
        self.spans = [Span("", 1)]
        self.links: list[Link] = []  # of a heading, for the next block
        self.mark, self.is_tight = "", False  # of the next block

    def open(self, heading: str, line: int, links: Sequence[Link] = ()) -> Span:
        """Start a section."""
        self.links += links
        self.spans.append(Span(" ".join(heading.split())[:MAX_NAME], line))
        return self.spans[-1]

    def add(
        self, text: str, line: int, links: Sequence[Link] = (), *, is_whole: bool = False, header: str = ""
    ) -> None:
        """Add a block with what waits for it, if it has a text."""
        if not text.strip():
            return
        blocks = self.spans[-1].blocks
        held = tuple(link for link in (*self.links, *links) if 0 < len(link.target) <= MAX_TARGET)
        blocks.append(Block(self.mark + text, line, held, is_whole, self.is_tight and bool(blocks), header))
        self.links, self.mark, self.is_tight = [], "", False

    def table(self, rows: Sequence[Row], headers: int) -> None:
        """Add rows, of which the first ones are the header of the others."""
        header = "\n".join(text for text, *_ in rows[:headers])
        for i, (text, line, links) in enumerate(rows[headers:] or rows[:1]):
            self.is_tight = i > 0
            self.add(text, line, links, is_whole=True, header=header if len(rows) > headers else "")

    def documents(self) -> list[Document]:
        """Return the document, titled by its first heading if it has no title."""
        sections = sections_of(self.spans, max(self.text.rstrip().count("\n") + 1, 1))
        title = self.title or next((section.heading for section in sections if section.heading), "")
        title = title or PurePosixPath(self.name).stem
        return [Document(self.name, title[:MAX_NAME], sections, dropped=self.dropped)]


def sections_of(spans: Sequence[Span], last_line: int = 0) -> tuple[Section, ...]:
    """Return the sections that were read; empty ones without a heading are left out.

    What points at a beginning without text points at the first heading.
    """
    kept = [span for span in spans if span.blocks or (span.heading and not span.goes_on)]
    for first in spans[:1] if kept and kept[0] is not spans[0] else ():
        kept[0].anchors += first.anchors
        kept[0].labels += first.labels
        kept[0].symbols += first.symbols
    ends = [max(span.line, following.line - 1) for span, following in pairwise(kept)]
    return tuple(
        Section(
            *(span.heading, tuple(span.blocks), span.line, end),
            *map(_names, (span.anchors, span.labels, span.symbols)),
        )
        for span, end in zip(kept, [*ends, last_line], strict=False)
    )


def _names(names: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if 0 < len(name) <= MAX_NAME))


def replaced(
    pattern: re.Pattern[str], shown: Callable[[re.Match[str], int, list[Link]], str], text: str, line: int
) -> tuple[str, list[Link]]:
    """Return a text with its marks as ``shown`` gives them, which notes their links, and the links."""
    links: list[Link] = []
    if len(text) > _MAX_MARKED:
        return text, links
    return pattern.sub(lambda found: shown(found, line + text.count("\n", 0, found.start()), links), text), links


class LineReader(LinedReader):
    """Reads lines one after the other: what ``line`` does not take makes paragraphs."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content, name)
        self.lines, self.at = self.text.split("\n"), 0  # the number of the line that is read, from 1
        self.held: list[str] = []  # lines of the paragraph
        self.start = 0  # its first line
        self.was_item = False

    def line(self, line: str) -> None:
        """Read a line, and perhaps what follows."""
        raise NotImplementedError

    def inline(self, text: str, line: int) -> tuple[str, list[Link]]:
        """Return the text of a paragraph without its marks, and its links."""
        raise NotImplementedError

    def read(self) -> list[Document]:
        """Read all lines."""
        while self.at < len(self.lines):
            line, self.at = self.lines[self.at].rstrip(), self.at + 1
            if line.strip():
                self.line(line)
            else:
                self.flush()
                self.was_item = False
        self.flush()
        return self.documents()

    def take(self, is_end: Callable[[str], object]) -> list[str]:
        """Take the lines before one."""
        start = self.at
        while self.at < len(self.lines) and not is_end(self.lines[self.at].rstrip()):
            self.at += 1
        return self.lines[start : self.at]

    def hold(self, line: str) -> None:
        """Add a line to the paragraph."""
        self.start = self.start if self.held else self.at
        self.held.append(line)

    def item(self, bullet: str, line: str) -> None:
        """Begin an item of a list."""
        self.flush()
        self.mark = f"{bullet}. " if bullet.isdigit() else "- "
        self.is_tight, self.was_item = self.was_item, True
        self.hold(line)

    def flush(self) -> None:
        """End the paragraph."""
        held, self.held = self.held, []
        text, links = self.inline("\n".join(map(str.strip, held)), self.start)
        self.add(" ".join(text.split()), self.start, links)
        self.mark, self.is_tight = "", False

    def whole(self, lines: Sequence[str], line: int) -> None:
        """Add lines as they are."""
        self.add("\n".join(lines).strip("\n").rstrip(), line, is_whole=True)
