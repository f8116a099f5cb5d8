"""Parse text documents of OpenDocument (ODT), as LibreOffice writes them, by converting them to HTML."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from html import escape
from typing import Any
from urllib.parse import unquote

from graphrerank_documents.document import Document, UnreadableError
from graphrerank_documents.formats.alt_text import alt_text
from graphrerank_documents.formats.archives import unpacking
from graphrerank_documents.formats.html import read_html
from graphrerank_documents.formats.xml import local_name, parse_xml

_HIDDEN_TAGS = """tracked-changes table-of-content alphabetical-index illustration-index table-index object-index
user-index bibliography sequence-decls variable-decls user-field-decls forms note-citation hidden-text hidden-paragraph
ruby-text title desc image object covered-table-cell dde-connection-decls"""
_HIDDEN = frozenset(_HIDDEN_TAGS.split())  # elements without text of the document, or with text that is repeated
_MARKS = frozenset(("bookmark", "bookmark-start", "reference-mark", "reference-mark-start"))
_REFERENCES = frozenset(("bookmark-ref", "reference-ref"))
_CODE_STYLE = re.compile(r"preformatted|source code|^code\b|verbatim|teletype", re.IGNORECASE)
_HEADING_STYLE = re.compile(r"heading ([1-6])\Z|(?:title)\Z", re.IGNORECASE)
_PLACE = re.compile(r"(?:[\d.]+\s*)?(.*)\|(?:outline|region|table|frame|graphic|ole|text|sequence)\Z", re.DOTALL)
_MAX_BASES = 20  # maximum number of base styles to follow
_MAX_SPACES = 100  # maximum number of spaces that one element stands for


def read_odt(content: bytes, name: str) -> list[Document]:
    """Parse a text document of OpenDocument: its headings, paragraphs, lists, tables, notes and links.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document with a section per heading.

    Raises:
        UnreadableError: If ``content`` is not an ODT file, or is encrypted or too large.
    """
    with unpacking(content, "ODT") as archive:
        names = set(archive.namelist())
        if "META-INF/manifest.xml" in names and b"encryption-data" in archive.read("META-INF/manifest.xml"):
            raise UnreadableError("encrypted")
        roots: dict[str, Any] = {
            each: parse_xml(archive.read(each)) for each in ("content.xml", "styles.xml", "meta.xml") if each in names
        }
        body = roots["content.xml"].find(".//{*}body/{*}text") if "content.xml" in roots else None
        if body is None:
            raise UnreadableError("not a text document of OpenDocument")
        title = (roots["meta.xml"].findtext(".//{*}title") or "") if "meta.xml" in roots else ""
        text = "".join(_Text(_style_names(roots)).blocks(body))
        (page,) = read_html(f"<head><title>{escape(title)}</title></head><body><main>{text}".encode(), name)
    return [replace(page, is_page=False)]


def _style_names(roots: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of each style and of its base styles."""
    bases: dict[str, tuple[str, str]] = {}
    for root in roots.values():
        for style in root.iter("{*}style"):
            own = _attribute(style, "name")
            shown = _attribute(style, "display-name") or own.replace("_20_", " ")
            bases[own] = (shown, _attribute(style, "parent-style-name"))
    names: dict[str, list[str]] = {}
    for own in bases:
        names[own], style_name = [], own
        while style_name in bases and len(names[own]) < _MAX_BASES:
            shown, style_name = bases[style_name]
            names[own].append(shown)
        names[own] += [style_name.replace("_20_", " ")] if style_name else []
    return names


def _attribute(element: Any, name: str) -> str:
    """Return the value of an attribute, whatever its namespace."""
    return next((str(value) for key, value in element.attrib.items() if key.rpartition("}")[2] == name), "")


class _Text:
    """Converter of the body of a text document to HTML.

    Args:
        styles: Names of each style and of its base styles.
    """

    def __init__(self, styles: Mapping[str, list[str]]) -> None:
        self._styles = styles
        self._notes: list[Any] = []  # notes and text boxes of the current paragraph, which follow it

    def blocks(self, body: Any) -> Iterator[str]:
        """Yield the HTML of paragraphs, lists and tables.

        Args:
            body: Element that contains them.
        """
        for element in body:
            tag = local_name(element)
            if tag in ("p", "h"):
                yield from self._paragraph(element, self._tag(element))
            elif tag == "table":
                yield from self._table(element)
            elif tag in ("list-item", "list-header"):
                yield from self._item(element)
            elif tag == "frame":
                yield from self._frame(element)
            elif tag not in _HIDDEN:
                yield from self.blocks(element)

    def _paragraph(self, element: Any, tag: str) -> Iterator[str]:
        yield f"<{tag}>{self.inline(element)}</{tag}>"
        notes, self._notes = self._notes, []
        for note in notes:
            yield from self.blocks(note)

    def _item(self, item: Any) -> Iterator[str]:
        """Yield a list item: its first paragraph with a marker, and the others and nested lists after it."""
        for place, element in enumerate(item):
            if place == 0 and local_name(element) == "p":
                yield from self._paragraph(element, "li")
            else:
                yield from self.blocks([element])

    def _table(self, table: Any) -> Iterator[str]:
        rows = []
        for row in table.iter("{*}table-row"):
            if next(row.iterancestors("{*}table"), None) is table:
                cells = [cell for cell in row if local_name(cell) == "table-cell"]
                rows.append(
                    [re.sub(r"</?(?:p|h\d|li|pre)>", " ", "".join(self.blocks(cell))).strip() for cell in cells]
                )
        rows = [row for row in rows if any(row)]
        if not rows:
            return
        yield "<table>"
        for number, row in enumerate(rows):
            tag = "th" if not number and len(rows) > 1 and len(row) > 1 and all(row) else "td"
            yield f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in row)}</tr>"
        yield "</table>"

    def _frame(self, frame: Any) -> Iterator[str]:
        """Yield the alternative text of an image, or the text of a text box."""
        texts = (alt_text(frame.findtext(f"{{*}}{name}") or "") for name in ("title", "desc"))
        if text := ". ".join(dict.fromkeys(filter(None, texts))):
            yield f"<p>{escape(text)}</p>"
        for box in frame.iterchildren("{*}text-box"):
            yield from self.blocks(box)

    def inline(self, element: Any) -> str:
        """Return the HTML of the content of a paragraph.

        Args:
            element: Paragraph or an element in it.
        """
        parts = [escape(element.text or "")]
        for child in element:
            parts += [self._part(child, local_name(child)), escape(child.tail or "")]
        return "".join(parts)

    def _part(self, element: Any, tag: str) -> str:
        if tag == "s":
            count = _attribute(element, "c")
            return " " * min(_number(count), _MAX_SPACES)
        if tag in ("tab", "line-break"):
            return "\t" if tag == "tab" else "<br>"
        if tag == "a":
            return f'<a href="{escape(_target(_attribute(element, "href")))}">{self.inline(element)}</a>'
        if tag in _REFERENCES:
            return f'<a href="#{escape(_attribute(element, "ref-name"))}">{self.inline(element)}</a>'
        if tag in _MARKS:
            return f'<a id="{escape(_attribute(element, "name"))}"></a>'
        if tag == "note":
            self._notes += element.findall("{*}note-body")
            return ""
        if tag in ("annotation", "frame"):
            self._notes.append([element] if tag == "frame" else element)
            return ""
        return "" if tag in _HIDDEN else self.inline(element)

    def _tag(self, element: Any) -> str:
        """Return the HTML element for a paragraph or heading."""
        if local_name(element) == "h":
            level = _attribute(element, "outline-level")
            return f"h{min(max(_number(level), 1), 6)}"
        style = _attribute(element, "style-name")
        for name in self._styles.get(style, [style.replace("_20_", " ")]):
            if heading := _HEADING_STYLE.match(name):
                return f"h{heading[1] or 1}"
            if _CODE_STYLE.search(name):
                return "pre"
        return "p"


def _number(text: str) -> int:
    """Return the number in an attribute, or 1 if there is none. Only its first digits are read: it may have thousands.

    Example:
        >>> _number("12"), _number(""), _number("9" * 5000)
        (12, 1, 999999999)
    """
    return int(text[:9]) if text.isdecimal() else 1


def _target(href: str) -> str:
    """Return the target of a link. A relative path starts in the package, which is one level below its folder.

    Example:
        >>> _target("#1.2.Use of pumps|outline"), _target("../other.odt"), _target("https://example.org/..")
        ('#Use of pumps', 'other.odt', 'https://example.org/..')
    """
    path, mark, anchor = href.partition("#")
    if place := _PLACE.match(unquote(anchor)):
        anchor = place[1]
    is_relative = not re.match(r"[a-z][a-z0-9+.-]*:|/", path, re.IGNORECASE)
    return (path.removeprefix("../") if is_relative else path) + mark + anchor
