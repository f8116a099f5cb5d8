"""Parse AsciiDoc line by line, following Asciidoctor. There is no maintained AsciiDoc parser for Python."""

import posixpath
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from graphrerank_documents.document import Document, Link
from graphrerank_documents.formats.alt_text import alt_text
from graphrerank_documents.formats.lined_reader import LineReader, Row, replaced

_MAX_ATTRIBUTE = 1000  # maximum number of characters of an attribute's value
_HEADING = re.compile(r"(={1,6}|#{1,6})[ \t]++(?=\S)")
_RULE = re.compile(r"(?:={2,}|-{2,}|~{2,}|\^{2,}|\+{2,})$")
_ATTRIBUTE = re.compile(r":!?([\w-]+)!?:(?:[ \t]+(.*))?$")
_ANCHOR = re.compile(r"\[\[([^\[\],]{1,200})(?:,[^\[\]]{0,500})?\]\]")
_STYLE = re.compile(r"\[(?!\[)(.{0,1000})\]$")
_ID = re.compile(r"#([\w:.-]+)|\bid=\"?([\w:.-]+)")
_FENCE = re.compile(r"(-{4,}|\.{4,}|`{3,}|/{4,}|\+{4,})")  # delimiter of listings, comments and passthrough blocks
_OPEN = re.compile(r"(?:(?:--|={4,}|\*{4,}|_{4,}|<<<|'''+|\+)$|(?:ifn?def|ifeval|endif)::)")  # lines without text
_TABLE = re.compile(r"[|!]={3,}$")
_MACRO = re.compile(r"(\w+)::([^\s\[]{0,2000})\[(.*)\]$")
_ITEM = re.compile(r"\s*(\*{1,5}|-|\.{1,5}|\d{1,9}\.|<[.\d]+>)[ \t]+(?=\S)")
_TERM = re.compile(r"(\S.{0,500}?)(?::{2,4}|;;)(?:[ \t]+(.*))?$")
_ALT = re.compile(r"(?:^|,)\s{0,9}alt=(?:\"([^\"]{0,1000})\"|([^,\"]{0,1000}))")
_CELL = re.compile(r"(?<!\\)(?:(?:^|(?<=\s))[\d.+*]*[<^>.]*[aehlmsdv]?)?\|")
_COLUMNS = re.compile(r"cols=(?:\"([^\"]*)\"|([^\",]*))")
_COLUMN = re.compile(r"(\d{1,3})\*[^,;]*|[^,;]+")  # column, or a number of equal columns as `3*`
_AUTHOR = re.compile(r"[\w .-]+<\S+@\S+>$|v?\d[\w.]*, ")  # author or revision line below the title
_REFERENCE = re.compile(r"\{([\w-]{1,100})\}")
_INLINE = re.compile(
    r"\\(?:<<[^<>]{0,500}>>|\w+:[^\s\[]{0,500}\[)"  # escaped
    r"|`?\+(?=\S)[^+\n]{1,500}\+`?|pass:\w{0,20}\[[^\[\]]{0,500}\]"  # passthrough
    r"|<<(?P<id>[^<>,]{1,500})(?:,(?P<shown>[^<>]{0,500}))?>>"
    r"|(?<![\w:/])(?P<macro>xref|link|image|footnote|kbd|btn|menu|icon|anchor|mailto|indexterm2?):(?!:)"
    r"(?P<target>[^\s\[\]]{0,2000})\[(?P<text>(?:[^\[\]\\]|\\.){0,1000})\]"
    r"|(?P<url>\bhttps?://[^\s\[\]<>\"]{1,2000})(?:\[(?P<named>[^\[\]]{0,500})\])?"
    r"|\[\[(?P<anchor>[\w:.-]{1,200})(?:,[^\[\]]{0,500})?\]\]"
)
_MARKS = re.compile(
    r"(?<![\w*_`#])(?:\[[^\[\]]{0,80}\])?([*_`#]{1,2})(?=\S)((?:[^\n*_`#]|(?<=\w)[_*](?=\w)){1,300})(?<=\S)\1(?!\w)"
)
# component, module, family and page of a resource ID in Antora
_ANTORA = re.compile(r"(?:(?:[\w.-]+@)?(?:([\w.-]*):)?([\w.-]*):)?(?:(\w+)\$)?([^:$]*)")
_MODULES = re.compile(r"(.*/|)modules/([^/]+)/")


def read_asciidoc(content: bytes, name: str) -> list[Document]:
    """Parse an AsciiDoc file. Included files are not opened.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document with a section per heading.

    Raises:
        UnreadableError: If ``content`` is binary or its encoding is unknown.
    """
    reader = _AsciiDoc(content, name)
    documents = reader.read()
    names = [each.strip() for each in reader.attributes.get("page-aliases", "").split(",") if each.strip()]
    aliases = tuple(_of_antora(each, name, "").partition("#")[0] for each in names)
    return [replace(document, aliases=(*document.aliases, *aliases)) for document in documents]


def _alt(attributes: str) -> str:
    """Return the alternative text in the attributes of an image: the one named `alt`, or the first one."""
    named = _ALT.search(attributes)
    return alt_text(named[1] or named[2] if named else attributes.split(",")[0].strip('"'))


class _Cell(NamedTuple):
    """Cell of a table.

    Attributes:
        lines: Lines of the text.
        line: First line of the cell, 1-based.
    """

    lines: list[str]
    line: int


class _AsciiDoc(LineReader):
    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content, name)
        self.room = len(self.text) + _MAX_ATTRIBUTE  # number of characters that attributes may still add
        self.attributes: dict[str, str] = {}
        self.anchors: list[str] = []  # anchors of the next block or heading
        self.style = ""
        self.ids: dict[str, int] = {}

    def line(self, line: str) -> None:
        """Parse a line, and the following lines if they belong to the same block."""
        above = self.paragraph[0] if len(self.paragraph) == 1 and not self.mark else ""
        if above and _RULE.match(line) and abs(len(above) - len(line)) <= 1:
            self.paragraph = []
            self.heading(above, self.line_number - 1)
        elif fence := _FENCE.match(line):
            self.flush()
            end = fence[1] if line[0] == "`" else line
            start = self.line_number + 1
            lines = self.take(end.__eq__)
            self.line_number += 1
            self.whole(lines if line[0] not in "/+" else (), start)
        elif line.startswith("//"):
            return
        elif _OPEN.match(line):
            self.flush()
        elif _TABLE.match(line):
            self.flush()
            self.rows(line)
        elif macro := _MACRO.match(line):
            self.flush()
            self.macro(macro[1], self.substituted(macro[2]), macro[3])
        elif item := _ITEM.match(line):
            self.item(item[1].strip("<>."), line[item.end() :])
        elif (term := _TERM.match(line)) and "::" in f"{line} ":
            self.flush()
            self.hold(term[1])
            self.paragraph += [term[2]] if term[2] else []
        elif self.paragraph or not self.sets(line):
            self.hold(line)

    def sets(self, line: str) -> bool:
        """Parse a heading, or a line with attributes of the next block. Return False for other lines."""
        if found := _HEADING.match(line):
            self.heading(_without_mark(line[found.end() :], found[1]), self.line_number)
        elif found := _ATTRIBUTE.match(line):
            value = found[2] or ""
            while value.endswith("\\") and self.line_number < len(self.lines):
                value = value[:-1][:_MAX_ATTRIBUTE] + self.lines[self.line_number].strip()
                self.line_number += 1
            self.attributes[found[1]] = self.substituted(value)[:_MAX_ATTRIBUTE]
        elif found := _ANCHOR.fullmatch(line):
            self.anchors.append(found[1])
        elif found := _STYLE.match(line):
            self.style = found[1]
            self.anchors += [first or second for first, second in _ID.findall(found[1].split('"')[0])]
        elif re.match(r"\.[^\s.]", line):
            self.point()
            self.add(line[1:], self.line_number)
        else:
            return False
        return True

    def heading(self, heading: str, line: int) -> None:
        """Start a section."""
        anchor = _ANCHOR.search(heading)
        text, links = self.inline(_ANCHOR.sub("", heading).strip(), line)
        self.anchors += [anchor[1]] if anchor else []
        self.open(text, line, links)
        self.point()
        asciidoctor = (self.attributes.get("idprefix", "_"), self.attributes.get("idseparator", "_")[:1])
        antora = ("", "-")
        words = re.sub(r"[^\w .-]", "", text.lower())
        for prefix, separator in dict.fromkeys([asciidoctor, antora]):
            name = prefix + re.sub(r"[ .-]+", separator, words).strip(separator or None)
            count = self.ids[name] = self.ids.get(name, 0) + 1
            self.spans[-1].anchors.append(name if count == 1 else f"{name}{separator}{count}")
        if len(self.spans) == 2:
            self.take(lambda line: not _AUTHOR.match(line))

    def point(self) -> None:
        """Add the anchors before a block to its section."""
        self.spans[-1].anchors += self.anchors
        self.spans[-1].labels += self.anchors
        self.anchors, self.style = [], ""

    def flush(self) -> None:
        """End the paragraph. An indented paragraph is a listing."""
        if self.paragraph and not self.mark and all(line[:1] in " \t" for line in self.paragraph):
            lines, self.paragraph = self.paragraph, []
            self.whole(lines, self.start)
        if self.paragraph:
            super().flush()
            self.point()

    def macro(self, name: str, target: str, text: str) -> None:
        """Parse a block macro."""
        self.point()
        if name == "include":
            self.add(target, self.line_number, [Link(_of_antora(target, self.name, ""), self.line_number)])
        elif name in ("image", "video", "audio"):
            self.add(_plain(_alt(text)), self.line_number)

    def rows(self, mark: str) -> None:
        """Parse the rows of a table."""
        style, start = self.style, self.line_number + 1
        self.point()
        lines = [*self.take(mark.__eq__), mark]
        self.line_number += 1
        cells: list[_Cell] = []
        num_first = 0  # number of cells in the first line that has cells
        is_alone = False  # whether an empty line follows it
        for index, line in enumerate(lines[:-1]):
            rest, *texts = _CELL.split(line.rstrip())
            if cells:
                cells[-1].lines.append(rest)
            cells += [_Cell([text], start + index) for text in texts]
            if not num_first:
                num_first = len(cells)
                is_alone = not lines[index + 1].strip()
        columns = _COLUMNS.search(style)
        counts = _COLUMN.findall(columns[1] or columns[2]) if columns else []
        width = sum(int(count or 1) for count in counts) if columns else num_first
        rows = [self.row(cells[index : index + width], cells[index].line) for index in range(0, len(cells), width or 1)]
        is_header = "header" in _COLUMNS.sub("", style) or (is_alone and num_first >= width)
        self.table(rows, int(is_header))

    def row(self, cells: Sequence[_Cell], line: int) -> Row:
        """Return a row of a table."""
        texts, links = list[str](), list[Link]()
        for cell in cells:
            text, cell_links = self.inline(" ".join(" ".join(cell.lines).split()), cell.line)
            texts.append(text.strip())
            links += cell_links
        return Row(" | ".join(texts).strip(" |"), line, links)

    def substituted(self, text: str) -> str:
        """Substitute the attributes defined in the file until the text is twice as long."""

        def value(found: re.Match[str]) -> str:
            value = self.attributes.get(found[1], found[0])
            self.room -= len(value)
            return value if self.room > 0 else found[0]

        return _REFERENCE.sub(value, text)

    def inline(self, text: str, line: int) -> tuple[str, list[Link]]:
        """Return a text without inline markup, and its links."""
        shown, links = replaced(_INLINE, self.shown, self.substituted(text), line)
        return _MARKS.sub(r"\2", _MARKS.sub(r"\2", shown)), links

    def shown(self, found: re.Match[str], line: int, links: list[Link]) -> str:
        """Return the text of an inline element and record its link."""
        text = _plain(found["shown"] or found["text"] or found["named"] or "")
        target = found["target"]
        if found["id"] or found["macro"] == "xref":
            target = (found["id"] or target).strip()
            links.append(Link(self.address(target), line))
            return text or target.strip("#")
        if url := found["url"]:
            url = url if found["named"] is not None else url.rstrip(".,;:!?)'*_`")
            links.append(Link(url, line))
            return (text or url) + found["url"][len(url) :]
        if found["anchor"]:
            self.anchors.append(found["anchor"])
        match found["macro"]:
            case None:
                return "" if found["anchor"] else found[0].strip("\\`+")
            case "link":
                links.append(Link(target.replace("++", ""), line))
            case "menu":
                return " > ".join([target, *found["text"].split(" > ")])
            case "icon" | "anchor":
                return ""
            case "image":
                return _alt(found["text"] or "")
            case "footnote":
                return f" ({found['text']})"
        return text or target

    def address(self, target: str) -> str:
        """Return the target of a cross reference: a path, an anchor in this document, or both."""
        path, mark, anchor = target.partition("#")
        if not path or not (mark or re.search(r"\.(adoc|asciidoc|asc|html)$", path)):
            return f"#{anchor or path}"
        path = _of_antora(path if re.search(r"\.\w+$", path) else f"{path}.adoc", self.name, "pages")
        return f"{path}#{anchor}" if anchor and path else path


def _without_mark(heading: str, mark: str) -> str:
    """Return a heading without its optional closing mark, as in ``== Title ==``."""
    text = heading.removesuffix(mark)
    return text.rstrip(" \t") if text != heading and text.endswith((" ", "\t")) else heading


def _plain(text: str) -> str:
    """Return the text of a link without its attributes."""
    text = re.sub(r"(?:^|,)\s*[\w-]+=.*$|\^$", "", text.strip(), flags=re.DOTALL)
    return " ".join(text.replace("\\]", "]").strip('"').split())


def _of_antora(path: str, name: str, family: str) -> str:
    """Convert a resource ID in Antora to a relative path. The path is empty for resources of other components."""
    resource, own_module = _ANTORA.fullmatch(path), _MODULES.match(name)
    if not resource or not own_module or path.startswith((".", "/")) or (family != "pages" and "$" not in path):
        return path
    component, module, kind, page = resource.groups()
    if component is not None:
        return ""
    folder = f"{own_module[1]}modules/{module or own_module[2]}/{f'{kind}s' if kind else family}"
    return posixpath.relpath(f"{folder}/{page}", posixpath.dirname(name) or ".")
