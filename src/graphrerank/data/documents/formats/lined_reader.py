"""Readers of formats that have lines: sections, as their blocks come."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath

from graphrerank.data.documents.document import MAX_NAME, MAX_TARGET, Block, Document, Link, Section
from graphrerank.data.documents.formats.text import decode_text, without_blobs

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
