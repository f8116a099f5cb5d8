"""Documents as they are read from a file, before they are divided, and the texts of files."""

import codecs
import re
from dataclasses import dataclass
from pathlib import Path

Link = tuple[int, str]  # the place in the text, in characters, and the target as written; `[[NAME]]` of a wiki
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
HEAD_BYTES = 4096  # of a page, in which it says its encoding


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


class UnreadableError(ValueError):
    """A file or record that is not read; the message is the reason, without its name."""


def text_of(path: Path, *, is_page: bool = False) -> str:
    """Read a text in UTF-8, or as a byte order mark or, in HTML, ``<meta charset>`` says; lines end as on Unix."""
    content = path.read_bytes()
    encoding, mark = next(((name, mark) for mark, name in _MARKS if content.startswith(mark)), ("utf-8", b""))
    if is_page and not mark and (said := _CHARSET.search(content[:HEAD_BYTES])):
        encoding = said[1].decode()
    try:
        text = content[len(mark) :].decode(encoding)
    except (UnicodeDecodeError, LookupError) as error:
        raise UnreadableError(f"not {encoding.upper()}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
