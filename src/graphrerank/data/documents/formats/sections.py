"""Sections of formats that have no lines, as their blocks come."""

from collections.abc import Iterable

from graphrerank.data.documents.document import MAX_NAME, MAX_TARGET, Block, Link, Section

_TIGHT = frozenset(
    (
        ("item", "item"),
        ("row", "row"),
        ("term", "meaning"),
        ("meaning", "meaning"),
        ("sign", "sign"),
        ("sign", "meaning"),
    )
)


class Sections:
    """Collects the sections of a document."""

    def __init__(self, *, is_labelled: bool = False) -> None:
        self._is_labelled = is_labelled  # whether anchors point at their section from any document
        self.titled = ""  # the first heading of the first level
        self._sections: list[Section] = []
        self._heading = ""
        self._symbols: list[str] = []
        self._anchors: list[str] = []
        self._blocks: list[Block] = []
        self._links: list[Link] = []  # that wait for a text
        self._last = ""  # kind of the block before

    def start(self, heading: str, anchors: Iterable[str] = (), *, level: int = 2, symbol: str = "") -> None:
        """End the section before and start one; links without a text go to the next block."""
        self._end()
        self._heading = heading[:MAX_NAME]
        self._symbols = [symbol] if symbol else []
        self.point(anchors)
        if level == 1 and not self.titled:
            self.titled = self._heading

    def point(self, anchors: Iterable[str]) -> None:
        """Add names that point at the present section."""
        self._anchors.extend(anchors)

    def link(self, target: str, kind: str = "path") -> None:
        """Add a link, which belongs to the next block."""
        if target and len(target) <= MAX_TARGET:
            self._links.append(Link(target, kind=kind))

    def add(self, text: str, kind: str = "", *, is_whole: bool = False, header: str = "") -> None:
        """Add a block, of a kind that tells whether it is tight: item, row, term, meaning, sign or none."""
        if text:
            is_tight = (self._last, kind) in _TIGHT
            block = Block(text, links=tuple(self._links), is_whole=is_whole, is_tight=is_tight, header=header)
            self._blocks.append(block)
            self._links, self._last = [], kind

    def end(self) -> tuple[Section, ...]:
        """Return the sections."""
        if self._links:
            self.add(self._heading or self._links[0].target)
        self._end()
        return tuple(self._sections)

    @property
    def has_heading(self) -> bool:
        """Whether a heading has come."""
        return bool(self._sections or self._heading)

    @property
    def size(self) -> int:
        """Characters of the blocks."""
        return sum(len(block.text) for section in self._sections for block in section.blocks)

    def _end(self) -> None:
        if self._heading or self._blocks:
            anchors = tuple(dict.fromkeys(name for name in self._anchors if 0 < len(name) <= MAX_NAME))
            symbols = tuple(dict.fromkeys(self._symbols))
            labels = anchors if self._is_labelled else ()
            section = Section(self._heading, tuple(self._blocks), anchors=anchors, labels=labels, symbols=symbols)
            self._sections.append(section)
            self._anchors = []
        self._heading, self._blocks, self._last = "", [], ""
