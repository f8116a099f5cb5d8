"""Sections of formats that have lines, as their parts come."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from graphrerank.data.documents.document import MAX_NAME, Block, Section


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


def sections_of(spans: Sequence[Span], end: int) -> tuple[Section, ...]:
    """Return the sections of a file, whose last line is ``end``; empty ones without a heading are left out.

    What points at a beginning without text points at the first heading.
    """
    kept = [span for span in spans if span.blocks or (span.heading and not span.goes_on)]
    for span in spans[:1] if kept and spans[0] is not kept[0] else ():
        kept[0].anchors += span.anchors
        kept[0].labels += span.labels
        kept[0].symbols += span.symbols
    lasts = [max(span.line, following.line - 1) for span, following in pairwise(kept)]
    return tuple(
        Section(
            span.heading, tuple(span.blocks), span.line, last, *map(_names, (span.anchors, span.labels, span.symbols))
        )
        for span, last in zip(kept, [*lasts, end], strict=False)
    )


def _names(names: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if 0 < len(name) <= MAX_NAME))
