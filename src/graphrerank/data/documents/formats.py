"""Files to documents, one function for each format."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from graphrerank.data.documents.document import Document, Section
from graphrerank.extras import optional

HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(\s*<?([^)\s>]+)")
FENCE = re.compile(r"^\s*(```|~~~)")
FRONT_MATTER = re.compile(r"\A---[ \t]*\n((?:(?:[\w-]+:.*|[ \t#-].*)?\n)*?)---[ \t]*(?:\n|\Z)")
FRONT_TITLE = re.compile(r"^title:\s*([\"']?)(.+?)\1\s*$", re.MULTILINE)
CODE_OR_COMMENT = re.compile(r"(^\s*(```|~~~).*?(?:^\s*\2|\Z))|<!--.*?-->", re.MULTILINE | re.DOTALL)
TEXT_KEYS, TITLE_KEYS, ID_KEYS = ("text", "content", "body", "abstract"), ("title", "name"), ("_id", "id")
IGNORED = {"script", "style", "noscript", "template", "svg", "head"}
BLOCK_TAGS = """address article aside blockquote br dd div dl dt figure footer form header hr li main nav ol p pre table
tr ul"""
BLOCKS = frozenset(BLOCK_TAGS.split())


def read_markdown(path: Path, name: str) -> list[Document]:
    """Read a document whose sections are its headings'; lines of code are no headings.

    Of YAML before the text only a title is read; comments are left out.
    """
    text = _text_of(path)
    front = FRONT_MATTER.match(text)
    titled = FRONT_TITLE.search(front[1] or "") if front else None
    text = CODE_OR_COMMENT.sub(lambda found: found[1] or "", text[front.end() :] if front else text)
    sections: list[tuple[str, list[str]]] = [("", [])]
    title, in_code = titled[2] if titled else "", False
    for line in text.splitlines():
        in_code ^= FENCE.match(line) is not None
        found = None if in_code else HEADING.match(line)
        if found is None:
            sections[-1][1].append(line)
        else:
            title = title or (found[2] if len(found[1]) == 1 else "")
            sections.append((found[2], []))
    return [Document(name, title or path.stem, tuple(_section(heading, rows) for heading, rows in sections))]


def _section(heading: str, lines: Sequence[str]) -> Section:
    text = "\n".join(lines).strip()
    return Section(heading, text, tuple(LINK.findall(text)))


def read_text(path: Path, name: str) -> list[Document]:
    """Read a text or a program as one section."""
    return [Document(name, path.name, (Section("", _text_of(path).strip()),))]


def read_html(path: Path, name: str) -> list[Document]:
    """Read what a page shows; scripts and styles are left out."""
    parser = _PageParser()
    parser.feed(_text_of(path))
    parser.close()
    sections = tuple(
        Section(" ".join(h.split()), _paragraphs(parts), tuple(links)) for h, parts, links in parser.sections
    )
    return [Document(name, " ".join(parser.title.split()) or path.stem, sections)]


class _PageParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.sections: list[tuple[str, list[str], list[str]]] = [("", [], [])]
        self._within: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in IGNORED | {"title"} or re.fullmatch("h[1-6]", tag):
            self._within.append(tag)
            if tag.startswith("h") and tag != "head":
                self.sections.append(("", [], []))
        elif tag in BLOCKS:
            self.sections[-1][1].append("\n" if tag == "br" else "\n\n")
        target = dict(attrs).get("href")
        if tag == "a" and target:
            self.sections[-1][2].append(target)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._within:
            del self._within[len(self._within) - 1 - self._within[::-1].index(tag) :]
        elif tag in BLOCKS:
            self.sections[-1][1].append("\n\n")

    def handle_data(self, data: str) -> None:
        if "title" in self._within:
            self.title += data
        elif not IGNORED.intersection(self._within):
            heading, parts, links = self.sections[-1]
            if self._within:
                self.sections[-1] = (heading + data, parts, links)
            else:
                parts.append(data)


def _paragraphs(parts: Iterable[str]) -> str:
    blocks = re.split(r"\n\s*\n", "".join(parts))
    return "\n\n".join(filter(None, (" ".join(block.split()) for block in blocks)))


def read_json(path: Path, name: str) -> list[Document]:
    """Read a list of objects, or one, with a text and perhaps a title and an id."""
    try:
        content = json.loads(_text_of(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from error
    rows = content if isinstance(content, list) else [content]
    return [_object(path, name, place, row, len(rows)) for place, row in enumerate(rows)]


def read_jsonl(path: Path, name: str) -> list[Document]:
    """Read an object with a text, and perhaps a title and an id, from each line."""
    found = []
    for place, line in enumerate(_text_of(path).splitlines()):
        if line.strip():
            try:
                found.append(_object(path, name, place, json.loads(line), 2))
            except (json.JSONDecodeError, RecursionError) as error:
                raise ValueError(f"{path}:{place + 1}: not JSON: {error}") from error
    return found


def _object(path: Path, name: str, place: int, row: Any, count: int) -> Document:
    texts = [row[key] for key in TEXT_KEYS if isinstance(row.get(key), str)] if isinstance(row, dict) else []
    if not texts:
        raise ValueError(
            f"{path}:{place + 1}: needed an object with a text in one of {list(TEXT_KEYS)}, got {str(row)[:60]}"
        )
    own = next((str(row[key]) for key in ID_KEYS if row.get(key) is not None), str(place + 1))
    title = next((row[key] for key in TITLE_KEYS if isinstance(row.get(key), str)), "")
    return Document(name if count == 1 else f"{name}#{own}", title, (Section("", texts[0].strip()),))


def read_pdf(path: Path, name: str) -> list[Document]:
    """Read the text layer of a PDF file, a section for each page."""
    pypdf = optional("pypdf", "a PDF file")
    try:
        reader = pypdf.PdfReader(path)
        pages = [page.extract_text() for page in reader.pages]
        title = str((reader.metadata or {}).get("/Title") or "")
    except Exception as error:  # a parser of strangers' files fails in many ways
        raise ValueError(f"{path}: cannot be read as PDF: {type(error).__name__}: {error}") from error
    return [Document(name, title or path.stem, tuple(Section("", page.strip()) for page in pages))]


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error}") from error


Read = Callable[[Path, str], list[Document]]
PROGRAMS = "c cc cpp cs css go h hpp java js jsx kt lua php pl py r rb rs scala sh sql swift toml ts tsx yaml yml"
FORMATS: dict[str, Read] = {
    **dict.fromkeys((".md", ".markdown"), read_markdown),
    **dict.fromkeys((".html", ".htm", ".xhtml"), read_html),
    **dict.fromkeys((".txt", ".rst", ".tex", *(f".{name}" for name in PROGRAMS.split())), read_text),
    ".json": read_json,
    **dict.fromkeys((".jsonl", ".ndjson"), read_jsonl),
    ".pdf": read_pdf,
}


def divide(section: Section, max_words: int) -> Iterator[str]:
    r"""Divide a section's text into chunks of at most ``max_words`` words, at the ends of paragraphs where that can be.

    Example:
        >>> list(divide(Section("", "a b\n\nc d\n\ne f g h i"), 4))
        ['a b\n\nc d', 'e f g h', 'i']
    """
    chunk: list[str] = []
    size = 0
    for paragraph in re.split(r"\n\s*\n", section.text):
        words = paragraph.split()
        if chunk and size + len(words) > max_words:
            yield "\n\n".join(chunk)
            chunk, size = [], 0
        while len(words) > max_words:
            yield " ".join(words[:max_words])
            words, paragraph = words[max_words:], " ".join(words[max_words:])
        if words:
            chunk.append(paragraph.strip())
            size += len(words)
    if chunk:
        yield "\n\n".join(chunk)
