"""Sections of formats that have no lines, as their blocks come."""

from collections.abc import Callable, Iterable

from graphrerank_documents.document import MAX_NAME, MAX_TARGET, Block, Link, Section
from graphrerank_documents.formats.lined_reader import Span, sections_of

_TIGHT = {  # kinds of blocks that follow one another without an empty line
    *(("item", "item"), ("row", "row"), ("term", "meaning"), ("meaning", "meaning")),
    *(("sign", "sign"), ("sign", "meaning")),
}


class Sections:
    """Collects the sections of a document."""

    def __init__(self) -> None:
        self.titled = ""  # the first heading of the first level
        self._spans = [Span("", 0)]
        self._links: list[Link] = []  # that wait for a text
        self._last = ""  # kind of the block before

    def start(self, heading: str, anchors: Iterable[str] = (), *, level: int = 2, symbol: str = "") -> None:
        """End the section before and start one; links without a text go to the next block."""
        span = Span(heading[:MAX_NAME], 0, anchors=[*anchors], symbols=[symbol])
        self._spans.append(span)
        self._last = ""
        if level == 1:
            self.titled = self.titled or span.heading

    def point(self, anchors: Iterable[str]) -> None:
        """Add names that point at the present section."""
        self._spans[-1].anchors += anchors

    def link(self, target: str) -> None:
        """Add a link, which belongs to the next block."""
        if 0 < len(target) <= MAX_TARGET:
            self._links.append(Link(target))

    def add(self, text: str, kind: str = "", *, is_whole: bool = False, header: str = "") -> None:
        """Add a block, of a kind that tells whether it is tight: item, row, term, meaning, sign or none."""
        if text:
            is_tight = (self._last, kind) in _TIGHT
            block = Block(text, links=tuple(self._links), is_whole=is_whole, is_tight=is_tight, header=header)
            self._spans[-1].blocks.append(block)
            self._links, self._last = [], kind

    def end(self, others: Iterable[str] = (), is_menu: Callable[[Block], bool] | None = None) -> tuple[Section, ...]:
        """Return the sections without menus before their headings; other names than theirs point at the first one."""
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
        """Characters of the blocks."""
        return sum(len(block.text) for span in self._spans for block in span.blocks)
