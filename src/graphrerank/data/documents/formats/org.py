"""Org: headings and their properties by orgparse, what stands under them by its lines."""

import re
from pathlib import PurePosixPath
from typing import Any

from graphrerank.data.documents.document import (
    LABEL,
    MAX_NAME,
    MAX_TARGET,
    PAGE,
    PATH,
    Block,
    Document,
    Link,
    UnreadableError,
)
from graphrerank.data.documents.formats.slugs import Slugs, github_slug
from graphrerank.data.documents.formats.spans import Span, sections_of
from graphrerank.data.documents.formats.text import decode_text, without_blobs
from graphrerank.extras import optional

_MAX_HEADINGS, _MAX_HEADING = 50_000, 500  # of a file; characters, without dates, which orgparse searches slowly
_MAX_MARKED = 20_000  # characters of a paragraph whose marks are read
_HEADING = re.compile(r"\*{1,50} ")
_DATE = re.compile(r"[<\[]\d{4}-\d\d-\d\d[^<>\[\]]{0,40}[>\]]")
_BLOCK = re.compile(r"\s*#\+begin_(\w{1,100})", re.IGNORECASE)
_KEYWORD = re.compile(r"\s*#\+(\w{1,100}):[ \t]*(.*)", re.IGNORECASE)
_DRAWER = re.compile(r"\s*:[\w-]{1,100}:$")
_PLAN = re.compile(r"\s*(?:SCHEDULED|DEADLINE|CLOSED|CLOCK):")
_ITEM = re.compile(r"\s*([-+]|\s\*|\d{1,9}[.)])[ \t]+(?:\[[ X-]\][ \t]+)?(?=\S)")
_INLINE = re.compile(
    r"(?<!\w)([~=])(?=\S)([^\n~=]{1,300})(?<=\S)\1(?!\w)"  # as it is written
    r"|\[\[([^\[\]]{1,2000})\](?:\[([^\[\]]{1,1000})\])?\]"
    r"|(\bhttps?://[^\s\[\]<>\"]{1,2000})"
    r"|<<([^<>\n]{1,200})>>"
)
_MARKS = re.compile(r"(?<!\w)([*/_+])(?=\S)([^\n*/+_]{1,300})(?<=\S)\1(?!\w)")
_FILE = re.compile(r"(?:file:)?((?:[./~][^:]*|[^:]*\.\w+|(?<=file:)[^:]+))(?:::(.*))?$")


def read_org(content: bytes, name: str) -> list[Document]:
    """Read a file of Org."""
    text, dropped = without_blobs(decode_text(content))
    reader = _Reader(text.split("\n"))
    reader.read()
    if len(reader.spans) == 1 and not reader.spans[0].blocks:  # a note that is only pointed at
        reader.spans[0].heading = reader.keywords.get("title", "")[:MAX_NAME]
    sections = sections_of(reader.spans, max(text.rstrip().count("\n") + 1, 1))
    title = next((section.heading for section in sections if section.heading), "") or PurePosixPath(name).stem
    return [Document(name, reader.keywords.get("title", title)[:MAX_NAME], sections, dropped=dropped)]


def _outline(lines: list[str]) -> Any:
    """Return orgparse's tree of the headings and their drawers; all else is empty lines to it."""
    kept, is_open = [], False
    for i, line in enumerate(lines):
        is_heading = bool(_HEADING.match(line))
        is_open = not is_heading and (is_open or line.strip().upper() == ":PROPERTIES:")
        line = _DATE.sub("", line)[:_MAX_HEADING] if is_heading else line
        kept.append(line if is_heading or (is_open and len(line) <= MAX_NAME) else "")
        is_open = is_open and line.strip().upper() != ":END:"
        if i and is_heading and len(kept) > _MAX_HEADINGS and sum(map(bool, kept)) > _MAX_HEADINGS:
            raise UnreadableError(f"more than {_MAX_HEADINGS:,} headings")
    return optional("orgparse", "an Org file").loads("\n".join(kept))


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self.lines, self.at = lines, 0
        self.spans: list[Span] = []
        self.keywords: dict[str, str] = {}
        self.slugs = Slugs()
        self.held: list[tuple[str, int]] = []  # lines of the paragraph, with their numbers
        self.links: tuple[Link, ...] = ()  # of the heading
        self.mark, self.is_tight, self.was_item = "", False, False

    def read(self) -> None:
        try:
            nodes = list(_outline(self.lines))
        except UnreadableError:
            raise
        except (ValueError, RecursionError, LookupError, AssertionError, TypeError, AttributeError) as error:
            raise UnreadableError(f"no outline of Org: {error}") from None
        for node, following in zip(nodes, [*nodes[1:], None], strict=True):
            self.heading(node)
            end = following.linenumber - 1 if following else len(self.lines)
            self.body(max(self.at, node.linenumber) if node.level else 0, end)

    def heading(self, node: Any) -> None:
        own = str(node.properties.get("CUSTOM_ID") or "")
        label = node.properties.get("ID")
        text, self.links = self.inline(node.heading if node.level else "", node.linenumber)
        anchors = [own, *self.slugs.of(text)] if text else [own]
        self.spans.append(Span(text[:MAX_NAME], max(node.linenumber, 1), anchors=anchors))
        self.spans[-1].labels += [own, f"id:{label}" if label else ""]

    def body(self, start: int, end: int) -> None:
        self.at = start
        while self.at < end:
            line, self.at = self.lines[self.at].rstrip(), self.at + 1
            self.line(line, end)
        self.flush()

    def line(self, line: str, end: int) -> None:
        if not line:
            self.flush()
            self.was_item = False
        elif block := _BLOCK.match(line):
            self.flush()
            if block[1].lower() in ("src", "example", "export", "comment", "latex", "html"):
                text, number = self.until(f"#+end_{block[1].lower()}", end), self.at
                if block[1].lower() in ("src", "example"):
                    self.add(text.strip("\n").rstrip(), number - text.count("\n") - 1, is_whole=True)
        elif _DRAWER.match(line) and line.strip().upper() != ":END:":
            self.flush()
            self.until(":end:", end)
        elif keyword := _KEYWORD.match(line):
            self.keyword(keyword[1].lower(), keyword[2].strip())
        elif re.match(r"\s*(?:#(?:\s|\+|$)|-{5,}$|:END:$)", line) or _PLAN.match(line):
            self.flush()
        elif re.match(r"\s*\|", line):
            self.flush()
            self.table(end)
        elif re.match(r"\s*: ", line):
            self.mark = ": "
            self.held.append((line.split(": ", 1)[1], self.at))
        elif item := _ITEM.match(line):
            self.flush()
            digits = item[1].strip(".)")
            self.mark = f"{digits}. " if digits.isdigit() else "- "
            self.is_tight, self.was_item = self.was_item, True
            self.held.append((line[item.end() :].replace(" :: ", ": "), self.at))
        else:
            self.held.append((line, self.at))

    def until(self, mark: str, end: int) -> str:
        """Return the lines up to a mark, or to the next heading."""
        start = self.at
        while self.at < end and self.lines[self.at].strip().lower() != mark:
            self.at += 1
        self.at += 1
        return "\n".join(self.lines[start : min(self.at - 1, end)])

    def keyword(self, name: str, value: str) -> None:
        self.flush()
        if name == "include" and (path := re.match(r"\"?([^\"\s]+)", value)):
            self.add(path[1], self.at, _links((path[1], PATH, self.at)))
        elif name in ("caption", "description"):
            self.add(value, self.at)
        elif value:
            self.keywords.setdefault(name, value)

    def table(self, end: int) -> None:
        """Read the rows of a table; those before the first rule are its header."""
        self.at -= 1
        rows: list[tuple[str, tuple[Link, ...], int]] = []
        header = ""
        while self.at < end and (line := self.lines[self.at].strip()).startswith("|"):
            self.at += 1
            if line.startswith("|-"):
                if rows and not header:
                    header, rows = "\n".join(text for text, _, _ in rows), []
                continue
            text, links = self.inline(line.strip("|"), self.at)
            rows.append((" | ".join(cell.strip() for cell in text.split("|")).strip(), links, self.at))
        for i, (text, links, number) in enumerate(rows or [(header, (), self.at)]):
            self.add(text, number, links, is_whole=True, is_tight=i > 0, header=header if rows else "")

    def flush(self) -> None:
        """End the paragraph."""
        if self.held:
            number, text = self.held[0][1], "\n".join(line for line, _ in self.held)
            if self.mark == ": ":
                self.add(text.rstrip(), number, is_whole=True)
            else:
                shown, links = self.inline(text, number)
                is_tight = self.is_tight and bool(self.mark)
                self.add(self.mark + " ".join(shown.split()), number, links, is_tight=is_tight)
        self.held, self.mark = [], ""

    def add(self, text: str, line: int, links: tuple[Link, ...] = (), **options: Any) -> None:
        if text.strip():
            self.spans[-1].blocks.append(Block(text, line, (*self.links, *links), **options))
            self.links = ()

    def inline(self, text: str, number: int) -> tuple[str, tuple[Link, ...]]:
        """Return the text without its marks, and its links."""
        if len(text) > _MAX_MARKED:
            return text, ()
        found: list[tuple[str, str, int]] = []
        at, parts = 0, []
        for match in _INLINE.finditer(text):
            number += text.count("\n", at, match.start())
            parts += [_MARKS.sub(r"\2", text[at : match.start()]), self.shown(match, number, found)]
            at = match.end()
        return "".join([*parts, _MARKS.sub(r"\2", text[at:])]), _links(*found)

    def shown(self, match: re.Match[str], line: int, found: list[tuple[str, str, int]]) -> str:
        """Return the text of a mark, its link noted."""
        if match[1]:
            return match[2]
        if match[6]:
            return match[6]
        if match[5]:
            url = match[5].rstrip(".,;:!?)'*/_~=")
            found.append((url, PATH, line))
            return match[5]
        target, kind = _target(" ".join(match[3].split()))
        found.append((target, kind, line))
        return match[4] or re.sub(r"^(?:file|id|roam):|^[#*]", "", match[3])


def _target(target: str) -> tuple[str, str]:
    """Return where a link points, and its kind; an empty target for what is not a document."""
    if re.match(r"https?://", target):
        return target, PATH
    if target.startswith("id:"):
        return target, LABEL
    if target.startswith(("roam:", "denote:")):
        return target.split(":", 1)[1], PAGE
    if target.startswith("#"):
        return target, PATH
    if path := _FILE.match(target):
        place = path[2] or ""
        anchor = place[1:] if place.startswith("#") else github_slug(place.lstrip("*")) if place else ""
        return path[1] + (f"#{anchor}" if anchor and not place.isdigit() else ""), PATH
    if re.match(r"[\w+-]+:", target):
        return "", PATH
    return f"#{github_slug(target.lstrip('*'))}", PATH


def _links(*found: tuple[str, str, int]) -> tuple[Link, ...]:
    return tuple(Link(target, line, kind) for target, kind, line in found if target and len(target) <= MAX_TARGET)
