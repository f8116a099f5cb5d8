"""Parse Org files: orgparse parses headings and properties; the text is parsed line by line."""

import re
from dataclasses import replace

from graphrerank.installation.extras import optional
from graphrerank_documents.document import LABEL, MAX_NAME, PAGE, PATH, Document, Link, UnreadableError
from graphrerank_documents.formats.lined_reader import LineReader, Row, replaced
from graphrerank_documents.formats.note_markup import with_note_markup
from graphrerank_documents.formats.slugs import Slugs, github_slug

# Maximum number of headings of a file, and of characters of a heading without its dates. orgparse is slow for both.
_MAX_HEADINGS, _MAX_HEADING = 50_000, 500
_OUTLINE = re.compile(r"\*{1,50} |\s*:[\w+-]{1,100}:")  # lines passed to orgparse; other lines are blanked
_DATE = re.compile(r"[<\[]\d{4}-\d\d-\d\d[^<>\[\]]{0,40}[>\]]")
_BLOCK = re.compile(r"\s*#\+begin_(src|example|export|comment|latex|html)\b", re.IGNORECASE)
_KEYWORD = re.compile(r"\s*#\+(\w{1,100}):[ \t]*(.*)")
_DRAWER = re.compile(r"\s*:(?!END:)[\w-]{1,100}:$", re.IGNORECASE)
_HIDDEN = re.compile(r"\s*(?:#(?:\s|\+|$)|-{5,}$|:END:$|(?:SCHEDULED|DEADLINE|CLOSED|CLOCK):)", re.IGNORECASE)
_ITEM = re.compile(r"\s*([-+]|\s\*|\d{1,9}[.)])[ \t]+(?:\[[ X-]\][ \t]+)?(?=\S)")
_INLINE = re.compile(
    r"(?<!\w)([~=])(?=\S)(?P<code>[^\n~=]{1,300})(?<=\S)\1(?!\w)"
    r"|\[\[(?P<target>[^\[\]]{1,2000})\](?:\[(?P<shown>[^\[\]]{1,1000})\])?\]"
    r"|(?P<url>\bhttps?://[^\s\[\]<>\"]{1,2000})"
    r"|<<(?P<place>[^<>\n]{1,200})>>"
    r"|(?<!\w)([*/_+])(?=\S)(?P<marked>[^\n*/+_\[\]]{1,300})(?<=\S)\7(?!\w)"
)
_ALIAS = re.compile(r"\"([^\"]+)\"|(\S+)")
_PLACE = re.compile(r"<<([^<>\n]{1,200})>>")
_FILE = re.compile(r"(?:file:)?((?:[./~][^:]*|[^:]*\.\w+|(?<=file:)[^:]+))(?:::(.*))?$")


def read_org(content: bytes, name: str) -> list[Document]:
    """Parse an Org file.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document with a section per heading.

    Raises:
        UnreadableError: If ``content`` is binary, its encoding is unknown, it has too many headings or orgparse fails.
    """
    reader = _Org(content, name)
    return [with_note_markup(document, reader.text) for document in reader.read()]


class _Org(LineReader):
    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content, name)
        outline = [_DATE.sub("", line)[:_MAX_HEADING] if _OUTLINE.match(line) else "" for line in self.lines]
        if sum(line[:1] == "*" for line in outline) > _MAX_HEADINGS:
            raise UnreadableError(f"more than {_MAX_HEADINGS:,} headings")
        try:
            nodes = list(optional("orgparse", "an Org file").loads("\n".join(outline)))
        except (ValueError, RecursionError, LookupError, AssertionError, TypeError, AttributeError) as error:
            raise UnreadableError(f"invalid Org outline: {error}") from None
        self.slugs = Slugs()
        self.nodes = {node.linenumber: node for node in nodes if node.level}
        self.point(nodes[0], "")
        written = str(nodes[0].properties.get("ROAM_ALIASES") or "")
        self.aliases = tuple(quoted or bare for quoted, bare in _ALIAS.findall(written[:_MAX_HEADING]))

    def point(self, node: object, heading: str) -> None:
        """Add the anchors and labels of a heading, or of the file, to the current section."""
        properties = getattr(node, "properties", {})
        custom_id = str(properties.get("CUSTOM_ID") or "")
        org_id = str(properties.get("ID") or "")
        slugs = self.slugs.of(heading) if heading else []
        self.spans[-1].anchors += [custom_id, *slugs]
        self.spans[-1].labels += [custom_id, f"id:{org_id}" if org_id else ""]

    def line(self, line: str) -> None:
        """Parse a line, and the following lines if they belong to the same element."""
        if node := self.nodes.get(self.line_number):
            self.flush()
            heading, links = self.inline(node.heading, self.line_number)
            self.open(heading, self.line_number, links)
            self.point(node, self.spans[-1].heading)
        elif block := _BLOCK.match(line):
            self.flush()
            start, end = self.line_number + 1, f"#+end_{block[1].lower()}"
            lines = self.take(lambda text: text.strip().lower() == end or self.line_number + 1 in self.nodes)
            if block[1].lower() in ("src", "example"):
                self.whole(lines, start)
        elif _DRAWER.match(line):
            self.flush()
            self.take(lambda text: text.strip().upper() == ":END:" or self.line_number + 1 in self.nodes)
        elif keyword := _KEYWORD.match(line):
            self.keyword(keyword[1].lower(), keyword[2].strip())
        elif _HIDDEN.match(line):
            self.flush()
        elif kind := re.match(r"\s*(?:\||: )", line):
            self.flush()
            self.line_number -= 1
            start = self.line_number + 1
            lines = [text.strip() for text in self.take(lambda text: not text.lstrip().startswith(kind[0].strip()))]
            if kind[0].strip() == "|":
                self.rows(lines, start)
            else:
                self.whole([text[2:] for text in lines], start)
        elif item := _ITEM.match(line):
            self.item(item[1].strip(".) "), line[item.end() :].replace(" :: ", ": "))
        else:
            self.hold(line)

    def keyword(self, name: str, value: str) -> None:
        """Parse a keyword: the title of the file, an included file, or a caption."""
        self.flush()
        if name == "include" and (path := re.match(r"\"?([^\"\s]+)", value)):
            self.add(path[1], self.line_number, [Link(path[1], self.line_number)])
        elif name in ("caption", "description"):
            self.add(value, self.line_number)
        elif name == "title":
            self.title = self.title or value[:MAX_NAME]

    def rows(self, lines: list[str], start: int) -> None:
        """Parse the rows of a table. The rows before the first rule are the header."""
        rows, headers = list[Row](), 0
        for number, line in enumerate(lines, start):
            if line.startswith("|-"):
                headers = headers or len(rows)
                continue
            text, links = self.inline(line.strip("|"), number)
            cells = " | ".join(cell.strip() for cell in text.split("|"))
            rows.append(Row(cells.strip(), number, links))
        self.table(rows, headers)

    def inline(self, text: str, line: int) -> tuple[str, list[Link]]:
        """Return a text without inline markup, and its links."""
        if "<<" in text:  # targets of links in the text
            self.spans[-1].anchors += [github_slug(found[1]) for found in _PLACE.finditer(text)]
        return replaced(_INLINE, _shown, text, line)

    def documents(self) -> list[Document]:
        """Return the document. The title becomes the heading of a note without text, so that links can point to it."""
        if len(self.spans) == 1 and not self.spans[0].blocks:
            self.spans[0].heading = self.title
        return [replace(document, aliases=self.aliases) for document in super().documents()]


def _shown(found: re.Match[str], line: int, links: list[Link]) -> str:
    """Return the text of an inline element and record its link."""
    if url := found["url"]:
        links.append(Link(url.rstrip(".,;:!?)'*/_~="), line))
    elif target := found["target"]:
        kind, address = _target(" ".join(target.split()))
        links.append(Link(address, line, kind))
        return found["shown"] or re.sub(r"^(?:file|id|roam):|^[#*]", "", target)
    return found["code"] or url or found["place"] or found["marked"]


def _target(target: str) -> tuple[str, str]:
    """Return the kind and target of a link. The target is empty if the link does not point to a document."""
    if not target:
        return PATH, ""
    scheme, _, rest = target.partition(":")
    if scheme in ("http", "https") or target[0] == "#":
        return PATH, target
    if scheme == "id":
        return LABEL, target
    if scheme in ("roam", "denote"):
        return PAGE, rest
    if path := _FILE.match(target):
        place = path[2] or ""
        anchor = place[1:] if place.startswith("#") else github_slug(place.lstrip("*"))
        return PATH, path[1] + (f"#{anchor}" if anchor and not place.isdigit() else "")
    return PATH, "" if re.match(r"[\w+-]+:", target) else f"#{target.lstrip('*')}"
