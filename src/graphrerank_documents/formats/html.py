"""Parse HTML pages: find the main part and convert its elements to sections and blocks."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from graphrerank.installation.extras import optional
from graphrerank_documents.document import MAX_NAME, MAX_TARGET, Block, Document, Section, UnreadableError
from graphrerank_documents.formats.alt_text import alt_text
from graphrerank_documents.formats.redirect_pages import redirecting, refresh_url, script_url
from graphrerank_documents.formats.sections import Sections
from graphrerank_documents.formats.text import DATA_URI, decode_text, without_blobs

_HEAD = 4096  # number of bytes in which the declaration of the encoding is searched for
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?\s{0,9}([\w.:-]{1,40})", re.IGNORECASE)
_XML_CHARSET = re.compile(rb"\s{0,9}<\?xml[^>]{0,100}?encoding\s{0,9}=\s{0,9}[\"']([\w.:-]{1,40})")
_XHTML = re.compile(r"\s*<\?xml|[^<]{0,99}<html[^>]{0,300}http://www\.w3\.org/1999/xhtml")
_VOID = "area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr"
_CLOSED = re.compile(rf"<(?!(?:{_VOID})\b)([a-zA-Z][\w:-]*)((?:\s[^<>]*)?)/>")
_NESTED = re.compile(  # elements that require an end tag
    r"<(/?)(?:a|article|aside|b|big|blockquote|button|center|code|details|div|dl|em|figure|font|footer|form|g|header|i|label|main|nav"
    r"|object|ol|section|small|span|strong|svg|table|u|ul)[\s>]",
    re.IGNORECASE,
)
_MAX_OPEN = 1000  # maximum number of unclosed elements, because the parser's time is quadratic in it
_SHALLOW = 50_000  # number of characters below which unclosed elements are not counted
_MAIN = "main, [role=main]"
_PLACES = f"{_MAIN};article;.mw-parser-output;.rst-content;.theme-doc-markdown;.markdown-body;.md-content"
_MAINS = f"{_PLACES};.document .body;.body;.post-content;.entry-content;#content;.content;#main;.document".split(";")
_MIN_MAIN_CHARS = 20  # minimum number of characters of the element `main`
_MIN_MAIN_SHARE = 0.4  # minimum share of another main part in the characters of the page
_TAGS = """address article aside blockquote body caption center dd details dir div dl dt fieldset figcaption figure
footer form frameset header hgroup hr legend li main menu ol option p pre search section summary table tbody td tfoot
th thead tr ul h1 h2 h3 h4 h5 h6"""
_BLOCKS = frozenset(_TAGS.split())
_HIDDEN_TAGS = """audio button canvas datalist dialog embed footer head input nav noscript object script select style
svg template textarea title video rp rt"""
_HIDDEN = frozenset(_HIDDEN_TAGS.split())
_LEFT_OUT = """[hidden]:not([role=tabpanel]), [aria-hidden=true], [role=navigation], [role=search], [role=banner],
[role=contentinfo], [role=dialog], [role=doc-toc], .mw-editsection, .linenos, .lineno, .linenodiv, .gutter,
.sphinxsidebar, .breadcrumb, .breadcrumbs, .visually-hidden, .sr-only, .noprint, .hideme, .since, .pagination-nav,
.skip-link, .theme-doc-toc-mobile, aside:has(nav), [style*="display:none" i]:not([class*=math]),
[style*="display: none" i]:not([class*=math])"""
_OUTSIDE = """header:not(:has(h1)), header:has(nav), aside:not([class*=admonition i], [class*=aside i],
[class*=callout i], [class*=note i], [class*=tip i], [class*=topic i], [class*=warning i])"""
_SIDE_NAMES = "navbar nav menu sidebar footer related nav-panel navigation topnav site-header site-footer"
_SIDES = ", ".join(f".{side}, #{side}" for side in _SIDE_NAMES.split())
_PLACING = "table table, table:is([role=presentation], [role=none], :has(table, h1, h2, h3, h4, h5, h6, pre))"
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_KINDS = {"li": "item", "dt": "term", "dd": "meaning"}
_SOURCES = frozenset(("viewcode-link", "viewcode-back", "src", "srclink"))  # links to source code, without their text
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))
_WORD = re.compile(r"[^\W_]")
_SYMBOL = re.compile(r"(?!_CPP|c\.)[A-Za-z_][\w.]*")  # anchor of Sphinx that is the name of a symbol
_NUMBER = re.compile(r"[\d.]+\s+")  # number before a heading
_REST = re.compile("$|\\s*[- \u2013\u2014|\u00b7:\u00bb(<]")  # end of a heading within a title
_BEFORE_SITE = " -\u2013\u2014|\u00b7:\u00bb"  # separators between a title and the name of the site
_ADDRESS = re.compile(r"^https?://[^/?#]*|[?#].*")  # the parts of a URL other than the path
_MAX_MARKS = 3  # a text of at most this many characters is dropped if it contains no word
_MAX_SCRIPT = 5000  # number of characters of a script in which a redirect is searched for
_MENU = 30  # maximum number of characters per link in a menu
_MAX_WRAPPERS = 4  # maximum number of elements between an image and its figure
_GOOGLE = re.compile(r"https?://www\.google\.com/url\?(?:[^#]*&)?q=([^&#]{1,2000})")  # links of Google Docs
_NO_TARGETS = ("javascript:", "data:", "mailto:", "tel:")


def read_html(content: bytes, name: str, *, is_chapter: bool = False) -> list[Document]:
    """Parse the main part of a page, without navigation, header and footer.

    Args:
        content: Bytes of the page.
        name: Path of the file, relative to the source.
        is_chapter: Whether the page is a chapter of a book, whose whole body is read, including asides such as notes.

    Returns:
        One document. A page that redirects to another one has no text.

    Raises:
        UnreadableError: If ``content`` is binary, its encoding is unknown or too many elements are unclosed.
    """
    parser = optional("selectolax.lexbor", "an HTML page").LexborHTMLParser
    charset = _XML_CHARSET.match(content[:_HEAD]) or _CHARSET.search(content[:_HEAD])
    text, num_uris = DATA_URI.subn("", decode_text(content, charset[1].decode() if charset else ""))
    if _XHTML.match(text) or name.lower().endswith(".xhtml"):
        text = _CLOSED.sub(r"<\1\2></\1>", text)
    if len(text) > _SHALLOW and sum(-1 if tag[1] else 1 for tag in _NESTED.finditer(text)) > _MAX_OPEN:
        raise UnreadableError(f"more than {_MAX_OPEN:,} unclosed elements")
    page = parser(text)
    base = _attribute(page, "base[href]", "href")
    walk, is_main = _chapter(page) if is_chapter else _main_part(page)
    ids = [element.attributes["id"] or "" for element in page.css("[id]")]
    sections = walk.out.end(ids, None if is_main else _is_menu)
    title = _title(page, sections, walk.out.titled) or PurePosixPath(name).stem[:MAX_NAME]
    dropped = walk.dropped + Counter({"data URIs": num_uris})  # adding counters drops zeros
    url = refresh_url(_attribute(page, 'meta[http-equiv="refresh" i]', "content"))
    if not url and not any(section.blocks for section in sections):
        url = _url_in_scripts(page)
    document = Document(name, title, sections, _aliases(page, name), base, dropped=dropped, is_page=True)
    return [redirecting(replace(document, aliases=()), url) if url else document]


def _title(page: Any, sections: Sequence[Section], main_heading: str) -> str:
    """Return the title of a page without the name of its site, or an empty string."""
    element = page.css_first("head > title")
    title = "" if element is None else " ".join(element.text().translate(_INVISIBLE).split())[:MAX_NAME]
    title = title.removeprefix("<no title>")  # placeholder of Sphinx
    title = title.removesuffix(_attribute(page, 'meta[property="og:site_name"]', "content")).rstrip(_BEFORE_SITE)
    # a heading at the start of the title separates it from the name of the site
    for section in sections[:3]:
        heading = _NUMBER.sub("", section.heading)
        if heading and title.startswith(heading) and _REST.match(title, len(heading)):
            return heading
    return main_heading or title or _attribute(page, 'meta[property="og:title"]', "content")


def _url_in_scripts(page: Any) -> str:
    """Return the URL to which a script of a page redirects, or an empty string."""
    for script in page.css("script"):
        if url := script_url((script.text() or "")[:_MAX_SCRIPT]):
            return url
    return ""


def _is_menu(block: Block) -> bool:
    return not block.is_whole and len(block.text) <= _MENU * len(block.links)


def _attribute(page: Any, selector: str, attribute: str) -> str:
    """Return an attribute of the first element that a selector matches, or an empty string."""
    element = page.css_first(selector)
    return "" if element is None else (element.attributes.get(attribute) or "")[: min(MAX_NAME, MAX_TARGET)]


def _aliases(page: Any, name: str) -> tuple[str, ...]:
    """Return the path of the canonical URL if its last component matches the name of the file."""
    path = _ADDRESS.sub("", _attribute(page, 'link[rel="canonical"]', "href"))
    file = PurePosixPath(name)
    names = (file.name, file.stem, file.parent.name if file.stem == "index" else file.stem)
    return (path,) if path[:1] == "/" and PurePosixPath(path).name in filter(None, names) else ()


def _chapter(page: Any) -> tuple["ElementWalk", bool]:
    """Return the content of the body of a chapter, and True. Notes may be hidden until a reader opens them."""
    hidden = _mem_ids(page, _LEFT_OUT) - _mem_ids(page, "aside")
    return ElementWalk(page.body or page.root, hidden, _mem_ids(page, _PLACING)), True


def _main_part(page: Any) -> tuple["ElementWalk", bool]:
    """Return the content of the main part and True, or of the whole body and False if the main part is too small."""
    hidden, placing = _mem_ids(page, _LEFT_OUT), _mem_ids(page, _PLACING)
    main = None
    for selector in _MAINS:
        elements = page.css(selector)
        if len(elements) == 1 or (elements and selector == _MAIN):
            main = ElementWalk(elements[0], hidden, placing)
            if selector == _MAIN and main.out.size >= _MIN_MAIN_CHARS:
                return main, True
            break
    hidden |= _mem_ids(page, f"{_OUTSIDE}, {_SIDES}")
    whole = ElementWalk(page.body or page.root, hidden, placing)
    if main and main.out.size >= _MIN_MAIN_SHARE * whole.out.size:
        return main, True
    return whole, False


def _mem_ids(page: Any, selector: str) -> set[int]:
    """Return the ``mem_id`` of each element that a selector matches."""
    return {node.mem_id for node in page.css(selector)}


@dataclass(slots=True)
class _Table:
    """Current table. Tables that only lay out the page are not represented.

    Attributes:
        header: Text of the header row.
        rows: Number of rows added so far.
        cells: Cells of the current row.
        is_head: Whether all cells of the current row are header cells.
        in_cell: Whether a cell is open.
    """

    header: str = ""
    rows: int = 0
    cells: list[str] = field(default_factory=list)
    is_head: bool = True
    in_cell: bool = False


class ElementWalk:
    """Traversal of a page's elements that collects the visible text in sections.

    Args:
        root: Element whose descendants are visited.
        hidden: ``mem_id`` of each element to skip.
        placing: ``mem_id`` of each table that only lays out the page.
    """

    def __init__(self, root: Any, hidden: Collection[int] = (), placing: Collection[int] = ()) -> None:
        self.out = Sections()
        self.dropped: Counter[str] = Counter()
        self._hidden, self._placing = hidden, placing
        self._parts: list[str] = []  # text of the current block, with "\0" for a line break
        self._ids: list[str] = []  # pending anchors of the next heading or block
        self._before: list[str] = []  # anchors before the current heading
        self._kind = self._marker = ""  # kind and list marker of the next block
        self._heading: Any = None  # current heading or signature
        self._pre = 0  # number of open `pre` elements
        self._table: _Table | None = None
        self._captions: dict[int, str] = {}  # caption of each figure by `mem_id`
        self._walk(root)
        self._flush()
        self.out.point(self._ids)

    def _walk(self, root: Any) -> None:
        node = root.first_child
        open_nodes: list[Any] = []
        while node is not None or open_nodes:
            if node is None:
                node = open_nodes.pop()
                self._close(node, node.tag)
            elif (tag := node.tag) == "-text":
                self._parts.append(node.text_content)
            elif tag[0] != "-" and self._open(node, tag):
                if (child := node.first_child) is not None:
                    open_nodes.append(node)
                    node = child
                    continue
                self._close(node, tag)
            node = node.next

    def _open(self, node: Any, tag: str) -> bool:
        """Start an element and return whether its children are visited."""
        is_block = tag in _BLOCKS
        if is_block:
            self._break()
        attributes = node.attributes
        keys = ("id", "name") if tag == "a" else ("id",)
        self._ids += [name for key in keys if attributes and (name := attributes.get(key))]
        if tag in _HIDDEN or node.mem_id in self._hidden:
            return False
        if tag == "a":
            return self._open_link(node, attributes)
        if tag in ("frame", "iframe", "area"):
            self._link(attributes.get("href" if tag == "area" else "src"))
            return False
        if tag == "br" and self._heading is None and not self._pre and "\0" in self._parts[-2:]:
            self._break()
        elif tag == "br":
            self._parts.append("\0")
        elif tag == "math":
            source = node.css_first('annotation[encoding="application/x-tex"]')
            formula = attributes.get("alttext") or ("" if source is None else source.text())
            self._parts.append(formula)
            return not formula
        elif tag == "img":
            self._image(node, attributes)
        elif is_block and self._heading is None:
            self._open_block(node, tag, attributes)
        elif "-" in tag:  # a custom element
            self._parts.append(" ")
        return True

    def _image(self, node: Any, attributes: Mapping[str, str | None]) -> None:
        """Add the alternative text of an image, unless it is in a heading, repeats a caption or renders a formula."""
        text = alt_text(attributes.get("alt") or "")
        if not text or self._heading is not None or "math" in (attributes.get("class") or ""):
            return
        figure = node.parent
        for _ in range(_MAX_WRAPPERS):
            if figure is None or figure.tag == "figure":
                break
            figure = figure.parent
        is_in_figure = figure is not None and figure.tag == "figure"
        if not is_in_figure or text.casefold() not in self._caption(figure):
            self._parts.append(f" {text} ")

    def _caption(self, figure: Any) -> str:
        """Return the start of the caption of a figure, case-folded."""
        if figure.mem_id not in self._captions:
            caption = figure.css_first("figcaption")
            text = "" if caption is None else " ".join(caption.text().split())
            self._captions[figure.mem_id] = text[:MAX_NAME].casefold()
        return self._captions[figure.mem_id]

    def _open_link(self, node: Any, attributes: Mapping[str, str | None]) -> bool:
        target = (attributes.get("href") or "").strip()
        if target.startswith("#") and not _WORD.search(node.text()):  # permalink next to a heading
            return False
        self._link(target)
        return not target or _SOURCES.isdisjoint((attributes.get("class") or "").split())

    def _link(self, target: str | None) -> None:
        target = (target or "").strip()
        if forwarded := _GOOGLE.match(target):
            target = unquote(forwarded[1])
        if target != "#" and not target.lower().startswith(_NO_TARGETS):
            self.out.link(target)

    def _open_block(self, node: Any, tag: str, attributes: Mapping[str, str | None]) -> None:
        table = self._table
        if self._pre or (table is not None and table.in_cell):
            self._pre += tag == "pre"
        elif tag in _HEADINGS or (tag == "dt" and "sig" in (attributes.get("class") or "").split()):
            heading_ids = [self._ids.pop()] if attributes.get("id") else []
            self._heading = node
            self._before, self._ids = self._ids, heading_ids
        elif tag == "pre":
            self._pre = 1
        elif tag == "table":
            self._table = _Table() if node.mem_id not in self._placing else None
        elif table is not None and tag in ("td", "th"):
            table.in_cell = True
            table.is_head &= tag == "th"
        elif table is None and tag in _KINDS:
            self._kind = _KINDS[tag]
            self._marker = "- " if tag == "li" else ""

    def _close(self, node: Any, tag: str) -> None:
        table = self._table
        if node is self._heading:
            self._close_heading(node, tag)
        elif tag in _BLOCKS:
            if tag == "pre" and self._pre:
                self._pre -= 1
                if not self._pre and not (table and table.in_cell):
                    self._flush(is_code=True)
            elif table is not None and not self._pre:
                self._close_part(table, node, tag)
            self._break()
            if tag in _KINDS:
                self._kind = self._marker = ""
        elif "-" in tag:
            self._parts.append(" ")

    def _close_heading(self, node: Any, tag: str) -> None:
        text, ids = self._take(), self._ids
        self._heading, self._ids = None, []
        parent_id = node.parent.attributes.get("id") if node.parent is not None else None
        if not text:
            self._ids = self._before + ids
        elif tag == "dt":
            name = ids[0] if ids and _SYMBOL.fullmatch(ids[0]) else ""
            self.out.start(name or text, ids + self._before[::-1], symbol=name)
            self.out.add(text, "sign", is_whole=True)
        else:
            parent_ids = [parent_id] if parent_id in self._before else []
            self.out.start(text, ids + parent_ids + self._before[::-1], level=_HEADINGS[tag])

    def _close_part(self, table: _Table, node: Any, tag: str) -> None:
        if tag in ("td", "th") and table.in_cell:
            table.cells.append(self._take())
            table.in_cell = False
        elif tag == "tr":
            if row := " | ".join(table.cells).strip() if any(table.cells) else "":
                if not table.rows and not table.header and (table.is_head or node.parent.tag == "thead"):
                    table.header = row[:MAX_NAME]
                else:
                    self._add(row, "row", is_whole=True, header=table.header)
                    table.rows += 1
            table.cells, table.is_head = [], True
        elif tag == "table":
            if not table.rows:
                self.out.add(table.header)
            self._table = None

    def _break(self) -> None:
        """End the current paragraph, or add a space within a heading or table cell."""
        if self._heading is not None or (self._table is not None and self._table.in_cell):
            self._parts.append(" ")
        elif not self._pre:
            self._flush()
        elif self._parts and not self._parts[-1].endswith(("\n", "\0")):
            self._parts.append("\n")

    def _take(self) -> str:
        lines = "".join(self._parts).translate(_INVISIBLE).split("\0")
        self._parts = []
        is_line = self._heading is not None or self._table is not None
        return (" " if is_line else "\n").join(" ".join(line.split()) for line in lines).strip()

    def _flush(self, *, is_code: bool = False) -> None:
        """Add the current paragraph as a block, unless it has no word."""
        if is_code:
            text, counts = without_blobs("".join(self._parts).replace("\0", "\n"))
            self.dropped.update(counts)
            text = text.strip("\n").rstrip()
            self._parts = []
            self._marker = ""
        else:
            text = self._take() if self._parts else ""
        if len(text) > _MAX_MARKS or _WORD.search(text):
            self._add(self._marker + text, self._kind, is_whole=is_code)
            self._kind = self._marker = ""

    def _add(self, text: str, kind: str, *, is_whole: bool, header: str = "") -> None:
        self.out.point(self._ids)
        self._ids = []
        self.out.add(text, kind, is_whole=is_whole, header=header)
