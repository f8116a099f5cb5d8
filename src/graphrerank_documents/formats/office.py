"""Parse office documents (DOCX, PPTX, XLSX) and e-books (EPUB)."""

import posixpath
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from html import escape
from io import BytesIO
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from graphrerank.installation.extras import optional
from graphrerank_documents.document import MAX_NAME, Document, UnreadableError
from graphrerank_documents.formats.archives import unpacking
from graphrerank_documents.formats.html import read_html
from graphrerank_documents.formats.sections import Sections
from graphrerank_documents.formats.xml import local_name, parse_xml

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_BODY = "document.xml"
_PAGE = "application/xhtml+xml"  # media type of the pages of an e-book
_PARTS = (
    _BODY,
    "styles.xml",
    "footnotes.xml",
    "endnotes.xml",
    "comments.xml",
    "_rels/document.xml.rels",
)  # files in the folder `word` of a DOCX file
_HEADING = re.compile(r"heading ([1-6])$|(?:(?:chapter|document|book|report) ?)?title$")
_CODE_STYLE = re.compile(r"^(source )?code\b|preformatted|verbatim|^macro")
_CODE_FONT = re.compile(r"courier|consolas|menlo|monaco|.*\bmono", re.IGNORECASE)
_MAX_BASES = 20  # maximum number of base styles to follow
_NOTES = {"footnoteReference": "footnotes.xml", "endnoteReference": "endnotes.xml", "commentReference": "comments.xml"}
_FIELD = re.compile(  # target of a field: a URL and an anchor, or a bookmark
    r"\s*(?:HYPERLINK(?:\s+(?!\\)\"?(?P<url>[^\s\"]+)\"?)?(?:\s+\\l\s+\"?(?P<anchor>[^\s\"]+)\"?)?"
    r"|(?:REF|NOTEREF)\s+(?P<mark>[^\s\\]+))",
    re.IGNORECASE,
)
_SIGNS = {"tab": "\t", "br": "<br>", "cr": "<br>", "noBreakHyphen": "-"}
_TWICE = frozenset(("Fallback", "moveFrom", "del", "pPr", "rPr"))  # elements that are invisible or duplicated elsewhere
_DECORATION = (13, 14, 15, 16)  # placeholders of slides: number, header, footer, date
_MAX_CELLS, _MAX_COLUMNS = 500_000, 500  # maximum number of cells of a workbook, and of columns of a sheet
_NUMBER = re.compile(r"[-+]?[\d.,:% /-]*\d[\d.,:% /-]*")  # number or date
_HEADER_ROWS = 20  # number of rows in which the header row of a sheet is searched for


def read_docx(content: bytes, name: str) -> list[Document]:
    """Parse a Word document by converting it to HTML.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document with a section per heading.

    Raises:
        UnreadableError: If ``content`` is not a DOCX file, or is encrypted or too large.
    """
    with unpacking(content, "DOCX") as archive:
        parts = {
            part: parse_xml(archive.read(f"word/{part}")) for part in _PARTS if f"word/{part}" in archive.namelist()
        }
        (page,) = read_html(f"<body><main>{''.join(_Words(parts).blocks(parts[_BODY][0]))}".encode(), name)
    return [replace(page, is_page=False)]


class _Words:
    """Converter of a Word document to HTML."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self._links = {each.get("Id"): each.get("Target") for each in parts.get("_rels/document.xml.rels", ())}
        self._styles = {style.get(f"{_WORD}styleId"): style for style in parts.get("styles.xml", ())}
        self._notes = {(part, note.get(f"{_WORD}id")): note for part in _NOTES.values() for note in parts.get(part, ())}
        self._fields: list[str] = []  # instructions of the open fields
        self._tags: dict[str, str] = {}  # HTML element of each style

    def blocks(self, body: Any) -> Iterator[str]:
        """Yield the HTML of paragraphs and tables. Successive lines of code form one block."""
        for tag, elements in groupby(body, self._tag):
            if tag == "pre":
                yield f"<pre>{chr(10).join(''.join(self._inline(each)) for each in elements)}</pre>"
                continue
            for element in elements:
                if element.tag == f"{_WORD}p":
                    yield from self._paragraph(element, tag)
                elif element.tag == f"{_WORD}tbl":
                    yield from self._table(element)
                elif local_name(element) not in _TWICE:
                    yield from self.blocks(element)

    def _paragraph(self, paragraph: Any, tag: str) -> Iterator[str]:
        if tag:
            yield f"<{tag}>{''.join(self._inline(paragraph))}</{tag}>"
        for mark in paragraph.iter(*(f"{_WORD}{name}" for name in _NOTES)):
            key = (_NOTES[local_name(mark)], mark.get(f"{_WORD}id"))
            if (note := self._notes.pop(key, None)) is not None:  # a note may refer to itself
                yield from self.blocks(note)

    def _table(self, table: Any) -> Iterator[str]:
        rows = [["".join(self.blocks(cell)) for cell in _inner(row, "tc", "tr")] for row in _inner(table, "tr", "tbl")]
        if not any(rows):
            return
        if len(rows) == len(rows[0]) == 1:  # a table with one cell is a text box
            yield rows[0][0]
            return
        shown = [[re.sub(r"</?(?:p|h\d|li)>", " ", cell).strip() for cell in row] for row in rows]
        yield "<table>"
        for number, row in enumerate(shown):
            tag = "th" if not number and len(rows) > 1 and len(row) > 1 and all(row) else "td"
            yield f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in row)}</tr>"
        yield "</table>"

    def _inline(self, element: Any) -> Iterator[str]:
        """Yield the HTML of a paragraph's content."""
        for part in element:
            tag = local_name(part)
            if tag == "t":
                yield escape(part.text or "")
            elif tag in _SIGNS:
                yield _SIGNS[tag]
            elif tag == "bookmarkStart":
                yield f'<a id="{escape(part.get(f"{_WORD}name") or "")}"></a>'
            elif tag == "hyperlink":
                place = f"#{anchor}" if (anchor := part.get(f"{_WORD}anchor")) else ""
                target = f"{self._links.get(part.get(_RELATION), '')}{place}"
                yield f'<a href="{escape(target)}">{"".join(self._inline(part))}</a>'
            elif tag == "fldChar":
                yield from self._field(part.get(f"{_WORD}fldCharType") or "")
            elif tag == "instrText":
                if self._fields:
                    self._fields[-1] += part.text or ""
            elif tag == "fldSimple":
                yield f"{field_start(part.get(f'{_WORD}instr') or '')}{''.join(self._inline(part))}</a>"
            elif tag not in _TWICE:
                yield from self._inline(part)

    def _field(self, kind: str) -> Iterator[str]:
        """Yield the start or end of the link of a field, whose instructions precede its text."""
        if kind == "begin":
            self._fields.append("")
        elif kind == "separate" and self._fields:
            yield field_start(self._fields[-1])
        elif kind == "end" and self._fields:
            self._fields.pop()
            yield "</a>"

    def _tag(self, paragraph: Any) -> str:
        """Return the HTML element for a paragraph. Empty for other elements and entries of a table of contents."""
        if paragraph.tag != f"{_WORD}p":
            return ""
        look = _of(paragraph, "pPr/pStyle")
        if look not in self._tags:
            self._tags[look] = self._tag_of_style(look)
        level = _of(paragraph, "pPr/outlineLvl", "9")
        tag = f"h{int(level) + 1}" if level < "6" else self._tags[look]
        if tag == "p" and paragraph.find(f"{_WORD}pPr/{_WORD}numPr") is not None:
            return "li"
        marks = (mark.get(f"{_WORD}name") or "" for mark in paragraph.iter(f"{_WORD}bookmarkStart"))
        # a paragraph that the table of contents refers to is a heading
        return "h2" if tag == "p" and any(mark.startswith("_Toc") for mark in marks) else tag

    def _tag_of_style(self, look: str) -> str:
        """Return the HTML element for a style, or for the first of its base styles with a known element."""
        shown = "p"
        for _ in range(_MAX_BASES):
            if (style := self._styles.get(look)) is None:
                break
            name, level = _of(style, "name").lower(), _of(style, "pPr/outlineLvl", "9")
            font = style.find(f"{_WORD}rPr/{_WORD}rFonts")
            if name.startswith("toc "):
                return ""
            if heading := _HEADING.match(name):
                return f"h{heading[1] or 1}"
            if level < "6":
                return f"h{int(level) + 1}"
            if _CODE_STYLE.search(name) or (font is not None and _CODE_FONT.match(font.get(f"{_WORD}ascii", ""))):
                return "pre"
            if name.startswith("list ") or style.find(f"{_WORD}pPr/{_WORD}numPr") is not None:
                shown = "li"
            look = _of(style, "basedOn")
        return shown


def field_start(instructions: str) -> str:
    """Return the HTML start tag of the link of a field of Word.

    Args:
        instructions: Instructions of the field, such as ``HYPERLINK "page.docx"``.

    Returns:
        Start tag, without a target if the field is not a link.
    """
    found = _FIELD.match(instructions)
    mark = found and (found["anchor"] or found["mark"])
    target = f"{found['url'] or ''}{f'#{mark}' if mark else ''}" if found else ""
    return f'<a href="{escape(target)}">' if target else "<a>"


def _inner(element: Any, name: str, parent: str) -> Iterator[Any]:
    """Yield the rows of a table or the cells of a row, without those of nested tables."""
    for each in element.iter(f"{_WORD}{name}"):
        if next(each.iterancestors(f"{_WORD}{parent}"), None) is element:
            yield each


def _of(element: Any, path: str, default: str = "") -> str:
    """Return the value of a property of a paragraph or style."""
    found = element.find("/".join(f"{_WORD}{name}" for name in path.split("/")))
    return default if found is None else found.get(f"{_WORD}val") or default


def add_rows(out: Sections, rows: Sequence[Sequence[str]], *, has_header: bool | None = None) -> None:
    """Add the rows of a table to the current section.

    Args:
        out: Sections of the document.
        rows: Rows of the table. Empty rows are ignored.
        has_header: Whether the first row is a header. If None, a row with at least two cells and no empty cell is a
            header.
    """
    rows = [row for row in rows if any(row)]
    if has_header is None:
        has_header = len(rows) > 1 and len(rows[0]) > 1 and all(rows[0])
    header = " | ".join(rows[0]).strip()[:MAX_NAME] if has_header else ""
    for row in rows[has_header:]:
        out.add(" | ".join(row).strip(), "row", is_whole=True, header=header)


def read_pptx(content: bytes, name: str) -> list[Document]:
    """Parse a presentation. Each slide is a section with its title, texts, tables and notes.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document.

    Raises:
        UnreadableError: If ``content`` is not a PPTX file, or is encrypted or too large.
    """
    pptx = optional("pptx", "a PPTX file")
    with unpacking(content, "PPTX"):
        slides = pptx.Presentation(BytesIO(content))
        pages = {str(slide.part.partname).rpartition("/")[2]: number for number, slide in enumerate(slides.slides, 1)}
        out = Sections()
        for number, slide in enumerate(slides.slides, 1):
            titled = slide.shapes.title
            heading = " ".join(titled.text_frame.text.split()) if titled is not None else ""
            out.start(heading or f"Slide {number}", [f"slide-{number}"], level=1 if heading else 2)
            for shape in _shapes(slide.shapes):
                if titled is None or shape.shape_id != titled.shape_id:
                    _read_shape(out, shape, pages)
            if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) is not None:
                _read_frame(out, notes, pages)
        title = out.titled or slides.core_properties.title or PurePosixPath(name).stem
        return [Document(name, title[:MAX_NAME], out.end())]


def _shapes(shapes: Iterable[Any]) -> Iterator[Any]:
    """Yield the shapes, including those in groups, except slide numbers, headers, footers and dates."""
    pending = [iter(shapes)]
    while pending:
        shape = next(pending[-1], None)
        if shape is None:
            pending.pop()
        elif hasattr(shape, "shapes"):
            pending.append(iter(shape.shapes))
        elif not (shape.is_placeholder and shape.placeholder_format.type in _DECORATION):
            yield shape


def _read_shape(out: Sections, shape: Any, pages: dict[str, int]) -> None:
    if shape.has_text_frame:
        _read_frame(out, shape.text_frame, pages, is_list=shape.is_placeholder)
    elif getattr(shape, "has_table", False) and shape.has_table:
        rows = shape.table.rows
        add_rows(out, [[" ".join(cell.text_frame.text.split()) for cell in row.cells] for row in rows])


def _read_frame(out: Sections, frame: Any, pages: dict[str, int], *, is_list: bool = False) -> None:
    is_list = is_list and len(frame.paragraphs) > 1
    for paragraph in frame.paragraphs:
        for run in paragraph.runs:
            target = run.hyperlink.address or ""
            out.link(f"#slide-{pages[target]}" if target in pages else target)
        text = paragraph.text.replace("\v", "\n").strip()
        out.add(f"- {text}" if text and is_list else text, "item" if is_list else "")


def read_xlsx(content: bytes, name: str) -> list[Document]:
    """Parse a workbook. Formulas are replaced by the values that were saved with them.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document per sheet that is not empty.

    Raises:
        UnreadableError: If ``content`` is not an XLSX file, or is encrypted or too large.
    """
    openpyxl = optional("openpyxl", "an XLSX file")
    with unpacking(content, "XLSX"):
        book = openpyxl.load_workbook(BytesIO(content), read_only=True, data_only=True, keep_links=False)
        stem, documents, left = PurePosixPath(name).stem, [], _MAX_CELLS
        for sheet in book.worksheets:
            sheet.reset_dimensions()  # the dimensions in the file may be wrong
            rows = []
            for row in sheet.iter_rows(values_only=True):
                left -= max(1, len(row))
                if left < 0:
                    break
                rows.append([_shown(cell) for cell in row[:_MAX_COLUMNS]])
            title = stem if len(book.worksheets) == 1 else f"{stem}: {sheet.title}"
            dropped = {"sheets cut": 1} if left < 0 else {}
            if sections := _sheet(rows).end():
                document = Document(f"{name}#{sheet.title}", title[:MAX_NAME], sections, dropped=dropped)
                documents.append(document)
        return documents


def _sheet(rows: Sequence[Sequence[str]]) -> Sections:
    """Add the rows of a sheet. The header is the first of the top rows with at least half of the maximum width."""
    out = Sections()
    rows = [_trimmed(row) for row in rows if any(row)]
    widths = [sum(map(bool, row)) for row in rows[:_HEADER_ROWS]]
    wide = max(2, max(widths, default=0) / 2)
    top = next((i for i, width in enumerate(widths) if width >= wide), 0)
    for row in rows[:top]:
        out.add(" | ".join(filter(None, row)))
    has_header = len(rows) > top + 1 and widths[top] >= wide and not any(map(_NUMBER.fullmatch, rows[top]))
    add_rows(out, rows[top:], has_header=has_header)
    return out


def _trimmed(row: Sequence[str]) -> list[str]:
    end = max(place for place, cell in enumerate(row, 1) if cell)
    return [*row[:end]]


def _shown(cell: object) -> str:
    """Return the value of a cell as a string, with dates and times in ISO 8601."""
    if isinstance(cell, datetime):
        return cell.isoformat(" ").removesuffix(" 00:00:00")
    if isinstance(cell, date | time):
        return cell.isoformat()
    if isinstance(cell, float):
        return f"{cell:.15g}"
    return "" if cell is None else " ".join(str(cell).split())


def read_epub(content: bytes, name: str) -> list[Document]:
    """Parse an e-book.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document per chapter, and per page outside the order of reading to which one links. Unreadable
        chapters are skipped and counted in the first document.

    Raises:
        UnreadableError: If ``content`` is not an EPUB file, is encrypted or too large, or has no readable chapter.
    """
    with unpacking(content, "EPUB") as archive:
        root = parse_xml(archive.read("META-INF/container.xml")).find(".//{*}rootfile").get("full-path")
        package = parse_xml(archive.read(root))
        book = " ".join((package.findtext(".//{*}metadata/{*}title") or PurePosixPath(name).stem).split())
        items = {item.get("id"): item for item in package.iterfind(".//{*}manifest/{*}item")}
        spine = [
            items[part.get("idref")]
            for part in package.iterfind(".//{*}spine/{*}itemref")
            if part.get("idref") in items
        ]
        documents, failed = [], 0
        path_of = {item: _joined(root, item.get("href") or "") for item in items.values()}
        others = {path_of[item]: item for item in items.values() if item.get("media-type") == _PAGE}
        pending, seen = deque(dict.fromkeys(spine)), {*spine}
        while pending:
            path = path_of[item := pending.popleft()]
            if "nav" in (item.get("properties") or "").split():
                continue
            try:
                (document,) = read_html(archive.read(path), f"{name}#{path}", is_chapter=True)
            except (UnreadableError, KeyError):
                failed += 1
                continue
            documents.append(_chapter(document, book, PurePosixPath(path).stem))
            for target in _targets(document, path):  # pages of notes are often outside the order of reading
                if (linked := others.get(target)) is not None and linked not in seen:
                    seen.add(linked)
                    pending.append(linked)
        if failed and documents:
            documents[0] = replace(documents[0], dropped={**documents[0].dropped, "unreadable chapters": failed})
        elif failed:
            raise UnreadableError("no readable chapter")
        return documents


def _joined(file: str, path: str) -> str:
    """Return the path in an e-book of a path relative to a file."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(file), unquote(path)))


def _targets(document: Document, path: str) -> Iterator[str]:
    """Yield the paths in an e-book of the pages to which a chapter links."""
    links = (link for section in document.sections for block in section.blocks for link in block.links)
    return (_joined(path, target) for link in links if (target := link.target.partition("#")[0]))


def _chapter(document: Document, book: str, stem: str) -> Document:
    title = book if document.title in (stem, book) else f"{book}: {document.title}"
    return replace(document, title=title[:MAX_NAME], aliases=(), is_page=False)
