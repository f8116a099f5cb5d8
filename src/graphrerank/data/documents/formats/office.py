"""Documents, slides and sheets of office programs, and books."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from io import BytesIO
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from graphrerank.data.documents.document import MAX_NAME, Document, UnreadableError
from graphrerank.data.documents.formats.archives import unpacking
from graphrerank.data.documents.formats.html import read_html
from graphrerank.data.documents.formats.sections import Sections
from graphrerank.extras import optional

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_TWICE = ("{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback", f"{_WORD}moveFrom")
_HEADING = re.compile(r"heading ([1-9])", re.IGNORECASE)
_TITLE_STYLE = re.compile(r"((chapter|document|book|report) ?)?title")
_CODE_STYLE = re.compile(r"^(source )?code\b|preformatted|verbatim")
_CODE_FONT = re.compile(r"courier|consolas|menlo|monaco|.*\bmono", re.IGNORECASE)
_NO_CODE_STYLE = re.compile(r"label|caption|title|heading|char$")
_MAX_HEADING = 200  # characters of a line that may be a heading
_FIELD = re.compile(r"\s*HYPERLINK\s+(\\l\s+)?\"([^\"]+)\"")
_SPACES = {f"{_WORD}tab": "\t", f"{_WORD}br": "\n", f"{_WORD}cr": "\n", f"{_WORD}noBreakHyphen": "-", f"{_WORD}p": " "}
_MAX_BASES = 20  # styles in a chain
_DECORATION = (13, 14, 15, 16)  # placeholders of slides: number, header, footer, date
_MAX_CELLS, _MAX_COLUMNS = 500_000, 500  # of a workbook; of a sheet
_NUMBER = re.compile(r"[-+]?[\d.,:% /-]*\d[\d.,:% /-]*")  # or a date
_HEADER_ROWS = 20  # rows of a sheet in which the names of its columns are searched for


def read_docx(content: bytes, name: str) -> list[Document]:
    """Read a document of Word: headings, paragraphs, lists, tables and footnotes in their order."""
    docx = optional("docx", "a DOCX file")
    with unpacking(content, "DOCX"):
        document = docx.Document(BytesIO(content))
        words = _Words(document)
        words.read(document.element.body)
        words.end_code()
        title = words.title or document.core_properties.title or words.out.titled or PurePosixPath(name).stem
        return [Document(name, " ".join(title.split())[:MAX_NAME], words.out.end())]


class _Words:
    """Collects the sections of a document of Word."""

    def __init__(self, document: Any) -> None:
        self.out, self.title = Sections(), ""
        self._links = {key: part.target_ref for key, part in document.part.rels.items() if part.is_external}
        self._styles = {style.get(f"{_WORD}styleId"): style for style in document.styles.element.iter(f"{_WORD}style")}
        self._code: list[str] = []  # lines that are open
        self._looks: dict[str, tuple[str, bool]] = {}
        self._notes = self._footnotes(document)

    def read(self, body: Any) -> None:
        """Read what is in a body or a part of it."""
        for extra in [*body.iter(*_TWICE)]:
            extra.getparent().remove(extra)
        pending = [iter(body)]
        while pending:
            element = next(pending[-1], None)
            if element is None:
                pending.pop()
            elif element.tag == f"{_WORD}p":
                self._paragraph(element)
            elif element.tag == f"{_WORD}tbl":
                self._table(element)
            else:
                pending.append(iter(element))

    def _paragraph(self, paragraph: Any) -> None:
        look, is_item = self._look(paragraph)
        if look.startswith("toc "):
            return
        text, anchors, notes = self._text(paragraph)
        if look == "code":
            self._code.append(text.rstrip())
            self.out.point(anchors)
            return
        self.end_code()
        text, level = text.strip(), _HEADING.match(look)
        is_listed = len(text) <= _MAX_HEADING and any(name.startswith("_Toc") for name in anchors)  # in the contents
        if text and (level or look == "title" or (is_listed and not is_item)):
            text = " ".join(text.split())
            self.out.start(text, anchors, level=int(level[1]) if level else 1 if look == "title" else 2)
            self.title = self.title or (text if look == "title" else "")
        else:
            self.out.add(f"- {text}" if text and is_item else text, "item" if is_item else "")
            self.out.point(anchors)
        for note in notes:
            self.out.add(note)

    def end_code(self) -> None:
        """Add the lines of code before as a block."""
        self.out.add("\n".join(self._code).strip("\n"), is_whole=True)
        self._code = []

    def _look(self, paragraph: Any) -> tuple[str, bool]:
        """Return the name of a paragraph's style, as "heading 1" where it has a level, and whether it is of a list."""
        properties = paragraph.find(f"{_WORD}pPr")
        if properties is None:
            return "", False
        style = _value(properties, "pStyle")
        if style not in self._looks:
            self._looks[style] = self._style(style)
        look, is_item = self._looks[style]
        level = _value(properties, "outlineLvl")
        if level.isdecimal() and int(level) < 9:
            look = f"heading {int(level) + 1}"
        return look, is_item or properties.find(f"{_WORD}numPr") is not None

    def _style(self, name: str) -> tuple[str, bool]:
        """Return what a style or the first that it is based on looks like, as :meth:`_look` does."""
        is_item = False
        for _ in range(_MAX_BASES):
            if (style := self._styles.get(name)) is None:
                break
            said, font = _value(style, "name").lower(), style.find(f"{_WORD}rPr/{_WORD}rFonts")
            level = style.find(f"{_WORD}pPr/{_WORD}outlineLvl")
            is_item |= said.startswith("list ") or style.find(f"{_WORD}pPr/{_WORD}numPr") is not None
            if _HEADING.match(said) or said.startswith("toc "):
                return said, is_item
            if _TITLE_STYLE.fullmatch(said):
                return "title", is_item
            if level is not None and level.get(f"{_WORD}val", "9") < "9":
                return f"heading {int(level.get(f'{_WORD}val')) + 1}", is_item
            if _CODE_STYLE.search(said) or (font is not None and _CODE_FONT.match(font.get(f"{_WORD}ascii", ""))):
                return ("" if _NO_CODE_STYLE.search(said) else "code"), is_item
            name = _value(style, "basedOn")
        return "", is_item

    def _text(self, paragraph: Any) -> tuple[str, list[str], list[str]]:
        """Return the text of a paragraph or cell, its bookmarks and its footnotes; its links are added."""
        parts: list[str] = []
        anchors, notes = [], []
        for part in paragraph.iter(f"{_WORD}*"):
            tag = part.tag.removeprefix(_WORD)
            if tag == "t":
                parts.append(part.text or "")
            elif part.tag in _SPACES and part is not paragraph and part.get(f"{_WORD}val") is None:  # no stop of tabs
                parts.append(_SPACES[part.tag])
            elif tag == "hyperlink":
                anchor = part.get(f"{_WORD}anchor")
                target = self._links.get(part.get(_RELATION), "")
                self.out.link(f"{target}#{anchor}" if anchor else target)
            elif tag in ("instrText", "fldSimple"):
                field = _FIELD.match((part.text if tag == "instrText" else part.get(f"{_WORD}instr")) or "")
                self.out.link(f"#{field[2]}" if field and field[1] else field[2] if field else "")
            elif tag == "bookmarkStart" and part.get(f"{_WORD}name") != "_GoBack":
                anchors.append(part.get(f"{_WORD}name") or "")
            elif tag == "footnoteReference" and (note := self._notes.get(part.get(f"{_WORD}id"))):
                notes.append(note)
        return "".join(parts), anchors, notes

    def _table(self, table: Any) -> None:
        self.end_code()
        rows = []
        for row in table.iterchildren(f"{_WORD}tr"):
            cells = [*row.iterchildren(f"{_WORD}tc"), *row.iterfind(f"{_WORD}sdt/{_WORD}sdtContent/{_WORD}tc")]
            if len(cells) == 1 and len(table.findall(f"{_WORD}tr")) == 1:  # a box
                self.read(cells[0])
                return
            texts = []
            for cell in cells:
                text, anchors, notes = self._text(cell)
                self.out.point(anchors)
                texts.append(" ".join([*text.split(), *notes]))
            rows.append(texts)
        add_rows(self.out, rows)

    def _footnotes(self, document: Any) -> dict[str, str]:
        for part in document.part.rels.values():
            if not part.is_external and part.reltype.endswith("/footnotes"):
                notes = optional("docx.oxml", "a DOCX file").parse_xml(part.target_part.blob)
                return {
                    note.get(f"{_WORD}id"): " ".join(
                        "".join(text.text or "" for text in note.iter(f"{_WORD}t")).split()
                    )
                    for note in notes.iter(f"{_WORD}footnote")
                }
        return {}


def _value(element: Any, name: str) -> str:
    """Return what a property of a paragraph or style is."""
    found = element.find(f"{_WORD}{name}")
    return "" if found is None else found.get(f"{_WORD}val") or ""


def add_rows(out: Sections, rows: Sequence[Sequence[str]], *, has_header: bool | None = None) -> None:
    """Add the rows of a table, of which the first is its header if all of its cells have texts, or as it is said."""
    rows = [row for row in rows if any(row)]
    if has_header is None:
        has_header = len(rows) > 1 and len(rows[0]) > 1 and all(rows[0])
    header = " | ".join(rows[0]).strip()[:MAX_NAME] if has_header else ""
    for row in rows[has_header:]:
        out.add(" | ".join(row).strip(), "row", is_whole=True, header=header)


def read_pptx(content: bytes, name: str) -> list[Document]:
    """Read slides: a section for each, with its title, texts, tables and notes."""
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
    """Yield the shapes and those of their groups, but numbers, headers, footers and dates."""
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
    """Read the sheets of a workbook, with values as its program saved them; each is a document."""
    openpyxl = optional("openpyxl", "an XLSX file")
    with unpacking(content, "XLSX"):
        book = openpyxl.load_workbook(BytesIO(content), read_only=True, data_only=True, keep_links=False)
        stem, documents, left = PurePosixPath(name).stem, [], _MAX_CELLS
        for sheet in book.worksheets:
            sheet.reset_dimensions()  # which a file may say wrong
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
    """Read the rows of a sheet; the names of its columns stand in the first row near the top that is wide."""
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
    """Return the value of a cell as a text; dates and times as ISO 8601 has them."""
    if isinstance(cell, datetime):
        return cell.isoformat(" ").removesuffix(" 00:00:00")
    if isinstance(cell, date | time):
        return cell.isoformat()
    if isinstance(cell, float):
        return f"{cell:.15g}"
    return "" if cell is None else " ".join(str(cell).split())


def read_epub(content: bytes, name: str) -> list[Document]:
    """Read the chapters of a book, each as a document."""
    etree = optional("lxml.etree", "an EPUB file")
    with unpacking(content, "EPUB") as archive:
        parser = etree.XMLParser(resolve_entities=False, no_network=True)
        container = etree.fromstring(archive.read("META-INF/container.xml"), parser)
        root = container.find(".//{*}rootfile").get("full-path")
        package = etree.fromstring(archive.read(root), parser)
        book = " ".join((package.findtext(".//{*}metadata/{*}title") or PurePosixPath(name).stem).split())
        items = {item.get("id"): item for item in package.iterfind(".//{*}manifest/{*}item")}
        spine = [
            items[part.get("idref")]
            for part in package.iterfind(".//{*}spine/{*}itemref")
            if part.get("idref") in items
        ]
        documents, failed = [], 0
        for item in dict.fromkeys(spine):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(root), unquote(item.get("href") or "")))
            if "nav" in (item.get("properties") or "").split():
                continue
            try:
                (document,) = read_html(archive.read(path), f"{name}#{path}")
            except (UnreadableError, KeyError):
                failed += 1
                continue
            documents.append(_chapter(document, book, PurePosixPath(path).stem))
        if failed and documents:
            documents[0] = replace(documents[0], dropped={**documents[0].dropped, "unreadable chapters": failed})
        elif failed:
            raise UnreadableError("no chapter can be read")
        return documents


def _chapter(document: Document, book: str, stem: str) -> Document:
    title = book if document.title in (stem, book) else f"{book}: {document.title}"
    return replace(document, title=title[:MAX_NAME], aliases=(), is_page=False)
