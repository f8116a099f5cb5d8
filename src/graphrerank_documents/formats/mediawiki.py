"""Parse pages of MediaWiki: XML dumps and files of wikitext. Templates are left out."""

import io
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import replace
from html import unescape
from itertools import pairwise
from pathlib import PurePosixPath
from typing import NamedTuple

from graphrerank.installation.extras import optional
from graphrerank_documents.document import MAX_NAME, PAGE, Document, Link, UnreadableError
from graphrerank_documents.formats.alt_text import alt_text
from graphrerank_documents.formats.lined_reader import LineReader, Row
from graphrerank_documents.formats.note_markup import with_links
from graphrerank_documents.formats.redirect_pages import redirecting
from graphrerank_documents.redirects import REDIRECT

_NAMESPACES = frozenset((8, 10, 274, 710, 828))  # interface texts, templates, widgets, timed texts, modules
_MAX_REDIRECTS = 8  # maximum length of a chain of redirects
_MAX_ATTRIBUTES = 500
_MAX_TEMPLATE_LINKS = 500  # maximum number of links of a page that templates contain
_PAGE_TEMPLATES = frozenset(  # templates whose arguments are names of pages
    ("main", "main article", "main articles", "see also", "seealso", "further", "further information", "details",
     "broader", "hauptartikel", "siehe auch", "article détaillé", "vedi anche", "véase también")
)  # fmt: skip
_REDIRECT = re.compile(r"\s*#\S{1,30}\s{0,9}:?\s{0,9}\[\[([^\[\]|#\n]{1,500})(#[^\[\]|\n]{1,500})?", re.IGNORECASE)
_ITEM = re.compile(r"([*#:;]+)[ \t]*(.*)")
_DIRECTION = re.compile(r"__[A-Z]{3,30}__")
_COMMENT = re.compile(r"<!--(?:.*?-->|.*)", re.DOTALL)
_CODE_NAMES = "syntaxhighlight|source|pre|code|math|chem|score|timeline|graph|nowiki"
_CODE = re.compile(rf"<({_CODE_NAMES})\b[^<>]{{0,500}}(?<!/)>", re.IGNORECASE)
_LISTING = ("syntaxhighlight", "source", "pre", "timeline", "score", "graph")
_BRACES = re.compile(r"\{\{|\}\}|\{\||\|\}")
_REFERENCE = re.compile(r"<ref\b[^<>]{0,500}/>|<ref\b[^<>]{0,500}>([^<]{0,5000})</ref\s{0,9}>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,1000}>")
_BREAK = re.compile(r"<br\b[^<>]{0,100}>", re.IGNORECASE)
_LINK = re.compile(
    r"\[\[(?P<target>[^\[\]|\n]{1,1000})(?:\|(?P<shown>[^\[\]]{0,2000}))?\]\](?P<trail>[a-z]{0,50})"
    r"|\[(?P<url>(?:https?:)?//[^\s\[\]]{1,2000})(?:[ \t]+(?P<label>[^\[\]\n]{0,1000}))?\]"
    r"|'{2,5}"
)
_SPECIAL = re.compile(
    r"(?P<media>file|image|media)|(?P<category>category)|[a-z]{2,3}(?:-[a-z]+)*|simple|w|wikt|commons"
)
_NO_CAPTION = re.compile(
    r"(?:thumb|thumbnail|frame|framed|frameless|border|left|right|center|none|baseline|middle|top|bottom|upright|"
    r"sub|super|text-top|text-bottom|\d*x?\d+px|(?:alt|link|lang|page|class|upright)=.*)\Z",
    re.IGNORECASE | re.DOTALL,
)
_KEPT_CODE = "\ue010{}\ue011"
_KEPT = re.compile("\ue010(\\d{1,9})\ue011")


class _Page(NamedTuple):
    """Page of a dump.

    Attributes:
        title: Title with its namespace.
        namespace: Number of the namespace, 0 for articles.
        text: Wikitext of the last revision in the dump.
        redirect: Title of the page to which this one redirects, or empty.
        section: Section of that page, which begins with ``#``, or empty.
    """

    title: str
    namespace: int
    text: str
    redirect: str
    section: str = ""


def read_wikitext(content: bytes, name: str) -> list[Document]:
    """Parse a file of wikitext.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source. The title of the page is the name of the file.

    Returns:
        One document with a section per heading. A page that redirects to another one has no text.

    Raises:
        UnreadableError: If ``content`` is binary or its encoding is unknown.
    """
    reader = _Wikitext(content, name, PurePosixPath(name).stem.replace("_", " "), {})
    written = _REDIRECT.match(reader.text)
    target = written[1].strip() + (written[2] or "") if written else ""
    return [redirecting(document, target, PAGE) for document in reader.read()]


def read_dump(content: bytes, name: str) -> list[Document]:
    """Parse an XML dump.

    A page that redirects is an alias of the page to which it redirects, or a document that redirects to its section.
    Pages of templates, modules, discussions and the interface are left out.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document per page.

    Raises:
        UnreadableError: If ``content`` is not XML.
    """
    namespaces, pages = _pages(content)
    kept = [page for page in pages if page.namespace % 2 == 0 and page.namespace not in _NAMESPACES]
    target_of = {_key(page.title): page.redirect for page in kept if page.redirect}
    aliases: dict[str, list[str]] = {}
    documents = []
    for page in kept:
        if page.redirect and page.section:
            link = Link(page.redirect + page.section, kind=PAGE, edge=REDIRECT)
            documents.append(Document(f"{name}#{page.title}"[:MAX_NAME], page.title[:MAX_NAME], (), redirect=link))
        elif page.redirect:
            aliases.setdefault(_last_target(page.redirect, target_of), []).append(page.title)
    for page in kept:
        if not page.redirect:
            (document,) = _Wikitext(
                page.text.encode(), f"{name}#{page.title}"[:MAX_NAME], page.title, namespaces
            ).read()
            own = tuple(title[:MAX_NAME] for title in aliases.get(_key(page.title), ()))
            documents.append(replace(document, aliases=own))
    if documents and (omitted := len(pages) - len(kept)):
        dropped = {**documents[0].dropped, "pages of templates, talk and the interface": omitted}
        documents[0] = replace(documents[0], dropped=dropped)
    return documents


def _pages(content: bytes) -> tuple[dict[str, int], list[_Page]]:
    """Return the numbers of the namespaces by name, and the pages. Entities are not resolved."""
    etree = optional("lxml.etree", "an XML file")
    namespaces: dict[str, int] = {}
    pages = []
    events = etree.iterparse(
        io.BytesIO(content), tag=("{*}namespace", "{*}page"), resolve_entities=False, no_network=True, remove_pis=True
    )
    try:
        for _, element in events:
            if element.tag.endswith("namespace"):
                namespaces[(element.text or "").casefold()] = _integer(element.get("key"))
                continue
            redirect = element.find("{*}redirect")
            *_, text = ("", *(each.text or "" for each in element.iterfind("{*}revision/{*}text")))
            written = _REDIRECT.match(text) if len(text) < MAX_NAME or redirect is not None else None
            target = "" if redirect is None else redirect.get("title") or ""
            title = " ".join((element.findtext("{*}title") or "").split())
            number = _integer(element.findtext("{*}ns"))
            if title:
                section = (written[2] or "").strip() if written else ""
                target, _, anchor = (target or (written[1].strip() if written else "")).partition("#")
                pages.append(_Page(title, number, text, target, f"#{anchor}" if anchor else section))
            element.clear()
    except (etree.XMLSyntaxError, ValueError) as error:
        raise UnreadableError("not XML") from error
    return namespaces, pages


def _integer(text: str | None) -> int:
    return int(text) if text and re.fullmatch(r"-?\d{1,9}", text) else 0


def _key(title: str) -> str:
    return " ".join(title.replace("_", " ").split()).casefold()


def _last_target(title: str, target_of: Mapping[str, str]) -> str:
    """Follow a chain of redirects to its end."""
    key = _key(title)
    for _ in range(_MAX_REDIRECTS):
        if key not in target_of:
            break
        key = _key(target_of[key])
    return key


def without_templates(text: str) -> str:
    """Return wikitext without templates, which may be nested. Tables and unbalanced braces remain.

    Args:
        text: Wikitext that may contain templates.

    Returns:
        Text with the same number of lines.

    Example:
        >>> without_templates("a {{b|{{c}}}} d {| e |} }}")
        'a  d {| e |} }}'
    """
    spans = _template_spans(text)
    bounds = [0, *(bound for span in spans for bound in span), len(text)]
    parts = [text[start:end] for start, end in list(pairwise(bounds))[::2]]
    breaks = ["\n" * text.count("\n", start, end) for start, end in spans]
    return "".join(part + gap for part, gap in zip(parts, [*breaks, ""], strict=True))


def _template_spans(text: str) -> list[tuple[int, int]]:
    """Return the starts and ends of the outermost templates, in order."""
    open_at: list[tuple[int, str]] = []
    spans: list[tuple[int, int]] = []
    for mark in _BRACES.finditer(text):
        if mark[0] in ("{{", "{|"):
            open_at.append((mark.start(), mark[0]))
        elif mark[0] == "|}" and open_at and open_at[-1][1] == "{|":
            open_at.pop()
        elif mark[0] == "}}":
            while open_at and open_at[-1][1] == "{|" and any(kind == "{{" for _, kind in open_at[-2:-1]):
                open_at.pop()  # a parameter that starts with `{|`
            if open_at and open_at[-1][1] == "{{":
                start, _ = open_at.pop()
                while spans and spans[-1][0] > start:
                    spans.pop()
                spans.append((start, mark.end()))
    return spans


class _Wikitext(LineReader):
    """Reader of a page in wikitext."""

    def __init__(self, content: bytes, name: str, title: str, namespaces: Mapping[str, int]) -> None:
        super().__init__(content, name)
        self.title = title
        self._namespaces = namespaces
        self._code: list[tuple[str, str]] = []
        text = self._without_code(_COMMENT.sub(_breaks, self.text))
        self._template_links = self._links_in_templates(text)
        text = _REFERENCE.sub(
            lambda found: f" ({found[1].strip()})" if (found[1] or "").strip() else "", without_templates(text)
        )
        self.lines = text.split("\n")

    def read(self) -> list[Document]:
        """Return the document, with the links of templates in the blocks near which they are written."""
        documents = super().read()
        if not self._template_links:
            return documents
        return [_with_template_links(document, self._template_links) for document in documents]

    def _links_in_templates(self, text: str) -> dict[Link, bool]:
        """Return the links in the arguments of templates, such as infoboxes, and of templates that name pages.

        The values tell whether the template starts its line, so that it belongs to the text below it.
        """
        found_links: dict[Link, bool] = {}
        line, counted = 1, 0
        for start, end in _template_spans(text):
            line += text.count("\n", counted, start)
            counted = start
            template, links = text[start + 2 : end - 2], list[Link]()
            name, *arguments = template.split("|")
            if " ".join(name.replace("_", " ").split()).casefold() in _PAGE_TEMPLATES:
                links += [Link(page, line, PAGE) for each in arguments if (page := _page_name(each))]
            else:
                for found in _LINK.finditer(template):
                    if found["target"]:
                        self._shown(found, line, links)
            is_first = not text[text.rfind("\n", 0, start) + 1 : start].strip()
            found_links |= dict.fromkeys(links, is_first)
            if len(found_links) >= _MAX_TEMPLATE_LINKS:
                break
        return found_links

    def _without_code(self, text: str) -> str:
        """Replace code by marks, because its text is not wikitext. The number of lines is unchanged."""
        lower, parts = text.lower(), list[str]()
        copied = 0  # end of the text that `parts` contains
        unclosed = set[str]()  # so that the time is linear
        for found in _CODE.finditer(text):
            name = found[1].lower()
            if found.start() < copied or name in unclosed:
                continue
            end = lower.find(f"</{name}", found.end())
            close = lower.find(">", end)
            if end < 0 or close < 0:
                unclosed.add(name)
                continue
            self._code.append((name, text[found.end() : end]))
            breaks = "\n" * text.count("\n", found.start(), close)
            parts += [text[copied : found.start()], _KEPT_CODE.format(len(self._code) - 1), breaks]
            copied = close + 1
        return "".join([*parts, text[copied:]])

    def line(self, line: str) -> None:
        """Parse a line: a heading, a list item, a table, code or a part of a paragraph."""
        mark = _KEPT.match(line.strip())
        if heading := _heading(line):
            self.flush()
            text, links = self.inline(heading, self.line_number)
            self.open(text, self.line_number, links)
        elif line.lstrip().startswith("{|"):
            self.flush()
            self._table()
        elif mark and self._code[int(mark[1])][0] in _LISTING and mark.end() == len(line.strip()):
            self.flush()
            self.whole(unescape(self._code[int(mark[1])][1]).split("\n"), self.line_number)
        elif item := _ITEM.match(line):
            self.item("-", item[2])
        elif re.match(r"-{4,}", line):
            self.flush()
        else:
            self.hold(line)

    def _table(self) -> None:
        """Parse a table. Nested tables are read as its rows."""
        rows = list[Row]()
        headers = 0  # number of header rows at the start
        cells, links = list[str](), list[Link]()  # cells of the current row, and the links in them
        start = self.line_number  # line of the current row
        is_header = True  # whether all cells of the current row are header cells

        def finish_row() -> None:
            nonlocal headers, cells, links
            if any(cells):
                headers += is_header and headers == len(rows)
                rows.append(Row(" | ".join(cells).strip(), start, links))
            cells, links = [], []

        depth = 1
        while depth and self.line_number < len(self.lines):
            line = self.lines[self.line_number].strip()
            self.line_number += 1
            if line.startswith("{|"):
                depth += 1
            elif line.startswith("|}"):
                depth -= 1
            elif line.startswith("|-"):
                finish_row()
                is_header, start = True, self.line_number
            elif line.startswith("|+"):
                finish_row()
                self.add(self.inline(line[2:], self.line_number)[0], self.line_number)
            elif line[:1] in ("|", "!"):
                is_header &= line[0] == "!"
                for cell in re.split(r"\|\||!!" if line[0] == "!" else r"\|\|", line[1:]):
                    text, cell_links = self.inline(_without_attributes(cell), self.line_number)
                    cells.append(" ".join(text.split()))
                    links += cell_links
            elif cells and line:  # continuation of the last cell
                text, cell_links = self.inline(line, self.line_number)
                cells[-1] = f"{cells[-1]} {' '.join(text.split())}".strip()
                links += cell_links
        finish_row()
        self.table(rows, min(headers, 1))

    def inline(self, text: str, line: int) -> tuple[str, list[Link]]:
        """Return a text without markup, and its links. Links in captions are read before the caption's own link."""
        links: list[Link] = []
        for _ in range(3):  # links in the captions of files
            text, count = _LINK.subn(lambda found: self._shown(found, line, links), text)
            if not count:
                break
        text = _TAG.sub("", _BREAK.sub(" ", _DIRECTION.sub("", text)))
        return _KEPT.sub(lambda found: self._code[int(found[1])][1], unescape(text)).strip(), links

    def _shown(self, found: re.Match[str], line: int, links: list[Link]) -> str:
        """Return the text of a link and record the link."""
        if found["url"]:
            links.append(Link(found["url"], line))
            return found["label"] or ""
        if not found["target"]:
            return ""  # quotation marks of bold and italic text
        target, shown = found["target"].strip(), found["shown"]
        prefix, colon, _ = target.partition(":")
        number = self._namespaces.get(prefix.strip().casefold(), 0) if colon and prefix.strip() else 0
        special = _SPECIAL.fullmatch(prefix.strip().casefold()) if colon else None
        if number == 6 or (special and special["media"]):
            parts = [part.strip() for part in (shown or "").split("|") if part.strip()]
            caption = next((part for part in reversed(parts) if not _NO_CAPTION.match(part)), "")
            alternative = next((part[4:] for part in parts if part.lower().startswith("alt=")), "")
            return (caption or alt_text(alternative)) + found["trail"]
        if number == 14 or (special and special["category"]):
            return ""
        if special and not number:
            return (shown or "") + found["trail"]  # a page of another wiki, or of the same one in another language
        target = target.removeprefix(":").strip()
        links.append(Link(target, line, PAGE))
        if shown == "":  # the pipe trick: without the namespace and the words in brackets
            shown = re.sub(r"\s*\([^()]*\)\Z", "", target.partition(":")[2] or target)
        return (target if shown is None else shown.rpartition("|")[2]) + found["trail"]


def _with_template_links(document: Document, links: Mapping[Link, bool]) -> Document:
    """Return a page with the links of its templates.

    A link goes to the block that contains its line or, if the template starts the line, to the next block of the
    section. A page without text remains without text.
    """
    blocks = [(block.line, number) for number, each in enumerate(document.sections) for block in each.blocks]
    if not blocks:
        return document
    starts = [start for start, _ in blocks]
    tops = [section.line for section in document.sections]
    placed = []
    for link, is_first in links.items():
        place = bisect_left(starts, link.line)
        is_below = is_first and place < len(blocks) and blocks[place][1] <= max(0, bisect_right(tops, link.line) - 1)
        placed.append(replace(link, line=starts[place] if is_below else link.line))
    return with_links(document, placed)


def _page_name(argument: str) -> str:
    """Return the page in an argument of a template, or an empty string for a named argument or one with markup."""
    page = argument.strip()
    is_named = re.match(r"[\w ]{1,30}=", page)
    return "" if is_named or re.search(r"[\[\]{}<>\n]", page) or len(page) > MAX_NAME else page.lstrip(":")


def _heading(line: str) -> str:
    """Return the text of a heading, such as ``== Use ==``, or an empty string."""
    line = line.strip()
    level = min(len(line) - len(line.lstrip("=")), len(line) - len(line.rstrip("=")), 6)
    return line[level:-level].strip() if level and len(line) > 2 * level else ""


def _breaks(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def _without_attributes(cell: str) -> str:
    """Return the content of a table cell without its attributes, as in ``align="left" | text``."""
    before, bar, after = cell.partition("|")
    return after if bar and "=" in before and "[[" not in before and len(before) < _MAX_ATTRIBUTES else cell
