"""Parse Rich Text Format (RTF) by converting it to HTML. Embedded objects and pictures are left out."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape

from graphrerank_documents.document import Document, UnreadableError
from graphrerank_documents.formats.html import read_html
from graphrerank_documents.formats.office import field_start

_TOKEN = re.compile(
    rb"\\(?:(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,10})? ?|'(?P<hex>[0-9a-fA-F]{2})|(?P<sign>[^a-zA-Z]))"
    rb"|(?P<brace>[{}])|[\r\n\x00]+|(?P<text>[^\\{}\r\n\x00]+)|.",
    re.DOTALL,
)
# Destinations whose text is not part of the document. Those that begin with `\*` are skipped unless they are known.
_SKIPPED_WORDS = """colortbl pict header headerl headerr headerf footer footerl footerr footerf nonshppict objdata
themedata colorschememapping datastore latentstyles listtable listoverridetable rsidtbl generator xmlnstbl sn sv filetbl
revtbl tc xe rxe txe ftnsep ftnsepc ftncn aftnsep aftnsepc aftncn template private author operator company category
keywords subject comment doccomm manager hlinkbase"""
_SKIPPED = frozenset(_SKIPPED_WORDS.split())
_KNOWN = frozenset(("fldinst", "bkmkstart", "shpinst", "shptxt"))  # destinations that begin with `\*` and are read
_SIGNS = {
    "tab": "\t", "line": "<br>", "emdash": "\u2014", "endash": "\u2013", "lquote": "\u2018", "rquote": "\u2019",
    "ldblquote": "\u201c", "rdblquote": "\u201d", "bullet": "\u2022", "emspace": " ", "enspace": " ",
}  # fmt: skip
_CHARSETS = {
    77: "mac-roman", 128: "cp932", 129: "cp949", 134: "gb18030", 136: "cp950", 161: "cp1253", 162: "cp1254",
    163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250",
}  # fmt: skip
_PAGES = {
    **{page: f"cp{page}" for page in (437, 850, 852, 866, 874, 932, 949, 950, *range(1250, 1259))},
    **{936: "gb18030", 10000: "mac-roman", 65001: "utf-8"},
}
_MAX_TEXT = 2000  # maximum number of characters of a title, style, bookmark and instruction
_MAX_GROUPS = 10_000
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_HEADING = re.compile(r"heading ([1-6])\Z|(title)\Z", re.IGNORECASE)
_CODE_STYLE = re.compile(r"preformatted|source code|^code\b|verbatim|macro", re.IGNORECASE)


def read_rtf(content: bytes, name: str) -> list[Document]:
    """Parse an RTF file: its headings by style or outline level, paragraphs, lists, tables, footnotes and links.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document with a section per heading.

    Raises:
        UnreadableError: If ``content`` is not RTF.
    """
    content = content.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not content.startswith(b"{\\rtf"):
        raise UnreadableError("not RTF")
    rich = _RichText()
    text = "".join(rich.read(content))
    (page,) = read_html(f"<head><title>{escape(rich.title)}</title></head><body><main>{text}".encode(), name)
    return [replace(page, is_page=False)]


@dataclass(slots=True)
class _Group:
    r"""Properties of a group, which the groups in it inherit.

    Attributes:
        kind: Destination of the text: ``text``, ``skip``, ``fonts``, ``styles``, ``info``, ``title``, ``field`` or
            ``bookmark``.
        is_hidden: Whether the text is hidden or deleted.
        num_fallback: Number of characters that follow a Unicode character for readers without Unicode.
        encoding: Encoding of the bytes of the current font.
        closing: HTML to write at the end of the group.
        is_new: Whether the group has no control word yet, so that the next one may be its destination.
        is_optional: Whether the group begins with ``\*``.
    """

    kind: str = "text"
    is_hidden: bool = False
    num_fallback: int = 1
    encoding: str = "cp1252"
    closing: str = ""
    is_new: bool = True
    is_optional: bool = False


class _RichText:
    """Converter of RTF to HTML."""

    def __init__(self) -> None:
        self.title = ""
        self._groups = [_Group()]
        self._default = "cp1252"
        self._fonts: dict[int, str] = {}  # encoding by font
        self._font = 0
        self._styles: dict[int, str] = {}  # name by number
        self._style_number = -1
        self._depth_of_styles = 0  # number of open groups within the list of styles
        self._name = ""  # text of the style or bookmark that is being read
        self._fields: list[str] = []  # instructions of the open fields
        self._bytes = bytearray()  # pending bytes of the current encoding
        self._to_skip = 0  # number of characters to skip after a Unicode character
        self._high = 0  # first half of a surrogate pair
        self._parts: list[str] = []  # HTML of the current paragraph
        self._cells: list[str] = []
        self._rows: list[list[str]] = []
        self._style, self._level, self._is_item, self._in_table = 0, 9, False, False

    def read(self, content: bytes) -> Iterator[str]:
        """Yield the HTML of the paragraphs and tables.

        Args:
            content: RTF.
        """
        place = 0
        while (token := _TOKEN.match(content, place)) is not None:
            place = token.end()
            if token["hex"]:
                self._add_bytes(bytes([int(token["hex"], 16)]))
                continue
            if text := token["text"]:
                self._add_bytes(text)
                continue
            self._decode()
            if token["brace"]:
                self._brace(token["brace"])
            elif sign := token["sign"]:
                yield from self._sign(sign)
            elif token["word"]:
                number = int(token["number"]) if token["number"] else None
                if token["word"] == b"bin":
                    place += max(number or 0, 0)
                yield from self._word(token["word"].decode(), number)
        self._decode()
        yield from self._end_paragraph()
        yield from self._end_table()

    @property
    def _group(self) -> _Group:
        return self._groups[-1]

    def _brace(self, brace: bytes) -> None:
        if brace == b"{":
            if len(self._groups) > _MAX_GROUPS:
                raise UnreadableError(f"more than {_MAX_GROUPS:,} nested groups")
            if self._group.kind == "styles" and len(self._groups) == self._depth_of_styles:
                self._style_number, self._name = -1, ""
            self._groups.append(replace(self._group, closing="", is_new=True, is_optional=False))
        elif len(self._groups) > 1:
            group = self._groups.pop()
            if group.closing:
                self._parts.append(group.closing)
            if group.kind == "styles" and len(self._groups) == self._depth_of_styles and self._style_number >= 0:
                self._styles[self._style_number] = self._name.partition(";")[0].strip()
            elif group.kind == "bookmark" and self._group.kind != "bookmark":
                self._parts.append(f'<a id="{escape(self._name.strip())}"></a>')
                self._name = ""

    def _sign(self, sign: bytes) -> Iterator[str]:
        if sign == b"*":
            self._group.is_optional = True
        elif sign in b"~_-":
            self._add({b"~": " ", b"_": "-", b"-": ""}[sign])
        elif sign in b"\\{}":
            self._add(sign.decode())
        elif sign in b"\r\n":
            yield from self._end_paragraph()

    def _word(self, word: str, number: int | None) -> Iterator[str]:
        group = self._group
        is_first, group.is_new = group.is_new, False
        if (is_first and self._destination(word)) or group.kind == "skip":
            return
        if word == "u":
            self._add_unicode(number or 0)
        elif word in _SIGNS:
            self._add_html(_SIGNS[word])
        elif word in ("par", "sect", "page") and group.kind == "text":
            yield from self._end_paragraph()
        elif word in ("cell", "nestcell") and group.kind == "text":
            self._cells.append(self._taken())
        elif word in ("row", "nestrow") and group.kind == "text":
            self._rows.append(self._cells)
            self._cells = []
        else:
            self._property(word, number, group)

    def _destination(self, word: str) -> bool:
        """Set the destination of a group by its first control word, and return whether the word is handled."""
        group = self._group
        if group.kind == "skip":
            return True
        if word in ("fonttbl", "stylesheet", "info"):
            group.kind = {"fonttbl": "fonts", "stylesheet": "styles", "info": "info"}[word]
            self._depth_of_styles = len(self._groups) if word == "stylesheet" else self._depth_of_styles
        elif group.kind == "info":
            group.kind = "title" if word == "title" else "skip"
        elif word in _SKIPPED or (group.is_optional and word not in _KNOWN):
            group.kind = "skip"
        elif word in ("listtext", "pntext"):
            group.kind, self._is_item = "skip", True
        elif word == "field":
            self._fields.append("")
        elif word == "fldinst":
            group.kind = "field"
        elif word == "fldrslt":
            self._parts.append(field_start(self._fields.pop() if self._fields else ""))
            group.kind, group.closing = "text", "</a>"
        elif word == "bkmkstart":
            group.kind, self._name = "bookmark", ""
        elif word == "footnote":
            self._parts.append(" (")
            group.closing = ")"
        else:
            return False
        return True

    def _property(self, word: str, number: int | None, group: _Group) -> None:
        """Set a property of the text or of the paragraph."""
        if word == "ansicpg":
            self._default = group.encoding = _PAGES.get(number or 0, "cp1252")
        elif word == "mac":
            self._default = group.encoding = "mac-roman"
        elif word == "uc":
            group.num_fallback = max(number or 0, 0)
        elif word in ("v", "deleted"):
            group.is_hidden = number != 0
        elif word == "plain":
            group.is_hidden = False
        elif word == "f":
            self._font = number or 0
            group.encoding = self._fonts.get(self._font, self._default)
        elif word == "fcharset" and group.kind == "fonts":
            self._fonts[self._font] = _CHARSETS.get(number or 0, self._default)
        elif group.kind == "styles":
            self._style_number = (number or 0) if word == "s" else self._style_number
        elif word == "pard":
            self._style, self._level, self._is_item, self._in_table = 0, 9, False, False
        elif word == "s":
            self._style = number or 0
        elif word == "outlinelevel":
            self._level = number or 0
        elif word in ("ls", "pn"):
            self._is_item = True
        elif word == "intbl":
            self._in_table = True

    def _add_bytes(self, text: bytes) -> None:
        self._group.is_new = False
        skipped = min(self._to_skip, len(text))
        self._to_skip -= skipped
        self._bytes += text[skipped:]

    def _decode(self) -> None:
        """Add the pending bytes, which may be parts of a character of several bytes."""
        if self._bytes:
            text, self._bytes = self._bytes.decode(self._group.encoding, "replace"), bytearray()
            self._add(text)

    def _add_unicode(self, number: int) -> None:
        code = number % 0x10000
        self._to_skip = self._group.num_fallback
        if 0xD800 <= code < 0xDC00:
            self._high = code
        elif 0xDC00 <= code < 0xE000:
            high, self._high = self._high, 0
            self._add(chr(0x10000 + ((high - 0xD800) << 10) + code - 0xDC00) if high else "\ufffd")
        else:
            self._add(chr(code))

    def _add(self, text: str) -> None:
        """Add text without control characters to the destination of the group."""
        text = _CONTROLS.sub("", text)
        match self._group.kind:
            case "text":
                self._add_html(escape(text))
            case "title":
                self.title = (self.title + text)[:_MAX_TEXT]
            case "styles" | "bookmark":
                self._name = (self._name + text)[:_MAX_TEXT]
            case "field" if self._fields:
                self._fields[-1] = (self._fields[-1] + text)[:_MAX_TEXT]

    def _add_html(self, text: str) -> None:
        if self._group.kind == "text" and not self._group.is_hidden:
            self._parts.append(text)

    def _taken(self) -> str:
        text, self._parts = "".join(self._parts), []
        return text

    def _end_paragraph(self) -> Iterator[str]:
        """Yield the current paragraph, or add a line break in a cell of a table."""
        if self._in_table or self._cells:
            self._parts.append(" ")
            return
        yield from self._end_table()
        text, tag = self._taken(), self._tag()
        if text.strip():
            yield f"<{tag}>{text}</{tag}>"

    def _end_table(self) -> Iterator[str]:
        rows, self._rows = [row for row in self._rows if any(map(str.strip, row))], []
        if self._cells and any(map(str.strip, self._cells)):  # a row that is not closed
            rows.append(self._cells)
            self._cells = []
        for number, row in enumerate(rows):
            is_header = not number and len(rows) > 1 and len(row) > 1 and all(map(str.strip, row))
            tag = "th" if is_header else "td"
            cells = "".join(f"<{tag}>{cell}</{tag}>" for cell in row)
            yield f"{'<table>' * (not number)}<tr>{cells}</tr>{'</table>' * (number == len(rows) - 1)}"

    def _tag(self) -> str:
        """Return the HTML element for the current paragraph."""
        name = self._styles.get(self._style, "")
        if heading := _HEADING.match(name):
            return f"h{heading[1] or 1}"
        if 0 <= self._level < 6:
            return f"h{self._level + 1}"
        return "li" if self._is_item else "pre" if _CODE_STYLE.search(name) else "p"
