"""Pages of HTML."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from graphrerank.data.documents.document import MAX_NAME, MAX_TARGET, Block, Document, Link, Section, UnreadableError
from graphrerank.data.documents.formats.sections import Sections
from graphrerank.data.documents.formats.text import DATA_URI, decode_text, without_blobs
from graphrerank.extras import optional

_HEAD = 4096  # bytes in which a page says its encoding
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?\s{0,9}([\w.:-]{1,40})", re.IGNORECASE)
_XML_CHARSET = re.compile(rb"\s{0,9}<\?xml[^>]{0,100}?encoding\s{0,9}=\s{0,9}[\"']([\w.:-]{1,40})")
_XHTML = re.compile(r"\s*<\?xml|[^<]{0,99}<html[^>]{0,300}http://www\.w3\.org/1999/xhtml")
_VOID = "area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr"
_CLOSED = re.compile(rf"<(?!(?:{_VOID})\b)([a-zA-Z][\w:-]*)((?:\s[^<>]*)?)/>")
_NESTED = re.compile(  # elements that are closed by a tag
    r"<(/?)(?:a|article|aside|b|big|blockquote|button|center|code|details|div|dl|em|figure|font|footer|form|g|header|i|label|main|nav"
    r"|object|ol|section|small|span|strong|svg|table|u|ul)[\s>]",
    re.IGNORECASE,
)
_MAX_DEPTH, _SHALLOW = 1000, 50_000  # of elements, for which the parser's time is quadratic; characters of small pages
_MAIN = "main, [role=main]"
_PLACES = f"{_MAIN};article;.mw-parser-output;.rst-content;.theme-doc-markdown;.markdown-body;.md-content"
_MAINS = f"{_PLACES};.document .body;.body;.post-content;.entry-content;#content;.content;#main;.document".split(";")
_TAGS = """address article aside blockquote body caption center dd details dir div dl dt fieldset figcaption figure
footer form frameset header hgroup hr legend li main menu ol option p pre search section summary table tbody td tfoot
th thead tr ul h1 h2 h3 h4 h5 h6"""
_BLOCKS = frozenset(_TAGS.split())
_HIDDEN_TAGS = """audio button canvas datalist dialog embed head input nav noscript object script select style svg
template textarea title video rp rt"""
_HIDDEN = frozenset(_HIDDEN_TAGS.split())
_EDGES = ("header", "footer", "aside")
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_KINDS = {"li": "item", "dt": "term", "dd": "meaning"}
_ROLES = frozenset(("navigation", "search", "banner", "contentinfo", "dialog", "doc-toc"))  # of what is left out
_CLASSES = """mw-editsection linenos lineno linenodiv gutter sphinxsidebar breadcrumb breadcrumbs visually-hidden
sr-only noprint hideme since pagination-nav skip-link theme-doc-toc-mobile"""
_CLUTTER = frozenset(_CLASSES.split())
_SOURCES = frozenset(("viewcode-link", "viewcode-back", "src", "srclink"))  # links to programs, without their texts
_SIDE_CLASSES = "navbar nav menu sidebar footer related nav-panel navigation topnav site-header site-footer"
_SIDES = frozenset(_SIDE_CLASSES.split())  # beside a main part
_NOTE = re.compile(r"admonition|callout|footnote|note|topic|tip|warning|aside", re.IGNORECASE)
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))
_PLACED = "table table, h1, h2, h3, h4, h5, h6, pre"  # in a table that only places them
_WORD, _SYMBOL = re.compile(r"[^\W_]"), re.compile(r"(?!_CPP|c\.)[A-Za-z_][\w.]*")
_DASHES = "- \u2013\u2014|\u00b7:\u00bb"  # between the title of a page and the name of its site
_NUMBER, _REST = re.compile(r"[\d.]+\s+"), re.compile(rf"$|\s*[{_DASHES}(<]")
_REFRESH = re.compile(r"\s*[\d.]*\s*[;,]\s*url\s*=\s*[\"']?\s*([^\"'\s]+)", re.IGNORECASE)
_SMALL = 50  # characters of a main part that may be nearly nothing of its page
_MOVED = re.compile(r"\bredirect|\bmoved\b", re.IGNORECASE)
_MAX_MARKS = 3  # characters of a text without a word that is left out
_LINKED = 0.6  # the share of a menu's characters that are within links
_NO_TARGETS = ("javascript:", "data:", "mailto:", "tel:")


def read_html(content: bytes, name: str) -> list[Document]:
    """Read the main part of a page, without its navigation, header and footer."""
    parser = optional("selectolax.lexbor", "an HTML page").LexborHTMLParser
    said = _XML_CHARSET.match(content[:_HEAD]) or _CHARSET.search(content[:_HEAD])
    text, uris = DATA_URI.subn("", decode_text(content, said[1].decode() if said else ""))
    if _XHTML.match(text) or name.lower().endswith(".xhtml"):
        text = _CLOSED.sub(r"<\1\2></\1>", text)
    if len(text) > _SHALLOW and _is_deep(text):
        raise UnreadableError(f"elements within one another more than {_MAX_DEPTH:,} deep")
    page = parser(text)
    meta = _Meta(page)
    if meta.redirect:
        title = meta.title()
        title = PurePosixPath(name).stem if not title or _MOVED.search(title) else title
        block = Block(title, links=(Link(meta.redirect),))
        return [Document(name, title, (Section("", (block,)),), base=meta.base)]
    walk = _main_part(page)
    headings = [section.heading for section in walk.sections[:3]]
    title = _named(meta.title(), headings) or walk.out.titled or meta.title() or PurePosixPath(name).stem[:MAX_NAME]
    sections = _with_anchors(walk.sections, page)
    dropped = walk.dropped + Counter({"data URIs": uris})  # those above none
    return [Document(name, title, sections, meta.aliases(name), meta.base, dropped=dropped, is_page=True)]


def _is_deep(text: str) -> bool:
    depth = 0
    for tag in _NESTED.finditer(text):
        depth += -1 if tag[1] else 1
        if depth > _MAX_DEPTH:
            return True
        depth = max(depth, 0)
    return False


class _Meta:
    """What the head of a page says."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self.base = self._said("base[href]", "href")
        refresh = _REFRESH.match(self._said('meta[http-equiv="refresh" i]', "content"))
        self.redirect = refresh[1] if refresh else ""

    def _said(self, selector: str, attribute: str) -> str:
        element = self._page.css_first(selector)
        return "" if element is None else (element.attributes.get(attribute) or "")[:MAX_TARGET]

    def title(self) -> str:
        """Return what the page says it is named, without the name of its site."""
        title = _shown(self._page.css_first("head > title")) or self._said('meta[property="og:title"]', "content")
        sites = [self._said('meta[property="og:site_name"]', "content"), *map(_shown, self._page.css("h1")[:2])]
        for site in filter(None, sites):
            name = re.escape(site)
            title = re.sub(rf"(?:[{_DASHES}]{{1,9}}{name}$)|(?:^{name}[{_DASHES}]{{1,9}})", "", title)
        return title[:MAX_NAME] if title[:10] != "<no title>" else ""  # of Sphinx

    def aliases(self, name: str) -> tuple[str, ...]:
        """Return the path of the address that the page calls its own, if it ends as its file does."""
        path = urlsplit(_valid(self._said('link[rel="canonical"]', "href"))).path
        last, file = PurePosixPath(path).name, PurePosixPath(name)
        is_same = last and last in (file.name, file.stem, file.parent.name if file.stem == "index" else file.stem)
        return (path,) if is_same and path.startswith("/") else ()


def _shown(element: Any) -> str:
    """Return the text of an element as a name."""
    return " ".join(("" if element is None else element.text()).translate(_INVISIBLE).split())[:MAX_NAME]


def _named(title: str, headings: Iterable[str]) -> str:
    """Return the heading with which the title of a page begins, before the name of its site."""
    shown = (_NUMBER.sub("", heading) for heading in headings)
    return next((each for each in shown if each and title.startswith(each) and _REST.match(title, len(each))), "")


def _valid(address: str) -> str:
    try:
        urlsplit(address)
    except ValueError:  # an unclosed bracket
        return ""
    return address


def _main_part(page: Any) -> "_Walk":
    """Return what the main part shows, or the whole body where that is nearly nothing of it."""
    body = page.body or page.root
    for selector in _MAINS:
        found = page.css(selector)
        if len(found) == 1 or (found and selector == _MAIN):
            main = _Walk(found[0], is_main=True)
            if selector == _MAIN and main.out.size >= _SMALL:
                return main
            whole = _Walk(body, is_main=False)
            return whole if main.out.size < whole.out.size * (0.1 if selector == _MAIN else 0.4) else main
    return _Walk(body, is_main=False)


def _with_anchors(sections: tuple[Section, ...], page: Any) -> tuple[Section, ...]:
    """Point the ids of the parts that are left out at the first section."""
    known = {name for section in sections for name in section.anchors}
    ids = (element.attributes.get("id") or "" for element in page.css("[id]"))
    others = tuple(dict.fromkeys(name for name in ids if 0 < len(name) <= MAX_NAME and name not in known))
    if not sections or not others:
        return sections
    first = sections[0]
    return (replace(first, anchors=first.anchors + others), *sections[1:])


@dataclass(slots=True)
class _Table:
    """A table of rows that is open; others only place parts of the page."""

    header: str = ""
    rows: int = 0
    cells: list[str] = field(default_factory=list)
    is_head: bool = True  # whether the row has no other cells than those of a header
    in_cell: bool = False


class _Walk:
    """Goes through the elements of a page and collects what they show."""

    def __init__(self, root: Any, *, is_main: bool) -> None:
        self.out = Sections()
        self.dropped: Counter[str] = Counter()
        self._is_main = is_main
        self._parts: list[str] = []  # of the text that is open; "\0" for an end of a line
        self._is_link = False  # whether a link is open
        self._linked = 0  # characters of the text within links
        self._ids: list[str] = []  # that wait for a heading or a text
        self._before: list[str] = []  # those before the heading that is open
        self._kind = self._marker = ""  # of the next block
        self._heading: Any = None  # the heading or signature that is open
        self._pre = 0  # elements of code that are open
        self._table: _Table | None = None
        self._menus: set[str] = set()  # texts of links before the first heading
        self._walk(root)
        self._flush()
        self.out.point(self._ids)
        self.sections = self._without_menus(self.out.end())

    def _walk(self, root: Any) -> None:
        node = root.first_child
        open_nodes: list[Any] = []
        while node is not None or open_nodes:
            if node is None:
                node = open_nodes.pop()
                self._close(node, node.tag)
            elif (tag := node.tag) == "-text":
                self._add(node.text_content)
            elif tag[0] != "-" and self._open(node, tag):
                if (child := node.first_child) is not None:
                    open_nodes.append(node)
                    node = child
                    continue
                self._close(node, tag)
            node = node.next

    def _add(self, text: str) -> None:
        self._parts.append(text)
        if self._is_link:
            self._linked += len(text)

    def _open(self, node: Any, tag: str) -> bool:
        """Begin an element; return whether it shows what is in it."""
        is_block = tag in _BLOCKS
        if is_block:
            self._break()
        attributes = node.attributes
        if attributes:
            self._ids += [
                name for key in ("id", "name") if (name := attributes.get(key)) and (key == "id" or tag == "a")
            ]
        if tag in _HIDDEN or not ((not attributes and tag not in _EDGES) or self._is_shown(node, tag, attributes)):
            return False
        if tag == "a":
            return self._open_link(node, attributes)
        if tag in ("frame", "iframe", "area"):
            self._link(attributes.get("href" if tag == "area" else "src"))
            return False
        if tag == "br":
            self._break_line()
        elif tag == "math":
            return self._open_formula(node, attributes)
        elif is_block and self._heading is None:
            self._open_block(node, tag, attributes)
        elif "-" in tag:  # an element of the page's program
            self._parts.append(" ")
        return True

    def _is_shown(self, node: Any, tag: str, attributes: Mapping[str, str | None]) -> bool:
        role, names = attributes.get("role"), attributes.get("class") or ""
        if ("hidden" in attributes and role != "tabpanel") or attributes.get("aria-hidden") == "true":
            return False
        if "display:none" in (attributes.get("style") or "").replace(" ", "") and "math" not in names:
            return False
        classes = names.split()
        if role in _ROLES or not _CLUTTER.isdisjoint(classes) or tag == "footer":
            return False
        if tag == "aside":
            return _NOTE.search(names) is not None or (self._is_main and node.css_first("nav") is None)
        if self._is_main:
            return True
        if tag == "header" and (node.css_first("h1") is None or node.css_first("nav") is not None):
            return False
        return _SIDES.isdisjoint(classes) and attributes.get("id") not in _SIDES

    def _open_link(self, node: Any, attributes: Mapping[str, str | None]) -> bool:
        target = (attributes.get("href") or "").strip()
        if target.startswith("#") and not _WORD.search(node.text()):  # the mark of a heading
            return False
        if target and not _SOURCES.isdisjoint((attributes.get("class") or "").split()):
            self._link(target)
            return False
        if target:
            self._link(target)
            self._is_link = True
        return True

    def _link(self, target: str | None) -> None:
        target = (target or "").strip()
        if target != "#" and not target.lower().startswith(_NO_TARGETS):
            self.out.link(target)

    def _open_formula(self, node: Any, attributes: Mapping[str, str | None]) -> bool:
        source = node.css_first('annotation[encoding="application/x-tex"]')
        formula = attributes.get("alttext") or ("" if source is None else source.text())
        self._parts.append(formula)
        return not formula

    def _open_block(self, node: Any, tag: str, attributes: Mapping[str, str | None]) -> None:
        table = self._table
        if self._pre or (table is not None and table.in_cell):
            self._pre += tag == "pre"
        elif tag in _HEADINGS or (tag == "dt" and "sig" in (attributes.get("class") or "").split()):
            own = [self._ids.pop()] if attributes.get("id") else []
            self._heading, self._before, self._ids = node, self._ids, own
        elif tag == "pre":
            self._pre = 1
        elif tag == "table":
            is_rows = attributes.get("role") not in ("presentation", "none") and node.css_first(_PLACED) is None
            self._table = _Table() if is_rows else None
        elif table is not None and tag in ("td", "th"):
            table.in_cell = True
            table.is_head &= tag == "th"
        elif table is None and tag in _KINDS:
            self._kind, self._marker = _KINDS[tag], "- " if tag == "li" else ""

    def _close(self, node: Any, tag: str) -> None:
        if node is self._heading:
            self._close_heading(node, tag)
        elif tag == "a":
            self._is_link = False
        elif tag in _BLOCKS:
            if tag == "pre" and self._pre:
                self._pre -= 1
                if not self._pre and not (self._table and self._table.in_cell):
                    self._flush(is_code=True)
            elif self._table is not None and tag in ("td", "th", "tr", "table") and not self._pre:
                self._close_part(self._table, node, tag)
            self._break()
            if tag in _KINDS:
                self._kind = self._marker = ""
        elif "-" in tag:
            self._parts.append(" ")

    def _close_heading(self, node: Any, tag: str) -> None:
        text, own = self._take(), self._ids
        self._heading, self._ids = None, []
        parent = node.parent.attributes.get("id") if node.parent is not None else None
        if not text:
            self._before += own
            self._ids = self._before
        elif tag == "dt":
            name = own[0] if own and _SYMBOL.fullmatch(own[0]) else ""
            self.out.start(name or text, own + self._before[::-1], symbol=name)
            self.out.add(text, "sign", is_whole=True)
        else:
            wrapper = [parent] if parent in self._before else []
            self.out.start(text, own + wrapper + self._before[::-1], level=_HEADINGS[tag])

    def _close_part(self, table: _Table, node: Any, tag: str) -> None:
        if tag in ("td", "th"):
            if table.in_cell:
                table.cells.append(self._take())
            table.in_cell = False
        elif tag == "tr" and any(table.cells):
            row = " | ".join(table.cells).strip()
            if not table.rows and not table.header and (table.is_head or node.parent.tag == "thead"):
                table.header = row[:MAX_NAME]
            else:
                self.out.point(self._ids)
                self._ids = []
                self.out.add(row, "row", is_whole=True, header=table.header)
                table.rows += 1
        elif tag == "table":
            if not table.rows:
                self.out.add(table.header)
            self._table = None
        if tag == "tr":
            table.cells, table.is_head = [], True

    def _break(self) -> None:
        """End a paragraph, or a word where a text goes on."""
        if self._heading is not None or (self._table is not None and self._table.in_cell):
            self._parts.append(" ")
        elif self._pre:
            if self._parts and not self._parts[-1].endswith("\n"):
                self._parts.append("\n")
        else:
            self._flush()

    def _break_line(self) -> None:
        if self._pre:
            self._parts.append("\n")
        elif self._heading is None and "\0" in self._parts[-2:]:
            self._break()
        else:
            self._parts.append("\0")

    def _take(self) -> str:
        lines = "".join(self._parts).translate(_INVISIBLE).split("\0")
        self._parts = []
        is_line = self._heading is not None or self._table is not None
        return (" " if is_line else "\n").join(" ".join(line.split()) for line in lines).strip()

    def _flush(self, *, is_code: bool = False) -> None:
        if not self._parts:
            return
        if is_code:
            text, counts = without_blobs("".join(self._parts).replace("\0", "\n"))
            self.dropped.update(counts)
            text, self._parts, self._marker = text.strip("\n").rstrip(), [], ""
        else:
            text = self._take()
        if len(text) > _MAX_MARKS or _WORD.search(text):
            self.out.point(self._ids)
            self._ids = []
            self.out.add(self._marker + text, self._kind, is_whole=is_code)
            if self._linked > _LINKED * len(text) and not self.out.has_heading:
                self._menus.add(self._marker + text)
            self._kind = self._marker = ""
        self._linked = 0

    def _without_menus(self, sections: tuple[Section, ...]) -> tuple[Section, ...]:
        """Leave out the links before the first heading of a whole body."""
        if self._is_main or len(sections) < 2 or not self._menus:
            return sections
        first, *others = sections
        blocks = tuple(block for block in first.blocks if block.text not in self._menus)
        return (replace(first, blocks=blocks), *others) if blocks else tuple(others)
