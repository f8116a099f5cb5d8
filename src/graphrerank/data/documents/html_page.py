"""HTML to documents: what a page shows, with its links at their places."""

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

from graphrerank.data.documents.document import Document, Section, text_of

HIDDEN = frozenset(("script", "style", "noscript", "template", "svg"))
_HEADINGS = frozenset(f"h{level}" for level in range(1, 7))
_BLOCK_TAGS = """address article aside blockquote br caption dd div dl dt fieldset figcaption figure footer form header
hr legend li main nav ol option p pre section summary table tr ul"""
_BLOCKS = frozenset(_BLOCK_TAGS.split())
_CELLS = frozenset(("td", "th"))
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"  # mark a link; no characters
_MARK = re.compile(rf"{_OPEN}(\d+){_CLOSE}")


def read_html(path: Path, name: str) -> list[Document]:
    """Read what a page shows; scripts and styles are left out."""
    parser = _PageParser()
    parser.feed(text_of(path, is_page=True))
    parser.close()
    sections = tuple(_section(heading, parts, parser.targets) for heading, parts in parser.sections)
    return [Document(name, " ".join(parser.title.split()) or path.stem, sections)]


class _PageParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.sections: list[tuple[str, list[str]]] = [("", [])]
        self.targets: list[str] = []  # of links, by their number
        self._within: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in HIDDEN or tag in _HEADINGS or tag == "title":
            self._within.append(tag)
            if tag in _HEADINGS:
                self.sections.append(("", []))
        self._break(tag)
        target = dict(attrs).get("href")
        if tag == "a" and target:
            self.sections[-1][1].append(f"{_OPEN}{len(self.targets)}{_CLOSE}")
            self.targets.append(target.strip())

    def handle_endtag(self, tag: str) -> None:
        if tag in self._within:
            del self._within[len(self._within) - 1 - self._within[::-1].index(tag) :]
        else:
            self._break(tag)

    def _break(self, tag: str) -> None:
        if tag in _BLOCKS:
            self.sections[-1][1].append("\n" if tag == "br" else "\n\n")
        elif tag in _CELLS:
            self.sections[-1][1].append(" ")

    def handle_data(self, data: str) -> None:
        if HIDDEN.intersection(self._within):
            return
        if "title" in self._within:
            self.title += data
        elif self._within:
            heading, parts = self.sections[-1]
            self.sections[-1] = (heading + data, parts)
        else:
            self.sections[-1][1].append(data.replace(_OPEN, "").replace(_CLOSE, ""))


def _section(heading: str, parts: Sequence[str], targets: Sequence[str]) -> Section:
    """Join the parts of a section's text to paragraphs, and find the places of its links."""
    blocks = (" ".join(block.split()) for block in re.split(r"\n\s*\n", "".join(parts)))
    marked = "\n\n".join(filter(None, blocks))
    texts, links, size, end = [], [], 0, 0
    for mark in _MARK.finditer(marked):
        texts.append(marked[end : mark.start()])
        size, end = size + mark.start() - end, mark.end()
        links.append((size, targets[int(mark[1])]))
    text = "".join([*texts, marked[end:]])
    lead = len(text) - len(text.lstrip())
    return Section(" ".join(heading.split()), text.strip(), tuple((max(0, at - lead), to) for at, to in links))
