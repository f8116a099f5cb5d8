"""Files to documents, one function for each format, and texts to passages.

The files are not trusted: time grows with the length of a file alone, and what it says is not longer than it is but for
names, which are cut.
"""

import codecs
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from graphrerank.checks import UserError
from graphrerank.data.readers.records import read_csv, read_tsv
from graphrerank.extras import optional
from graphrerank.text.languages import UNSPACED

Link = tuple[int, str]  # the place in the text, in characters, and the target as written; `[[NAME]]` of a wiki
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
HEAD_BYTES = 4096  # of a page, in which it says its encoding
NO_ENCODINGS = frozenset(("idna", "punycode", "undefined"))  # codecs of names, which take quadratic time
MAX_DEPTH = 32  # of nested objects; deeper ones are left out
MAX_NESTED, MAX_UNCLOSED = 100, 100  # hidden parts of a page in one another; its tags and comments without an end
MAX_RECORDS = 1_000_000  # of a file
MAX_NAME, MAX_TARGET = 1000, 2000  # characters of a title, heading or id, which passages repeat, and of a link
MAX_KEY = 100  # characters of the name of what an object says
HIDDEN = frozenset(("script", "style", "noscript", "template", "svg"))
_HEADINGS = frozenset(f"h{level}" for level in range(1, 7))
_BLOCK_TAGS = """address article aside blockquote br caption dd div dl dt fieldset figcaption figure footer form header
hr legend li main nav ol option p pre section summary table tr ul"""
_BLOCKS = frozenset(_BLOCK_TAGS.split())
_CELLS = frozenset(("td", "th"))
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"  # mark a link; no characters
_MARK = re.compile(rf"{_OPEN}(\d+){_CLOSE}")
_HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*)$")
_UNDERLINE = re.compile(r"^ {0,3}(={2,}|-{2,})\s*$")  # of a heading of the first or second level
_NO_HEADING = re.compile(r"^(\s{4}|\s*([-*+>|#=]|\d+[.)]\s))")
_CODE_OR_COMMENT = re.compile(r"^[^\S\n]*(```|~~~)|<!--", re.MULTILINE)
_FENCE = re.compile(r"^\s*(`{3,}|~{3,})(.*)$")
_LABEL = r"\[(?P<label>[^\[\]]*)\]"
_INLINE = re.compile(rf"(?<!!){_LABEL}\(\s*(?:<(?P<pointed>[^<>\n]*)>|(?P<bare>[^)\s<>]+))")
_REFERENCE = re.compile(rf"(?<!!){_LABEL}(?:\[(?P<name>[^\[\]]*)\])?(?![(:\[])")
_DEFINITION = re.compile(r"^ {0,3}\[([^\[\]]+)\]:\s*(?:<([^<>]*)>|(\S+))", re.MULTILINE)
_WIKI = re.compile(r"\[\[([^\[\]|\n]+)(?:\|[^\[\]\n]*)?\]\]")
_FRONT_MATTER = re.compile(r"---[ \t]*\n(?=[\w-]+\s*:)(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r"^title\s*:(.*)$", re.MULTILINE | re.IGNORECASE)
TEXT_KEYS, TITLE_KEYS, ID_KEYS = ("text", "content", "body", "abstract"), ("title", "name"), ("_id", "id")
_WORD = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\s{UNSPACED}]+")


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it, up to the next heading."""

    heading: str  # empty before the first one
    text: str  # paragraphs, separated by empty lines
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Document:
    """A document of a file."""

    name: str  # the path within the folder; for one of several documents of a file with `#` and its id or line
    title: str
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Chunk:
    """A passage of a document."""

    id: str
    title: str  # of its document, with the section's heading
    text: str
    document: str  # the name of its document
    number: int  # within the document
    heading: str  # of its section
    links: tuple[str, ...]  # targets as they are written


class UnreadableError(UserError):
    """A file or record that is not read; the message is the reason, without its name."""


def text_of(path: Path, *, is_page: bool = False) -> str:
    """Read a text in UTF-8, or as a byte order mark or, in HTML, ``<meta charset>`` says; lines end as on Unix."""
    content = path.read_bytes()
    encoding, mark = next(((name, mark) for mark, name in _MARKS if content.startswith(mark)), ("utf-8", b""))
    if is_page and not mark and (said := _CHARSET.search(content[:HEAD_BYTES])):
        encoding = said[1].decode()
    try:
        if codecs.lookup(encoding).name in NO_ENCODINGS:
            raise LookupError
        text = content[len(mark) :].decode(encoding)
    except (UnicodeError, LookupError) as error:
        raise UnreadableError(f"not {encoding.upper()}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_text(path: Path, name: str) -> list[Document]:
    """Read a text or a program as one section."""
    return [Document(name, path.name, (Section("", text_of(path).strip()),))]


def read_pdf(path: Path, name: str) -> list[Document]:
    """Read the text layer of a PDF file, a section for each page."""
    pypdf = optional("pypdf", "a PDF file")
    try:
        reader = pypdf.PdfReader(path)
        pages = [page.extract_text() for page in reader.pages]
        title = str((reader.metadata or {}).get("/Title") or "")
    except Exception as error:  # a parser of untrusted files fails in many ways
        raise UnreadableError("cannot be read as PDF") from error
    return [Document(name, title or path.stem, tuple(Section("", page.strip()) for page in pages))]


def read_html(path: Path, name: str) -> list[Document]:
    """Read what a page shows; scripts and styles are left out."""
    parser = _PageParser()
    try:
        parser.read(text_of(path, is_page=True))
    except (AssertionError, ValueError) as error:  # of HTMLParser: an unknown `<![NAME[`, a character's number too long
        raise error if isinstance(error, UnreadableError) else UnreadableError("not HTML") from error
    sections = tuple(_html_section(heading, parts, parser.targets) for heading, parts in parser.sections)
    return [Document(name, " ".join("".join(parser.title).split()) or path.stem, sections)]


class _PageParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title: list[str] = []  # parts
        self.sections: list[tuple[list[str], list[str]]] = [([], [])]  # parts of a heading, and of the text under it
        self.targets: list[str] = []  # of links, by their number
        self._within: list[str] = []

    def read(self, page: str) -> None:
        """Read a page; an unclosed tag or comment is text, as for :meth:`close`, which starts again for each."""
        self.feed(page)
        for _ in range(MAX_UNCLOSED):
            rest = self.rawdata
            if not rest or self.cdata_elem:
                return
            end = rest.find(">") + 1 if rest.startswith("<") else 0
            self.rawdata = ""
            self.handle_data(unescape(rest[: end or len(rest)]))
            self.feed(rest[end or len(rest) :])
        if self.rawdata:
            raise UnreadableError(f"more than {MAX_UNCLOSED} tags or comments without an end")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in HIDDEN or tag in _HEADINGS or tag == "title":
            if tag in _HEADINGS:
                self.sections.append(([], []))
                if self._within and self._within[-1] in _HEADINGS:  # no heading is in another
                    self._within.pop()
            self._within.append(tag)
            if len(self._within) > MAX_NESTED:
                raise UnreadableError(f"more than {MAX_NESTED} hidden parts in one another")
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
            self.title.append(data)
        elif self._within:
            self.sections[-1][0].append(data)
        else:
            self.sections[-1][1].append(data.replace(_OPEN, "").replace(_CLOSE, ""))


def _html_section(heading: Sequence[str], parts: Sequence[str], targets: Sequence[str]) -> Section:
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
    return Section(" ".join("".join(heading).split()), text.strip(), tuple((max(0, at - lead), to) for at, to in links))


def read_markdown(path: Path, name: str) -> list[Document]:
    """Read a document whose sections are its headings'; lines of code are no headings.

    Of YAML before the text only a title is read; comments are left out.
    """
    titled, text = _front_matter(text_of(path))
    lines = _without_comments(text).split("\n")
    sections: list[tuple[str, list[str]]] = [("", [])]
    title, fence = "", ""
    for line in lines:
        if (mark := _FENCE.match(line)) and (not fence or (mark[1].startswith(fence) and not mark[2].strip())):
            fence = "" if fence else mark[1]
        rows = sections[-1][1]
        if not fence and (found := _HEADING.match(line)):
            heading = found[2].rstrip().rstrip("#").rstrip()
            title = title or (_plain(heading) if len(found[1]) == 1 else "")
            sections.append((heading, []))
        elif not fence and (found := _UNDERLINE.match(line)) and _is_heading(rows):
            heading = rows.pop().strip()
            title = title or (_plain(heading) if found[1].startswith("=") else "")
            sections.append((heading, []))
        else:
            rows.append(line)
    definitions = _DEFINITION.finditer("\n".join(lines))  # of the whole document
    targets = {_label(found[1]): found[2] or found[3] or "" for found in definitions}
    parts = tuple(_markdown_section(heading, rows, targets) for heading, rows in sections)
    return [Document(name, titled or title or path.stem, parts)]


def _without_comments(text: str) -> str:
    """Remove the comments that are not within a block of code; one without an end is text."""
    parts, start = [], 0
    while found := _CODE_OR_COMMENT.search(text, start):
        if fence := found[1]:
            closing = re.compile(rf"^[^\S\n]*{fence}", re.MULTILINE).search(text, found.end())
            end = len(text) if closing is None else closing.end()
            parts.append(text[start:end])
        elif (end := text.find("-->", found.end()) + 3) > 2:
            parts.append(text[start : found.start()])
        else:
            break
        start = end
    return "".join([*parts, text[start:]])


def _front_matter(text: str) -> tuple[str, str]:
    """Return the title in a block of YAML that opens a page, and the text after it."""
    block = _FRONT_MATTER.match(text)
    if block is None:
        return "", text
    title = _TITLE.search(block[1])
    return "" if title is None else title[1].strip().strip("\"'"), text[block.end() :]


def _is_heading(rows: Sequence[str]) -> bool:
    """Return whether the last line stands alone above an underline, and is a paragraph's."""
    alone = bool(rows) and bool(rows[-1].strip()) and (len(rows) == 1 or not rows[-2].strip())
    return alone and _NO_HEADING.match(rows[-1]) is None


def _markdown_section(heading: str, lines: Sequence[str], targets: dict[str, str]) -> Section:
    text = "\n".join(lines).strip()
    links = [(0, target) for _, target in _links(heading, targets)] + list(_links(text, targets))
    return Section(_plain(heading), text, tuple(links))


def _links(text: str, targets: dict[str, str]) -> Iterator[Link]:
    """List places and targets: ``[label](target)``, ``[label][name]``, ``[name]`` and ``[[page]]``."""
    found = [(link.start(), link["pointed"] or link["bare"] or "") for link in _INLINE.finditer(text)]
    found += [(link.start(), f"[[{link[1].strip()}]]") for link in _WIKI.finditer(text)]
    if targets:
        named = ((link.start(), _label(link["name"] or link["label"])) for link in _REFERENCE.finditer(text))
        found += [(place, targets[label]) for place, label in named if label in targets]
    yield from sorted(link for link in found if link[1])


def _plain(heading: str) -> str:
    """Return a heading as it is shown: labels of links without their targets, and no marks of code."""
    shown = _WIKI.sub(lambda link: link[0][2:-2].rsplit("|", 1)[-1], heading)
    return re.sub(r"\[([^\[\]]*)\]\([^)\[]*\)", r"\1", shown).replace("`", "").strip()


def _label(name: str) -> str:
    return " ".join(name.split()).lower()


def read_json(path: Path, name: str) -> list[Document]:
    """Read a list of objects or texts, or one: its text, and perhaps a title and an id, or else all that it says."""
    text = text_of(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableError("not JSON") from error
    rows = content if isinstance(content, list) else [content]
    return _documents(name, list(enumerate(rows, 1)), several=isinstance(content, list) and len(rows) > 1)


def read_jsonl(path: Path, name: str) -> list[Document]:
    """Read such an object from each line."""
    rows = []
    for number, line in enumerate(text_of(path).split("\n"), 1):
        if line.strip():
            try:
                rows.append((number, json.loads(line)))
            except (ValueError, RecursionError) as error:
                raise UnreadableError(f"not JSON in line {number}") from error
    return _documents(name, rows)


def read_table(path: Path, name: str) -> list[Document]:
    """Read such an object from each row of a table, whose first row names the columns."""
    try:
        rows = list(read_csv(path) if path.suffix.lower() == ".csv" else read_tsv(path))
    except ValueError as error:
        raise UnreadableError(str(error).removeprefix(f"{path}, ")) from error
    if not rows:
        return []
    header = [cell.strip() or f"column {place}" for place, cell in enumerate(rows[0][1], 1)]
    if line := next((line for line, cells in rows if len(cells) > len(header)), None):
        raise UnreadableError(f"line {line} has more columns than the {len(header)} that the first one names")
    return _documents(name, [(line, dict(zip(header, cells, strict=False))) for line, cells in rows[1:]])


def _documents(name: str, rows: Sequence[tuple[int, Any]], *, several: bool = True) -> list[Document]:
    if len(rows) > MAX_RECORDS:
        raise UnreadableError(f"more than {MAX_RECORDS:,} records")
    taken: set[str] = set()
    found = []
    for number, row in rows:
        entries = row if isinstance(row, Mapping) else {"text": row} if isinstance(row, str) else {}
        own = _id(entries, number)
        own = f"{own}:{number}" if own in taken else own  # an id that came before
        taken.add(own)
        found.append(_document(f"{name}#{own}" if several else name, entries))
    return found


def _id(row: Mapping[str, Any], number: int) -> str:
    for key in ID_KEYS:
        if isinstance(row.get(key), str | int) and (own := " ".join(str(row[key]).split())):
            return own[:MAX_NAME]
    return str(number)


def _document(name: str, row: Mapping[str, Any]) -> Document:
    text = next((row[key] for key in TEXT_KEYS if isinstance(row.get(key), str)), None)
    title_key = next((key for key in TITLE_KEYS if isinstance(row.get(key), str)), None)
    if text is None:
        text = "\n".join(_said({key: row[key] for key in row if key not in (title_key, *ID_KEYS)}))
    title = "" if title_key is None else " ".join(row[title_key].split())
    return Document(name, title, (Section("", text.strip()),))


def _said(value: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """Write what a record says as lines ``name: text``, names of nested ones by points, but for lists of numbers."""
    if isinstance(value, Mapping):
        if depth < MAX_DEPTH:
            for key, part in value.items():
                yield from _said(part, (f"{path}.{key}" if path else str(key))[:MAX_KEY], depth + 1)
    elif isinstance(value, list):
        if words := [part.strip() for part in value if isinstance(part, str) and part.strip()]:
            yield f"{path}: {', '.join(words)}"
        for part in value if depth < MAX_DEPTH else ():
            if isinstance(part, Mapping | list):
                yield from _said(part, path, depth + 1)
    elif isinstance(value, bool):
        yield f"{path}: {str(value).lower()}"
    elif value is not None and str(value).strip():
        yield f"{path}: {str(value).strip()}"


Read = Callable[[Path, str], list[Document]]
PROGRAMS = "c cc cpp cs css go h hpp java js jsx kt lua php pl py r rb rs scala sh sql swift toml ts tsx yaml yml"
FORMATS: dict[str, Read] = {
    **dict.fromkeys((".md", ".markdown"), read_markdown),
    **dict.fromkeys((".html", ".htm", ".xhtml"), read_html),
    **dict.fromkeys((".txt", ".rst", ".tex", *(f".{name}" for name in PROGRAMS.split())), read_text),
    ".json": read_json,
    **dict.fromkeys((".jsonl", ".ndjson"), read_jsonl),
    **dict.fromkeys((".csv", ".tsv"), read_table),
    ".pdf": read_pdf,
}


def divide(text: str, max_words: int) -> Iterator[tuple[int, str]]:
    r"""Divide a text into chunks of at most ``max_words`` words, at the ends of paragraphs where that can be.

    Two characters of a script without spaces are a word. Each chunk comes with its place in the text.

    Example:
        >>> list(divide("a b\n\nc d\n\ne f g h i", 4))
        [(0, 'a b\n\nc d'), (10, 'e f g h'), (18, 'i')]
    """
    start, end, size = 0, 0, 0  # of the chunk, and its words
    for first, last in _paragraphs(text):
        words = [first + word.start() for word in _WORD.finditer(text[first:last])]
        if size and size + len(words) > max_words:
            yield start, text[start:end].strip()
            size = 0
        start = start if size else first
        done = 0
        while len(words) - done > max_words:
            cut = words[done + max_words]
            yield start, text[start:cut].strip()
            start, done = cut, done + max_words
        size, end = size + len(words) - done, last
    if size:
        yield start, text[start:end].strip()


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each paragraph starts and ends."""
    start = 0
    for gap in re.finditer(r"\n\s*\n", text):
        yield start, gap.start()
        start = gap.end()
    yield start, len(text)
