"""Parse the text layer of PDF files."""

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from graphrerank.installation.extras import optional
from graphrerank_documents.document import MAX_NAME, Document, UnreadableError
from graphrerank_documents.formats.sections import Sections

# Maximum number of pages, of characters of the text, and of entries of the outline.
_MAX_PAGES, _MAX_CHARS, _MAX_ENTRIES = 5000, 20_000_000, 5000
_MAX_NUMBER = 12  # maximum number of letters and digits in the number of a heading, such as "Chapter 12"
_NUMBERED = re.compile(r"0|(?=.*[^\W\d_]).*\b0\b.*")  # line with a page number, after numbers are replaced by 0
_MAX_LINES = 300  # maximum number of lines of a page in which a heading is searched for
_EDGE, _MIN_PAGES = 2, 3  # number of header and footer lines to compare, and minimum number of pages that repeat them
_NO_TITLE = re.compile(
    r"(untitled.*|microsoft .* - .*|.*\.(docx?|dvi|indd|pdf|pptx?|qxd|tex|xlsx?)|\W*)", re.IGNORECASE
)
_ITEM = re.compile(r"(?:[•◦▪‣●○■–*-]|\(?\d{1,2}[.)]|\(?[a-z][.)])\s+\S")  # noqa: RUF001
_BROKEN = re.compile(r"(?<=[^\W\d_])[-\u00ad\u2010]$")  # hyphenated word at the end of a line
_ENDS = (".", "!", "?", ":", ";", "。", "！", "？")  # noqa: RUF001


def read_pdf(content: bytes, name: str) -> list[Document]:
    """Parse the text of a PDF file and remove page headers and footers.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document with a section per entry of the outline, or per page if there is no outline.

    Raises:
        UnreadableError: If ``content`` is not a PDF file, is encrypted or has no readable page.
    """
    pypdf = optional("pypdf", "a PDF file")
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # hide warnings about repaired files
    try:
        reader = pypdf.PdfReader(BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadableError("encrypted")
        pages, dropped = _pages(reader)
        headings = _outline(reader)
        title = " ".join(str((reader.metadata or {}).get("/Title") or "").split())
        labels = list(islice(reader.page_labels, len(pages)))
        out = Sections()
        for number, lines in enumerate(_without_edges(pages)):
            links = _links(reader.pages[number])
            _read_page(
                out, lines, headings.get(number, ()), links, "" if headings else f"Page {labels[number]}", number + 1
            )
    except (UnreadableError, MemoryError):
        raise
    except Exception as error:  # parsing libraries raise many kinds of errors for a damaged file
        raise UnreadableError("cannot be read as PDF") from error
    title = PurePosixPath(name).stem if _NO_TITLE.fullmatch(title) else title
    return [Document(name, title[:MAX_NAME], out.end(), dropped=dropped)]


def _pages(reader: Any) -> tuple[list[list[str]], dict[str, int]]:
    """Return the lines of each page, and the number of omitted pages by reason."""
    pages: list[list[str]] = []
    failed, chars = 0, 0
    for page in islice(reader.pages, _MAX_PAGES):
        try:
            text = page.extract_text()
        except Exception:  # skip a damaged page
            text, failed = "", failed + 1
        chars += len(text)
        if chars > _MAX_CHARS:
            break
        pages.append([line.strip() for line in text.split("\n")])
    if failed and not chars:
        raise UnreadableError("no readable page")
    counts = {"unreadable pages": failed, "pages beyond the bound": len(reader.pages) - len(pages)}
    return pages, {what: count for what, count in counts.items() if count}


def _outline(reader: Any) -> dict[int, list[tuple[str, int]]]:
    """Return the headings and their levels by page number, 0-based."""
    headings: dict[int, list[tuple[str, int]]] = defaultdict(list)
    pending = [iter(reader.outline)]
    entry: Any
    for _ in range(_MAX_ENTRIES):
        while pending and (entry := next(pending[-1], None)) is None:
            pending.pop()
        if not pending:
            break
        if isinstance(entry, list):
            pending.append(iter(entry))
        elif title := " ".join(str(entry.title or "").split()):
            page = reader.get_destination_page_number(entry)
            headings[-1 if page is None else page].append((title, len(pending)))
    headings.pop(-1, None)
    return headings


def _without_edges(pages: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """Yield the lines of each page without headers and footers, which pages repeat with different numbers."""
    shapes = [[re.sub(r"\d+|\b[ivxlc]+\b", "0", line) for line in lines] for lines in pages]
    edges = [{*shape[:_EDGE], *shape[-_EDGE:]} for shape in shapes]
    counts = Counter(line for edge in edges for line in edge)
    least = max(_MIN_PAGES, len(pages) / 3)
    repeated = {line for line, n in counts.items() if n >= (_MIN_PAGES if _NUMBERED.fullmatch(line) else least)}
    for lines, shape in zip(pages, shapes, strict=True):
        last = len(lines) - _EDGE
        yield [line for i, line in enumerate(lines) if not (shape[i] in repeated and (i < _EDGE or i >= last))]


def _links(page: Any) -> Iterator[str]:
    for note in page.get("/Annots") or ():
        action = note.get_object().get("/A")
        target = action.get_object().get("/URI") if action is not None else None
        if isinstance(target, str):
            yield target


def _read_page(
    out: Sections,
    lines: Sequence[str],
    headings: Sequence[tuple[str, int]],
    links: Iterator[str],
    own: str,
    number: int,
) -> None:
    """Add the lines of a page. ``own`` is the heading of the page if there is no outline."""
    anchors = [f"page={number}"]
    if own:
        out.start(own, anchors, level=2)
    start = 0
    for heading, level in headings:
        place, size = _find(lines, heading, start)
        if before := lines[start:place]:
            out.point(anchors)
            anchors = []
            _add_lines(out, before)
        out.start(heading, anchors, level=level)
        anchors, start = [], place + size
    out.point(anchors)
    for link in links:
        out.link(link)
    _add_lines(out, lines[start:])


def _find(lines: Sequence[str], heading: str, start: int) -> tuple[int, int]:
    """Return the index of the line with a heading, optionally numbered, and its number of lines.

    If the heading is not found, the result is ``(start, 0)``.
    """
    wanted = _letters(heading)
    for place in range(start, min(len(lines), start + _MAX_LINES)):
        for size in (1, 2, 3):
            found = _letters("".join(lines[place : place + size]))
            before = len(found) - len(wanted)
            if found.endswith(wanted) and before <= _MAX_NUMBER and before < len(_letters(lines[place])):
                return place, size
            if before > _MAX_NUMBER:
                break
    return start, 0


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()


def _add_lines(out: Sections, lines: Sequence[str]) -> None:
    """Join lines to paragraphs.

    A paragraph ends at an empty line, before a list item, and after a short line that ends a sentence.
    """
    width = sorted(map(len, lines))[len(lines) * 3 // 4] if lines else 0
    parts: list[str] = []
    last = ""
    for line in (*lines, ""):
        is_short = len(last) < 0.7 * width
        if parts and (not line or _ITEM.match(line) or (is_short and last.endswith(_ENDS))):
            out.add("".join(parts), "item" if _ITEM.match(parts[0]) else "")
            parts = []
        if parts and _BROKEN.search(last) and line[:1].islower():
            parts[-1] = parts[-1][:-1]
        elif parts:
            parts.append("\n" if is_short else " ")
        parts += [line] * bool(line)
        last = line
