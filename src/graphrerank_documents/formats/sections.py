"""Collect the sections of formats without line numbers."""

from collections.abc import Callable, Iterable

from graphrerank_documents.document import MAX_NAME, MAX_TARGET, Block, Link, Section
from graphrerank_documents.formats.lined_reader import Span, sections_of

_TIGHT = {  # pairs of kinds of blocks without an empty line between them
    *(("item", "item"), ("row", "row"), ("term", "meaning"), ("meaning", "meaning")),
    *(("sign", "sign"), ("sign", "meaning")),
}


class Sections:
    """Builder of the sections of a document."""

    def __init__(self) -> None:
        self.titled = ""  # first heading of level 1
        self._spans = [Span("", 0)]
        self._links: list[Link] = []  # links for the next block
        self._last = ""  # kind of the previous block

    def start(self, heading: str, anchors: Iterable[str] = (), *, level: int = 2, symbol: str = "") -> None:
        """Start a section. Pending links are added to the next block.

        Args:
            heading: Heading of the section.
            anchors: Fragments of URLs that point to the section.
            level: Level of the heading, 1 for the title of the document.
            symbol: Qualified name in code that the section documents, or empty.
        """
        span = Span(heading[:MAX_NAME], 0, anchors=[*anchors], symbols=[symbol])
        self._spans.append(span)
        self._last = ""
        if level == 1:
            self.titled = self.titled or span.heading

    def point(self, anchors: Iterable[str]) -> None:
        """Add anchors to the current section.

        Args:
            anchors: Fragments of URLs that point to the section.
        """
        self._spans[-1].anchors += anchors

    def link(self, target: str) -> None:
        """Add a link to the next block.

        Args:
            target: URL or path. Empty and very long targets are ignored.
        """
        if 0 < len(target) <= MAX_TARGET:
            self._links.append(Link(target))

    def add(self, text: str, kind: str = "", *, is_whole: bool = False, header: str = "") -> None:
        """Add a block to the current section.

        Args:
            text: Text of the block. An empty text is ignored.
            kind: ``item``, ``row``, ``term``, ``meaning`` (definition of a term), ``sign`` (signature), or empty for
                other blocks. Determines whether there is an empty line before the block.
            is_whole: Whether the block is indivisible (see :class:`~graphrerank_documents.document.Block`).
            header: Header of the table for a row.
        """
        if text:
            is_tight = (self._last, kind) in _TIGHT
            block = Block(text, links=tuple(self._links), is_whole=is_whole, is_tight=is_tight, header=header)
            self._spans[-1].blocks.append(block)
            self._links, self._last = [], kind

    def end(self, others: Iterable[str] = (), is_menu: Callable[[Block], bool] | None = None) -> tuple[Section, ...]:
        """Return the sections.

        Args:
            others: All anchors of the document. Anchors without a section are added to the first section.
            is_menu: Function that returns whether a block is a menu. Menus before the first heading are dropped. If
                None, all blocks are kept.
        """
        if self._links:
            self.add(self._spans[-1].heading or self._links[0].target)
        first = self._spans[0]
        if is_menu and len(self._spans) > 1:
            first.blocks = [block for block in first.blocks if not is_menu(block)]
        known = {name for span in self._spans for name in span.anchors}
        first.anchors += (name for name in others if name not in known)
        return sections_of(self._spans)

    @property
    def size(self) -> int:
        """Number of characters in all blocks."""
        return sum(len(block.text) for span in self._spans for block in span.blocks)
