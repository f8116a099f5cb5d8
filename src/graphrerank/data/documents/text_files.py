"""Texts of files, by what they say of their encoding."""

import codecs
import re
from pathlib import Path

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
HEAD_BYTES = 4096  # of a page, in which it says its encoding


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
