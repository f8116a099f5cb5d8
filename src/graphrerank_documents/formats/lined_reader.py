"""Base classes of readers for formats with line numbers."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath
from typing import NamedTuple

from graphrerank_documents.document import MAX_NAME, MAX_TARGET, Block, Document, Link, Section
from graphrerank_documents.formats.text import decode_text, without_blobs

_MAX_MARKED = 20_000  # maximum number of characters of a paragraph whose inline markup is parsed


class Row(NamedTuple):
    """Row of a table.

    Attributes:
        text: Text of the cells, separated by ``|``.
        line: First line of the row, 1-based.
        links: Links in the cells.
    """

    text: str
    line: int
    links: Sequence[Link]


@dataclass
class Span:
    """Section under construction. See :class:`~graphrerank_documents.document.Section`.

    Attributes:
        heading: Heading as plain text.
        line: First line, 1-based, or 0 if the format has no lines.
        blocks: Blocks of the section.
        anchors: Fragments of URLs that point to the section.
        labels: Names that point to the section from any document.
        symbols: Qualified names in code that the section documents.
        goes_on: Whether the section continues the enclosing section after a nested one. Dropped if it has no blocks.
    """

    heading: str
    line: int
    blocks: list[Block] = field(default_factory=list)
    anchors: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    goes_on: bool = False


class LinedReader:
    """Base class of readers for formats with line numbers. Subclasses open sections and add blocks.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.
    """

    def __init__(self, content: bytes, name: str) -> None:
        self.text, self.dropped = without_blobs(decode_text(content))
        self.name, self.title = name, ""
        self.spans = [Span("", 1)]
        self.links: list[Link] = []  # links in a heading, for the next block
        self.mark, self.is_tight = "", False  # list marker of the next block, and its value of `is_tight`

    def open(self, heading: str, line: int, links: Sequence[Link] = ()) -> Span:
        """Start a section.

        Args:
            heading: Heading of the section.
            line: Line of the heading, 1-based.
            links: Links in the heading, which are added to the next block.

        Returns:
            New section, to which blocks are added.
        """
        self.links += links
        self.spans.append(Span(" ".join(heading.split())[:MAX_NAME], line))
        return self.spans[-1]

    def add(
        self, text: str, line: int, links: Sequence[Link] = (), *, is_whole: bool = False, header: str = ""
    ) -> None:
        """Add a block to the current section, with the pending links and list marker.

        Args:
            text: Text of the block. A blank text is ignored.
            line: First line of the block, 1-based.
            links: Links in the block.
            is_whole: Whether the block is indivisible (see :class:`~graphrerank_documents.document.Block`).
            header: Header of the table for a row.
        """
        if not text.strip():
            return
        blocks = self.spans[-1].blocks
        valid_links = tuple(link for link in (*self.links, *links) if 0 < len(link.target) <= MAX_TARGET)
        is_tight = self.is_tight and bool(blocks)
        blocks.append(Block(self.mark + text, line, valid_links, is_whole, is_tight, header))
        self.links, self.mark, self.is_tight = [], "", False

    def table(self, rows: Sequence[Row], headers: int) -> None:
        """Add the rows of a table.

        Args:
            rows: Rows, including the header.
            headers: Number of header rows at the start.
        """
        header = "\n".join(row.text for row in rows[:headers]) if len(rows) > headers else ""
        for index, row in enumerate(rows[headers:] or rows[:1]):  # a header without rows is itself a row
            self.is_tight = index > 0
            self.add(row.text, row.line, row.links, is_whole=True, header=header)

    def documents(self) -> list[Document]:
        """Return the document. Without a title, the first heading or the name of the file is used."""
        sections = sections_of(self.spans, max(self.text.rstrip().count("\n") + 1, 1))
        title = self.title or next((section.heading for section in sections if section.heading), "")
        title = title or PurePosixPath(self.name).stem
        return [Document(self.name, title[:MAX_NAME], sections, dropped=self.dropped)]


def sections_of(spans: Sequence[Span], last_line: int = 0) -> tuple[Section, ...]:
    """Return the finished sections. Sections without heading and text are dropped.

    If there is no text before the first heading, its anchors and labels are added to the first remaining section.

    Args:
        spans: Sections in order.
        last_line: Last line of the document, or 0 if the format has no lines.
    """
    remaining = [span for span in spans if span.blocks or (span.heading and not span.goes_on)]
    if remaining and remaining[0] is not spans[0]:
        remaining[0].anchors += spans[0].anchors
        remaining[0].labels += spans[0].labels
        remaining[0].symbols += spans[0].symbols
    ends = [max(span.line, following.line - 1) for span, following in pairwise(remaining)]
    return tuple(
        Section(
            span.heading,
            tuple(span.blocks),
            span.line,
            end,
            anchors=_names(span.anchors),
            labels=_names(span.labels),
            symbols=_names(span.symbols),
        )
        for span, end in zip(remaining, [*ends, last_line], strict=False)
    )


def _names(names: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if 0 < len(name) <= MAX_NAME))


def replaced(
    pattern: re.Pattern[str], shown: Callable[[re.Match[str], int, list[Link]], str], text: str, line: int
) -> tuple[str, list[Link]]:
    """Replace inline markup and collect the links in it.

    Args:
        pattern: Pattern of the markup.
        shown: Function that returns the replacement of a match. It receives the match, its line and a list to which it
            appends links.
        text: Text of a paragraph. Very long paragraphs are returned unchanged.
        line: First line of the paragraph, 1-based.

    Returns:
        Text without markup, and its links.
    """
    links: list[Link] = []
    if len(text) > _MAX_MARKED:
        return text, links

    def replacement(found: re.Match[str]) -> str:
        line_of_match = line + text.count("\n", 0, found.start())
        return shown(found, line_of_match, links)

    return pattern.sub(replacement, text), links


class LineReader(LinedReader):
    """Base class of readers that parse one line at a time and join the other lines to paragraphs.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.
    """

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content, name)
        self.lines = self.text.split("\n")
        self.line_number = 0  # number of consumed lines, which is the current line, 1-based
        self.paragraph: list[str] = []  # lines of the current paragraph
        self.start = 0  # first line of the paragraph
        self.was_item = False  # whether the last element was a list item, so that the next item is tight

    def line(self, line: str) -> None:
        """Parse a line, and the following lines if they belong to the same element.

        Args:
            line: Line without trailing white space, not empty.
        """
        raise NotImplementedError

    def inline(self, text: str, line: int) -> tuple[str, list[Link]]:
        """Return the text of a paragraph without inline markup, and its links.

        Args:
            text: Text of the paragraph.
            line: First line of the paragraph, 1-based.
        """
        raise NotImplementedError

    def read(self) -> list[Document]:
        """Return the document after parsing all lines."""
        while self.line_number < len(self.lines):
            line = self.lines[self.line_number].rstrip()
            self.line_number += 1
            if line:
                self.line(line)
            else:
                self.flush()
                self.was_item = False
        self.flush()
        return self.documents()

    def take(self, is_end: Callable[[str], object]) -> list[str]:
        """Consume the lines up to an end line.

        Args:
            is_end: Function that returns whether a line is the end line, which is not consumed.

        Returns:
            Consumed lines. All remaining lines if there is no end line.
        """
        start = self.line_number
        while self.line_number < len(self.lines) and not is_end(self.lines[self.line_number].rstrip()):
            self.line_number += 1
        return self.lines[start : self.line_number]

    def hold(self, line: str) -> None:
        """Add a line to the current paragraph.

        Args:
            line: Text of the line.
        """
        if not self.paragraph:
            self.start = self.line_number
        self.paragraph.append(line)

    def item(self, bullet: str, line: str) -> None:
        """Start a list item.

        Args:
            bullet: Bullet, or the number of the item.
            line: Text of the first line.
        """
        self.flush()
        self.mark = f"{bullet}. " if bullet.isdigit() else "- "
        self.is_tight, self.was_item = self.was_item, True
        self.hold(line)

    def flush(self) -> None:
        """End the current paragraph and add it as a block."""
        lines, self.paragraph = self.paragraph, []
        text, links = self.inline("\n".join(map(str.strip, lines)), self.start)
        self.add(" ".join(text.split()), self.start, links)
        self.mark, self.is_tight = "", False

    def whole(self, lines: Sequence[str], line: int) -> None:
        """Add lines as an indivisible block without parsing markup.

        Args:
            lines: Lines of the block.
            line: Line number of the first one, 1-based.
        """
        self.add("\n".join(lines).strip("\n").rstrip(), line, is_whole=True)
