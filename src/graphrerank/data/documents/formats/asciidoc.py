"""AsciiDoc by its lines, as Asciidoctor reads them; no parser of it is kept for Python."""

import posixpath
import re
from pathlib import PurePosixPath
from typing import Any

from graphrerank.data.documents.document import LABEL, MAX_NAME, MAX_TARGET, PATH, Block, Document, Link
from graphrerank.data.documents.formats.spans import Span, sections_of
from graphrerank.data.documents.formats.text import decode_text, without_blobs

_MAX_MARKED = 20_000  # characters of a paragraph whose marks are read
_MAX_ATTRIBUTE = 1000  # characters of an attribute that is put in
_HEADING = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*?)(?:[ \t]+\1)?$")
_RULE = re.compile(r"(?:={2,}|-{2,}|~{2,}|\^{2,}|\+{2,})$")
_ATTRIBUTE = re.compile(r":(!?)([\w-]+)(!?):(?:[ \t]+(.*))?$")
_ANCHOR = re.compile(r"\[\[([^\[\],]{1,200})(?:,[^\[\]]{0,500})?\]\]")
_STYLE = re.compile(r"\[(?!\[)(.{0,1000})\]$")
_ID = re.compile(r"#([\w:.-]+)|\bid=\"?([\w:.-]+)")
_FENCE = re.compile(r"(-{4,}|\.{4,}|`{3,}|/{4,}|\+{4,})")  # of lines that are kept as they are, or left out
_OPEN = re.compile(r"(--|={4,}|\*{4,}|_{4,}|<<<|'''+|\+)$")  # of lines that are read
_TABLE = re.compile(r"[|,:!]={3,}$")
_MACRO = re.compile(r"(\w+)::([^\s\[]{0,2000})\[(.*)\]$")
_ITEM = re.compile(r"\s*(\*{1,5}|-|\.{1,5}|\d{1,9}\.|<[.\d]+>)[ \t]+(?=\S)")
_TERM = re.compile(r"\s*(\S.{0,500}?)(?::{2,4}|;;)(?:[ \t]+(.*))?$")
_CELL = re.compile(r"(?<!\\)(?:(?:^|(?<=\s))[\d.+*]*[<^>.]*[aehlmsdv]?)?\|")
_COLUMNS = re.compile(r"cols=\"?([^\"\]]*)")
_REFERENCE = re.compile(r"\{([\w-]{1,100})\}")
_INLINE = re.compile(
    r"\\(?:<<[^<>]{0,500}>>|\w+:[^\s\[]{0,500}\[)"  # escaped
    r"|`?\+(?=\S)[^+\n]{1,500}\+`?|pass:\w{0,20}\[[^\[\]]{0,500}\]"  # as it is written
    r"|<<(?P<id>[^<>,]{1,500})(?:,(?P<shown>[^<>]{0,500}))?>>"
    r"|(?<![\w:/])(?P<macro>xref|link|image|footnote|kbd|btn|menu|icon|anchor|mailto|indexterm2?):(?!:)"
    r"(?P<target>[^\s\[\]]{0,2000})\[(?P<text>(?:[^\[\]\\]|\\.){0,1000})\]"
    r"|(?P<url>\bhttps?://[^\s\[\]<>\"]{1,2000})(?:\[(?P<named>[^\[\]]{0,500})\])?"
    r"|\[\[(?P<anchor>[\w:.-]{1,200})(?:,[^\[\]]{0,500})?\]\]"
)
_MARKED = re.compile(r"[\\`+<\[:*_#{]")
_ANTORA = re.compile(
    r"(?:(?:[\w.-]+@)?(?:([\w.-]*):)?([\w.-]*):)?(?:(\w+)\$)?([^:$]*)"
)  # component, module, family, page
_MODULES = re.compile(r"(.*/|)modules/([^/]+)/")
_MARKS = re.compile(
    r"(?<![\w*_`#])(?:\[[^\[\]]{0,80}\])?([*_`#]{1,2})(?=\S)((?:[^\n*_`#]|(?<=\w)[_*](?=\w)){1,300})(?<=\S)\1(?!\w)"
)


def read_asciidoc(content: bytes, name: str) -> list[Document]:
    """Read a file of AsciiDoc; nothing that it includes is opened."""
    text, dropped = without_blobs(decode_text(content))
    reader = _Reader(text.split("\n"), name)
    reader.read()
    sections = sections_of(reader.spans, max(text.rstrip().count("\n") + 1, 1))
    title = next((section.heading for section in sections if section.heading), "") or PurePosixPath(name).stem
    return [Document(name, title, sections, dropped=dropped)]


class _Reader:
    def __init__(self, lines: list[str], name: str) -> None:
        self.lines, self.at, self.name = lines, 0, name
        self.spans = [Span("", 1)]
        self.room = sum(map(len, lines)) + _MAX_ATTRIBUTE  # characters that attributes may add
        self.links: tuple[Link, ...] = ()  # of the heading
        self.attributes: dict[str, str] = {}
        self.anchors: list[str] = []  # of what follows
        self.style = ""
        self.held: list[tuple[str, int]] = []  # lines of the paragraph, with their numbers
        self.mark, self.is_tight, self.was_item = "", False, False
        self.ids: dict[str, int] = {}

    def read(self) -> None:
        while self.at < len(self.lines):
            line, self.at = self.lines[self.at].rstrip(), self.at + 1
            self.line(line)
        self.flush()
        known = {anchor for span in self.spans for anchor in span.anchors}
        for span in self.spans:
            span.blocks = [_pointed(block, known) for block in span.blocks]

    def line(self, line: str) -> None:
        number = self.at
        if not line.strip():
            self.flush()
            self.was_item = False
        elif self.is_title(line):
            (heading, above), self.held = self.held[0], []
            self.heading(heading, above)
        elif fence := _FENCE.match(line):
            self.fence(fence[1] if fence[1][0] == "`" else line, number)
        elif line.startswith("//"):
            return
        elif _TABLE.match(line):
            self.flush()
            self.table(line)
        elif _OPEN.match(line) or line.startswith(("ifdef::", "ifndef::", "ifeval::", "endif::")):
            self.flush()
        elif not self.held and self.sets(line):
            return
        elif (found := _HEADING.match(line)) and not self.held:
            self.heading(found[2], number)
        elif macro := _MACRO.match(line):
            self.flush()
            self.macro(macro[1], macro[2], macro[3], number)
        elif item := _ITEM.match(line):
            self.flush()
            digits = item[1].strip("<>.")
            self.mark = f"{digits}. " if digits.isdigit() else "- "
            self.is_tight, self.was_item = self.was_item, True
            self.held.append((line[item.end() :], number))
        elif (term := _TERM.match(line)) and not line.startswith(" ") and "::" in line + " ":
            self.flush()
            self.held.append((term[1], number))
            self.held += [(term[2], number)] if term[2] else []
        else:
            self.held.append((line, number))

    def is_title(self, line: str) -> bool:
        above = self.held[0][0] if len(self.held) == 1 and not self.mark else ""
        return bool(above and _RULE.match(line) and abs(len(above) - len(line)) <= 1)

    def sets(self, line: str) -> bool:
        """Read a line that says something about what follows."""
        if found := _ATTRIBUTE.match(line):
            value = found[4] or ""
            while value.endswith("\\") and self.at < len(self.lines):
                value = f"{value[:-1][:_MAX_ATTRIBUTE]}{self.lines[self.at].strip()}"
                self.at += 1
            if found[1] or found[3]:
                self.attributes.pop(found[2], None)
            else:
                self.attributes[found[2]] = self.substituted(value)[:_MAX_ATTRIBUTE]
        elif found := _ANCHOR.fullmatch(line):
            self.anchors.append(found[1])
        elif found := _STYLE.match(line):
            self.style = found[1]
            self.anchors += [first or second for first, second in _ID.findall(found[1].split('"')[0])]
        elif re.match(r"\.[^\s.]", line):
            self.add(line[1:], self.at)
        else:
            return False
        return True

    def heading(self, heading: str, number: int) -> None:
        found = _ANCHOR.match(heading) or _ANCHOR.search(heading)
        own = [*self.anchors, *([found[1]] if found else [])]
        text, links = self.inline(_ANCHOR.sub("", heading).strip(), number)
        self.spans.append(Span(text[:MAX_NAME], number, anchors=[*own, *self.auto(text)], labels=own))
        self.anchors, self.style = [], ""
        if len(self.spans) == 2:  # the author and the revision below the title of the document
            while self.at < len(self.lines) and re.match(r"[\w .-]+<\S+@\S+>$|v?\d[\w.]*, ", self.lines[self.at]):
                self.at += 1
        self.links = links

    def auto(self, heading: str) -> list[str]:
        """Return the anchors that Asciidoctor and Antora make of a heading."""
        prefix, mark = self.attributes.get("idprefix", "_"), self.attributes.get("idseparator", "_")[:1]
        made = []
        for before, between in dict.fromkeys([(prefix, mark), ("", "-")]):
            name = re.sub(r"[^\w .-]", "", heading.lower())
            name = before + (re.sub(r"[ .-]+", between, name).strip(between) if between else name.replace(" ", ""))
            count = self.ids[name] = self.ids.get(name, 0) + 1
            made.append(name if count == 1 else f"{name}{between}{count}")
        return made

    def flush(self) -> None:
        """End the paragraph."""
        if self.held:
            text, (_, number) = "\n".join(line.strip() for line, _ in self.held), self.held[0]
            if not self.mark and all(line[:1] in " \t" for line, _ in self.held):
                self.add("\n".join(line for line, _ in self.held).rstrip(), number, is_whole=True)
            else:
                shown, links = self.inline(text, number)
                is_tight = self.is_tight and bool(self.mark)
                self.add(self.mark + " ".join(shown.split()), number, links, is_tight=is_tight)
        self.held, self.mark, self.style = [], "", ""

    def add(self, text: str, line: int, links: tuple[Link, ...] = (), **options: Any) -> None:
        span = self.spans[-1]
        span.anchors += self.anchors
        span.labels += self.anchors
        self.anchors = []
        if text.strip():
            span.blocks.append(Block(text, line, (*self.links, *links), **options))
            self.links = ()

    def fence(self, mark: str, number: int) -> None:
        """Read the lines up to a fence as they are."""
        self.flush()
        end = self.at
        while end < len(self.lines) and self.lines[end].rstrip() != mark:
            end += 1
        text = "\n".join(self.lines[self.at : end]).strip("\n").rstrip()
        self.at = end + 1
        if mark[0] not in "/+":
            self.add(text, number + 1, is_whole=True)

    def macro(self, name: str, target: str, text: str, number: int) -> None:
        target = self.substituted(target)
        if name == "include" and target:
            self.add(target, number, _links((_of_antora(target, self.name, ""), PATH, number)))
        elif name in ("image", "video", "audio"):
            shown = re.match(r"\"?([^\",=]*)(?:[\",]|$)", text)
            self.add(shown[1].strip() if shown else "", number)

    def table(self, mark: str) -> None:
        """Read the rows of a table."""
        columns, style = _COLUMNS.search(self.style), self.style
        width = sum(int(part[1] or 1) for part in re.finditer(r"(?:(\d{1,3})\*)?[^,;]+", columns[1])) if columns else 0
        cells: list[tuple[str, int]] = []
        has_header = "header" in style.split("cols")[0] + style.split("cols")[-1]
        first = 0
        while self.at < len(self.lines) and (line := self.lines[self.at].rstrip()) != mark:
            self.at += 1
            parts = [line] if mark[0] in ",:" else _CELL.split(line)
            if mark[0] in ",:":
                cells += [(part, self.at) for part in line.split(mark[0])] if line else []
            elif len(parts) == 1 or parts[0].strip():
                cells[-1:] = [(f"{cells[-1][0]}\n{parts[0]}", cells[-1][1])] if cells else []
            cells += [(part, self.at) for part in parts[1:]]
            if cells and not first:
                first = len(cells)
                following = self.lines[self.at] if self.at < len(self.lines) else mark
                has_header |= not following.strip() and bool(line)
        self.at += 1
        self.rows(cells, width or first or 1, has_header)

    def rows(self, cells: list[tuple[str, int]], width: int, has_header: bool) -> None:
        header = ""
        for i in range(0, len(cells), width):
            shown = [self.inline(" ".join(text.split()), number) for text, number in cells[i : i + width]]
            text = " | ".join(part.strip() for part, _ in shown).strip(" |")
            if not i and has_header and len(cells) > width:
                header = text
                continue
            links = tuple(link for _, found in shown for link in found)
            self.add(text, cells[i][1], links, is_whole=True, is_tight=i > width * bool(header), header=header)
        self.style = ""

    def substituted(self, text: str) -> str:
        """Put in the attributes that the file sets, as many as make its text twice as long."""
        return _REFERENCE.sub(self.value, text) if "{" in text else text

    def value(self, found: re.Match[str]) -> str:
        value = self.attributes.get(found[1], found[0])
        self.room -= len(value)
        return value if self.room > 0 else found[0]

    def inline(self, text: str, number: int) -> tuple[str, tuple[Link, ...]]:
        """Return the text without its marks, and its links."""
        if len(text) > _MAX_MARKED or not _MARKED.search(text):
            return text, ()
        found: list[tuple[str, str, int]] = []
        at, line, parts = 0, number, []
        text = self.substituted(text)
        for match in _INLINE.finditer(text):
            line += text.count("\n", at, match.start())
            parts += [text[at : match.start()], self.shown(match, line, found)]
            at = match.end()
        shown = "".join([*parts, text[at:]])
        for _ in range(2):
            shown = _MARKS.sub(r"\2", shown)
        return shown, _links(*found)

    def shown(self, match: re.Match[str], line: int, found: list[tuple[str, str, int]]) -> str:
        """Return the text of a mark, its link noted."""
        if match["anchor"]:
            self.anchors.append(match["anchor"])
            return ""
        if match["id"] or match["macro"] == "xref":
            target = (match["id"] or match["target"]).strip()
            found.append((*_target(target, self.name), line))
            return _plain(match["shown"] or match["text"] or "") or target.strip("#")
        if match["url"]:
            url = match["url"] if match["named"] is not None else match["url"].rstrip(".,;:!?)'*_`")
            found.append((url, PATH, line))
            return (_plain(match["named"] or "") or url) + match["url"][len(url) :]
        if match["macro"] == "link":
            found.append((match["target"].replace("++", ""), PATH, line))
        if match["macro"] == "menu":
            return " > ".join([match["target"], *match["text"].split(" > ")])
        if match["macro"] in ("icon", "anchor"):
            return ""
        if match["macro"] == "image":
            return match["text"].split(",")[0].strip('"')
        if match["macro"] == "footnote":
            return f" ({match['text']})"
        return _plain(match["text"]) or match["target"] if match["macro"] else match[0].strip("\\`+")


def _plain(text: str) -> str:
    """Return the text of a link without its attributes."""
    text = re.sub(r",\s*\w+=.*$|\^$", "", text.strip(), flags=re.DOTALL)
    return " ".join(text.replace("\\]", "]").strip('"').split())


def _target(target: str, name: str) -> tuple[str, str]:
    """Return where a cross reference points: at a path, or at an anchor of this document or another."""
    path, mark, anchor = target.partition("#")
    if not path or not (mark or re.search(r"\.(adoc|asciidoc|asc|html)$", path)):
        return f"#{anchor or path}", LABEL
    path = _of_antora(path if re.search(r"\.\w+$", path) else f"{path}.adoc", name, "pages")
    return f"{path}#{anchor}" if anchor and path else path, PATH


def _of_antora(path: str, name: str, family: str) -> str:
    """Return a path of Antora, which begins at a module, as a relative one; empty for another component's."""
    found, modules = _ANTORA.fullmatch(path), _MODULES.match(name)
    if not found or not modules or path.startswith((".", "/")) or (family != "pages" and "$" not in path):
        return path
    if found[1] is not None:
        return ""
    folder = f"{modules[1]}modules/{found[2] or modules[2]}/{f'{found[3]}s' if found[3] else family}"
    return posixpath.relpath(f"{folder}/{found[4]}", posixpath.dirname(name) or ".")


def _links(*found: tuple[str, str, int]) -> tuple[Link, ...]:
    return tuple(Link(target, line, kind) for target, kind, line in found if target and len(target) <= MAX_TARGET)


def _pointed(block: Block, known: set[str]) -> Block:
    """Let the references to an anchor point within the document if it is there, else at a label of another."""
    if not any(link.kind == LABEL for link in block.links):
        return block
    links = []
    for link in block.links:
        name = link.target.lstrip("#")
        natural = "_" + re.sub(r"[ .-]+", "_", re.sub(r"[^\w .-]", "", name.lower())).strip("_")
        if link.kind != LABEL:
            links.append(link)
        elif name in known or natural in known:
            links.append(Link(f"#{name if name in known else natural}", link.line))
        else:
            links.append(Link(name, link.line, LABEL))
    return Block(block.text, block.line, tuple(links), block.is_whole, block.is_tight, block.header)
