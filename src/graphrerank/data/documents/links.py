"""Links of documents to edges between passages, with an account of those that lead nowhere."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from posixpath import dirname, join, normpath, splitext
from unicodedata import combining, normalize
from urllib.parse import unquote

from graphrerank.data.documents.document import DOCUMENT, LABEL, PAGE, SYMBOL, Document, Link, Section
from graphrerank.data.documents.pages import FILE, NOWHERE, OUTSIDE, PageNames, Pages
from graphrerank.data.documents.passages import Passage
from graphrerank.data.documents.readers import suffix_of
from graphrerank.data.documents.site import Site
from graphrerank.data.documents.symbols import SymbolIndex

SHOWN = 3  # links that lead nowhere in the account's text
_ADDRESS = re.compile(r"(?:([a-z][a-z0-9+.-]*):)?//(?:www\.)?(.*)", re.IGNORECASE | re.DOTALL)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_COMPUTED = re.compile(r"\{\{|\{%|\$\{|<%")  # by a template of which the reader does not know the result
_LINE = re.compile(r"L(\d{1,9})(?:\D.*)?")  # of a file, as code hosts write it
_BUILT = ("genindex", "modindex", "py-modindex", "search", "self")  # pages that Sphinx makes
_GLOB = re.compile(r"[*?\[]")
_MAX_MATCHES = 10_000  # documents that patterns are compared with, for each document

Place = tuple[int, int | None]  # a document's number and its section's; None for the page as a whole


@dataclass(frozen=True)
class LinkAccount:
    """What became of the links between documents; links of code and to other sites are counted apart."""

    within: int  # of kinds path, page, document and label that point into the folder
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
                f"{name}:{line} -> {target}" if line else f"{name} -> {target}"
                for name, line, target in self.dead[:SHOWN]
            )
            links += f", {len(self.dead):,} lead nowhere: {', '.join([*shown, *['...'] * (len(self.dead) > SHOWN)])}"
        edges = ", ".join(f"{count:,} {name}" for name, count in sorted(self.code.items()))
        return f"{links}\nedges of code: {edges}" if edges else links


@dataclass(frozen=True)
class _Found:
    """What a link points at: nothing if it leads nowhere."""

    places: tuple[Place, ...] = ()
    is_within: bool = True  # a document of the folder, or nothing; else another site or another file
    missing: str = ""  # what a page lacks


_AWAY = _Found(is_within=False)


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
    targets = _Targets(documents, passages, numbers)
    edges: dict[tuple[str, str, str], None] = {}
    code: Counter[str] = Counter()
    dead: list[tuple[str, int, str]] = []
    within = to_section = foreign = 0
    for passage in passages:
        own = numbers[passage.document]
        for link in passage.links:
            found = resolver.find(own, link)
            if link.kind != SYMBOL and found.is_within:
                within += 1
                to_section += not found.missing and any(section is not None for _, section in found.places)
                if not found.places or found.missing:
                    dead.append((passage.document, link.line, link.target + found.missing))
            foreign += not found.is_within
            for target in map(targets.passage, found.places):
                edge = (passage.id, target, link.edge)
                if target and target != passage.id and edge not in edges:
                    edges[edge] = None
                    code[link.edge] += link.kind == SYMBOL
    account = LinkAccount(within, within - len(dead), to_section, dead, foreign, {k: n for k, n in code.items() if n})
    return list(edges), account


class _Targets:
    """The passages of sections."""

    def __init__(self, documents: Sequence[Document], passages: Sequence[Passage], numbers: Mapping[str, int]) -> None:
        self._passages: list[list[str]] = [[""] * len(document.sections) for document in documents]
        self._first: dict[int, str] = {}
        for passage in passages:
            number = numbers[passage.document]
            self._first.setdefault(number, passage.id)
            if not self._passages[number][passage.section]:
                self._passages[number][passage.section] = passage.id
        for number, listed in enumerate(self._passages):
            below = self._first.get(number, "")
            for section in range(len(listed) - 1, -1, -1):
                below = listed[section] = listed[section] or below

    def passage(self, place: Place) -> str:
        """Return the id of a place's first passage, or of the next one below; empty for a document without any."""
        number, section = place
        return self._first.get(number, "") if section is None else self._passages[number][section]


class _Resolver:
    """Finds what links point at."""

    def __init__(self, documents: Sequence[Document], site: Site, files: Collection[str], symbols: SymbolIndex) -> None:
        self._documents, self._symbols = documents, symbols
        self._pages, self._by_name = Pages(documents, site, files), site.by_name
        self._sections = [_Sections(document.sections) for document in documents]
        self._bases: dict[str, list[str]] = {}  # paths of the site by its host
        for address in filter(None, map(_ADDRESS.match, site.bases)):
            host, _, path = address[2].partition("/")
            self._bases.setdefault(host.lower(), []).append(path.rstrip("/"))
        self._compared = _MAX_MATCHES  # names with patterns

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

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self._pages.names)

    def find(self, own: int, link: Link) -> _Found:
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

    def _named(self, own: int, label: str) -> Place | None:
        scopes = (own, suffix_of(self._documents[own].name), -1)
        keys = ((scope, name) for name in (label, _folded(label)) for scope in scopes)
        return next((self._labels[key] for key in keys if key in self._labels), None)

    def _label(self, own: int, link: Link) -> _Found:
        if (place := self._named(own, link.target)) is not None:
            return _Found((place,))
        page, colon, heading = link.target.partition(":")
        if colon and (number := self._pages.find(own, f"/{page}")) >= 0:  # as sphinx.ext.autosectionlabel writes it
            section = self._sections[number].find(heading)
            return _Found(((number, section),)) if section is not None else _Found()
        return _AWAY if colon or link.target in _BUILT or link.edge != "link" else _Found()

    def _document(self, own: int, target: str) -> _Found:
        if _GLOB.search(target) and (numbers := self._matches(own, target)):
            return _Found(tuple((number, None) for number in numbers))
        number = self._pages.find(own, target)
        if number < 0 and (":" in target or target in _BUILT):
            return _AWAY
        return _Found(((number, None),)) if number >= 0 else _AWAY if number == FILE else _Found()

    def _matches(self, own: int, target: str) -> list[int]:
        """Find the documents of a pattern."""
        name = self._documents[own].name
        pattern = target.lstrip("/") if target.startswith("/") else normpath(join(dirname(name), target))
        prefix = _GLOB.split(pattern)[0]
        names = self._sorted
        start, end = bisect_left(names, prefix), bisect_left(names, f"{prefix}\U0010ffff")
        self._compared -= end - start
        if self._compared < -_MAX_MATCHES * len(names):
            return []
        is_deep = "**" in pattern
        return [
            number
            for each in names[start:end]
            if (is_deep or each.count("/") == pattern.count("/"))
            and (number := self._pages.names[each]) != own
            and (fnmatchcase(splitext(each)[0], pattern) or fnmatchcase(each, pattern))
        ]

    def _page(self, own: int, target: str) -> _Found:
        name, _, anchor = (part.strip() for part in target.partition("#"))
        number = self._names.find(own, name) if name else own
        if number < 0:
            return _AWAY if number == FILE else _Found()
        return self._section(number, anchor.rpartition("#")[2])

    def _path(self, own: int, target: str) -> _Found:
        document = self._documents[own]
        if document.base and not target.startswith(("#", "/")) and not _SCHEME.match(target):
            target = document.base[: document.base.rfind("/") + 1] + target
        elif target.startswith("/") and (address := _ADDRESS.match(document.base)) and not target.startswith("//"):
            target = f"//{address[2].partition('/')[0]}{target}"
        if _COMPUTED.search(target):
            return _AWAY
        if address := _ADDRESS.match(target):
            if (rest := self._on_site(address[2])) is None:
                return _AWAY
            target = rest
        elif _SCHEME.match(target):
            return _AWAY
        path, _, anchor = target.partition("#")
        path = unquote(path.partition("?")[0]).replace("\\", "/").strip()
        number = self._pages.find(own, path) if path else own
        if number == NOWHERE and self._by_name and "/" not in path:
            number = self._names.find(own, path)
        if number >= 0:
            return self._section(number, anchor, own if not path else None)
        place = None if "/" in path or "." in path else self._named(own, path)  # as MyST writes it
        if place is not None:
            return _Found((place,))
        return _AWAY if number in (FILE, OUTSIDE) else _Found()

    def _on_site(self, address: str) -> str | None:
        """Return the path on the folder's site of an address without its scheme; None for another site."""
        host, slash, path = address.partition("/")
        if not slash:
            host = re.split("[?#]", address)[0]
            path = address[len(host) :]
        for base in self._bases.get(host.lower(), ()):
            rest = path.removeprefix(base)
            if (path.startswith(base) and rest[:1] in ("", "/", "?", "#")) or not base:
                return "/" + rest.lstrip("/")
        return None

    def _section(self, number: int, anchor: str, own: int | None = None) -> _Found:
        """Find the section of a document; a page's link to itself may name any label of the folder."""
        anchor = anchor.partition(":~:")[0]
        if not anchor or anchor == "top":
            return _Found(((number, None),))
        section = self._sections[number].find(anchor)
        if section is not None:
            return _Found(((number, section),))
        if own is not None:
            label = unquote(anchor)
            if (place := self._named(own, label)) is not None:
                return _Found((place,))
            if "." in label and (found := self._symbol(own, Link(label, kind=SYMBOL))).places:
                return found
        return _Found(((number, None),), missing=" (no such section)")


class _Sections:
    """Finds a document's sections by the names after `#`: as written, in any case, by any format's slugs."""

    def __init__(self, sections: Sequence[Section]) -> None:
        self._sections = sections

    @cached_property
    def _exact(self) -> dict[str, int]:
        return _first_places((anchor, i) for i, section in enumerate(self._sections) for anchor in section.anchors)

    @cached_property
    def _folded(self) -> dict[str, int]:
        return _first_places((_folded(anchor), i) for anchor, i in self._exact.items())

    @cached_property
    def _slugs(self) -> dict[str, int]:
        names = [(anchor, i) for anchor, i in self._exact.items()]
        names += [(section.heading, i) for i, section in enumerate(self._sections)]
        return _first_places((slug, i) for name, i in names for slug in _slugs(name) if slug)

    @cached_property
    def _lines(self) -> list[int]:
        return [section.line for section in self._sections]

    def find(self, anchor: str) -> int | None:
        """Return the number of a section; None if there is none of that name."""
        for name in dict.fromkeys((anchor, unquote(anchor))):
            if (section := self._exact.get(name)) is not None:
                return section
        section = self._folded.get(_folded(name))
        section = self._slugs.get(_slugs(name)[0]) if section is None else section
        if section is None and (line := _LINE.fullmatch(name)) and any(self._lines):
            return max(0, bisect_right(self._lines, int(line[1])) - 1)
        return section


def _first_places(pairs: Iterator[tuple[str, int]]) -> dict[str, int]:
    places: dict[str, int] = {}
    for name, place in pairs:
        places.setdefault(name, place)
    return places


def _slugs(name: str) -> list[str]:
    """Return a name as the slugs of all formats have it: with punctuation as hyphens, and without it.

    Example:
        >>> _slugs("Größe: C++/Go_1 (new)")
        ['grosse-c-go-1-new', 'grosse-cgo-1-new']
    """
    bare = "".join(sign for sign in normalize("NFKD", name.casefold()) if not combining(sign))
    return [re.sub(r"[\W_]+", "-", text).strip("-") for text in (bare, re.sub(r"[^\w\s-]", "", bare))]


def _folded(name: str) -> str:
    return " ".join(name.casefold().split())
