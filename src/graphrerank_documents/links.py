"""Links of documents to edges between passages, with an account of those that lead nowhere."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, cached_property
from posixpath import dirname, join, normpath, splitext
from typing import NamedTuple
from unicodedata import combining, normalize
from urllib.parse import unquote

from graphrerank.utils.safe_loading import shown_name
from graphrerank_documents.document import DOCUMENT, LABEL, PAGE, SYMBOL, Document, Link
from graphrerank_documents.pages import FILE, NOWHERE, OUTSIDE, PageNames, Pages
from graphrerank_documents.passages import Passage
from graphrerank_documents.readers import suffix_of
from graphrerank_documents.site import Site
from graphrerank_documents.symbols import SymbolIndex

SHOWN = 3  # links that lead nowhere in the account's text
_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//(?:www\.)?(.*)", re.IGNORECASE | re.DOTALL)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_COMPUTED = re.compile(r"\{\{|\{%|\$\{|<%")  # by a template of which the reader does not know the result
_LINE = re.compile(r"L(\d{1,9})(?:\D.*)?")  # of a file, as code hosts write it
_BUILT = ("genindex", "modindex", "py-modindex", "search", "self")  # pages that Sphinx makes
_GLOB = re.compile(r"[*?\[]")
_MAX_PATTERNS = 1000  # of names of documents, each of which is compared with all

Place = tuple[int, int | None]  # a document's number and its section's; None for the page as a whole


@dataclass(frozen=True)
class LinkAccount:
    """Account of the links between documents; links of code and to other sites are counted apart."""

    within: int  # of kinds path, page, document and label that point into the folder, but not to their own section
    resolved: int
    to_section: int  # of those that are resolved
    # document, line and target of those that lead nowhere; the page of a missing section has an edge all the same
    dead: Sequence[tuple[str, int, str]] = ()
    foreign: int = 0  # to other sites, and to places outside the folder
    code: Mapping[str, int] = field(default_factory=dict)  # edges between code, by type: import, call, inherits, tests

    def __str__(self) -> str:
        """Say how many links lead where, the first of those that lead nowhere, and the edges of code."""
        links = f"{self.within:,} link{'s' * (self.within != 1)} within the folder: {self.resolved:,} resolved"
        links += f" ({self.to_section:,} to a section)"
        if self.dead:
            shown = (
                f"{shown_name(name)}{f':{line}' * (line > 0)} -> {shown_name(target)}"
                for name, line, target in self.dead[:SHOWN]
            )
            links += f", {len(self.dead):,} lead nowhere: {', '.join([*shown, *['...'] * (len(self.dead) > SHOWN)])}"
        edges = ", ".join(f"{count:,} {name}" for name, count in sorted(self.code.items()))
        return f"{links}\nedges of code: {edges}" if edges else links


class _Found(NamedTuple):
    """What a link to the folder points at: nothing if it leads nowhere."""

    places: tuple[Place, ...] = ()
    missing: str = ""  # what a page lacks


def resolve_links(
    documents: Sequence[Document],
    passages: Sequence[Passage],
    site: Site | None = None,
    files: Collection[str] = (),
    symbols: SymbolIndex | None = None,
) -> tuple[list[tuple[str, str, str]], LinkAccount]:
    """Return the edges (source, target and type, each once, in order) and the account.

    ``documents`` may come without their sections' blocks; ``files`` are the paths of all files in the folder, read or
    not. A link to a section without a passage is an edge to the next one that has one, or else to the page's first. A
    link to a section that its page lacks is an edge to the page, and counts as one that leads nowhere.
    """
    resolver = _Resolver(documents, site or Site(), files, symbols or SymbolIndex(documents))
    numbers: dict[str, int] = {}
    for number, document in enumerate(documents):
        numbers.setdefault(document.name, number)
    targets: dict[Place, str] = {}  # the first passages of documents and sections
    for passage in passages:
        for section in (None, passage.section):
            targets.setdefault((numbers[passage.document], section), passage.id)
    for number, document in enumerate(documents):
        below = targets.get((number, None), "")
        for section in reversed(range(len(document.sections))):
            below = targets.setdefault((number, section), below)
    edges: dict[tuple[str, str, str], None] = {}
    code: Counter[str] = Counter()
    dead: list[tuple[str, int, str]] = []
    within = to_section = foreign = 0
    for passage in passages:
        own = numbers[passage.document]
        for link in passage.links:
            if (found := resolver.find(own, link)) is None:
                foreign += 1
                continue
            is_own = bool(found.places) and {(own, None), (own, passage.section)}.issuperset(found.places)
            if link.kind != SYMBOL and (found.missing or not is_own):
                within += 1
                to_section += not found.missing and any(section is not None for _, section in found.places)
                if not found.places or found.missing:
                    dead.append((passage.document, link.line, link.target + found.missing))
            for target in (targets.get(place) for place in found.places):
                if target and target != passage.id and (edge := (passage.id, target, link.edge)) not in edges:
                    edges[edge] = None
                    code[link.edge] += link.kind == SYMBOL
    account = LinkAccount(within, within - len(dead), to_section, dead, foreign, {k: n for k, n in code.items() if n})
    return list(edges), account


class _Resolver:
    """Finds what links point at: None for other sites and other files."""

    def __init__(self, documents: Sequence[Document], site: Site, files: Collection[str], symbols: SymbolIndex) -> None:
        self._documents, self._symbols = documents, symbols
        self._pages, self._by_name = Pages(documents, site, files), site.by_name
        bases = (re.escape(address[1].rstrip("/")) for address in map(_ADDRESS.match, site.bases) if address)
        self._site = re.compile(rf"(?:{'|'.join(bases) or '(?!)'})(?![^/?#])(.*)", re.IGNORECASE | re.DOTALL)
        self._anchors = cache(self._anchors_of)
        self._patterns = 0

    @cached_property
    def _names(self) -> PageNames:
        return PageNames(self._documents, self._pages)

    @cached_property
    def _labels(self) -> dict[tuple[int | str, str], Place]:
        """Labels by the number of their document, by its suffix and, by -1, of the folder; as written and folded."""
        labels: dict[tuple[int | str, str], Place] = {}
        for change in (str, _folded):
            for number, document in enumerate(self._documents):
                for section, names in enumerate(section.labels for section in document.sections):
                    for label in map(change, names):
                        for scope in (number, suffix_of(document.name), -1):
                            labels.setdefault((scope, label), (number, section))
        return labels

    def _anchors_of(self, number: int) -> dict[str, int]:
        """Return the sections of a document by the names after `#`: as written, and as slugs of any format."""
        sections = self._documents[number].sections
        exact = [(anchor, i) for i, section in enumerate(sections) for anchor in section.anchors]
        names = exact + [(section.heading, i) for i, section in enumerate(sections)]
        pairs = exact + [(slug, i) for name, i in names if (slug := _slug(name))]
        return dict(reversed(pairs))

    def find(self, own: int, link: Link) -> _Found | None:
        """Find what a link of a document points at."""
        if link.kind == SYMBOL:
            return self._symbol(own, link)
        if link.kind == LABEL:
            return self._label(own, link)
        if link.kind == DOCUMENT:
            return self._document(own, link.target)
        return self._page(own, link.target) if link.kind == PAGE else self._path(own, link.target.strip())

    def _symbol(self, own: int, link: Link) -> _Found:
        place = self._symbols.find(self._documents[own], link)
        return _Found((place,)) if place else _Found()

    def _named(self, own: int, label: str) -> _Found | None:
        scopes = (own, suffix_of(self._documents[own].name), -1)
        keys = ((scope, name) for name in (label, _folded(label)) for scope in scopes)
        return next((_Found((self._labels[key],)) for key in keys if key in self._labels), None)

    def _label(self, own: int, link: Link) -> _Found | None:
        if found := self._named(own, link.target):
            return found
        page, colon, heading = link.target.partition(":")
        if colon and (number := self._pages.find(own, f"/{page}")) >= 0:  # as sphinx.ext.autosectionlabel writes it
            section = self._section(number, heading)
            return _Found() if section.missing else section
        return None if colon or link.target in _BUILT or link.edge != "link" else _Found()

    def _document(self, own: int, target: str) -> _Found | None:
        if _GLOB.search(target) and (numbers := self._matches(own, target)):
            return _Found(tuple((number, None) for number in numbers))
        number = self._pages.find(own, target)
        is_away = number == FILE or (number < 0 and (":" in target or target in _BUILT))
        return None if is_away else _Found(((number, None),) * (number >= 0))

    def _matches(self, own: int, target: str) -> list[int]:
        """Find the documents of a pattern."""
        self._patterns += 1
        pattern = normpath(join(dirname(self._documents[own].name), target) if target[0] != "/" else target.lstrip("/"))
        is_deep, depth = "**" in pattern, pattern.count("/")
        return [
            number
            for name, number in sorted(self._pages.names.items() if self._patterns < _MAX_PATTERNS else ())
            if (is_deep or name.count("/") == depth)
            and number != own
            and (fnmatchcase(splitext(name)[0], pattern) or fnmatchcase(name, pattern))
        ]

    def _page(self, own: int, target: str) -> _Found | None:
        name, _, anchor = (part.strip() for part in target.partition("#"))
        number = self._names.find(own, name) if name else own
        if number < 0:
            return None if number == FILE else _Found()
        return self._section(number, anchor.rpartition("#")[2])

    def _path(self, own: int, target: str) -> _Found | None:
        base = self._documents[own].base
        if base and not target.startswith(("#", "/")) and not _SCHEME.match(target):
            target = base[: base.rfind("/") + 1] + target
        elif target.startswith("/") and (address := _ADDRESS.match(base)) and not target.startswith("//"):
            target = f"//{address[1].partition('/')[0]}{target}"
        if address := _ADDRESS.match(target):
            on_site = self._site.match(address[1])
            target = "/" + on_site[1].lstrip("/") if on_site else target
        if _COMPUTED.search(target) or _ADDRESS.match(target) or _SCHEME.match(target):
            return None
        path, _, anchor = target.partition("#")
        path = unquote(path.partition("?")[0]).replace("\\", "/").strip()
        number = self._pages.find(own, path) if path else own
        if number == NOWHERE and self._by_name and "/" not in path:
            number = self._names.find(own, path)
        if number >= 0:
            found = self._section(number, anchor)
            if found.missing and not path:  # a page's link to itself may name any label and symbol of the folder
                name = unquote(anchor)
                symbol = self._symbol(own, Link(name, kind=SYMBOL)) if "." in name else found
                return self._named(own, name) or (symbol if symbol.places else found)
            return found
        label = None if "/" in path or "." in path else self._named(own, path)  # as MyST writes it
        return label or (None if number in (FILE, OUTSIDE) else _Found())

    def _section(self, number: int, anchor: str) -> _Found:
        """Find the section of a document: by its name as written, in any case, as a slug, by a line in it."""
        anchor = anchor.partition(":~:")[0]
        if not anchor or anchor == "top":
            return _Found(((number, None),))
        anchors, name = self._anchors(number), unquote(anchor)
        section = next((anchors[key] for key in (anchor, name, _slug(name)) if key in anchors), None)
        if section is None and (line := _LINE.fullmatch(name)):
            lines = [each.line for each in self._documents[number].sections]
            section = max(0, bisect_right(lines, int(line[1])) - 1) if any(lines) else None
        return _Found(((number, section),), missing="" if section is not None else " (no such section)")


def _slug(name: str) -> str:
    """Return a name as the slugs of most formats have it.

    Example:
        >>> _slug("Größe: C++/Go_1 (new)")
        'grosse-c-go-1-new'
    """
    bare = "".join(sign for sign in normalize("NFKD", name.casefold()) if not combining(sign))
    return re.sub(r"[\W_]+", "-", bare).strip("-")


def _folded(name: str) -> str:
    return " ".join(name.casefold().split())
