"""Parse Markdown and MDX in the dialects of common site generators and wikis."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from unicodedata import east_asian_width

from markdown_it.common.utils import normalizeReference
from markdown_it.token import Token

from graphrerank_documents.document import (
    DOCUMENT,
    LABEL,
    MAX_TARGET,
    PAGE,
    PATH,
    SYMBOL,
    Block,
    Document,
    Link,
)
from graphrerank_documents.formats.alt_text import alt_text
from graphrerank_documents.formats.front_matter import FrontMatter, file_title, front_matter
from graphrerank_documents.formats.lined_reader import LinedReader, Row
from graphrerank_documents.formats.markdown_syntax import ATTRIBUTES, FENCED, markdown_parser, written_target
from graphrerank_documents.formats.note_markup import with_note_markup
from graphrerank_documents.formats.redirect_pages import markup_url, redirecting
from graphrerank_documents.formats.slugs import Slugs
from graphrerank_documents.formats.text import code_block

_MAX_DEPTH = 5  # maximum depth of nested directives
# code, or an import statement, which ordinary Markdown pages of site generators may contain
_IMPORT = re.compile(rf"{FENCED}|^import [^\n]{{1,500}}['\"];?[ \t]*$", re.MULTILINE | re.DOTALL)
_BRACES = r"\{(?![#.:])(?:[^{}]|\{(?:[^{}]|\{[^{}]{0,200}\}){0,300}\}){0,500}\}"  # JavaScript expression in a tag
_MDX = re.compile(
    rf"{FENCED}"  # unchanged
    r"|^(?:import|export) [^\n]*(?:\n[^\n]+)*"  # statement, up to an empty line
    r"|\{/\*.{0,2000}?\*/\}"  # comment
    rf"|(?<=[\w\s])=?{_BRACES}(?=[\s/>])",  # value of an attribute, or spread attributes
    re.MULTILINE | re.DOTALL,
)
# link definition whose target has template syntax
_COMPUTED = re.compile(r"^( {0,3}\[[^\]\n]{1,500}\]:)([^\n]*\{[{%][^\n]*)$", re.MULTILINE)
_CODE = re.compile(FENCED, re.MULTILINE | re.DOTALL)
_DEFINITION = re.compile(  # link definition: label and target, optionally with a title
    r"^ {0,3}\[([^\[\]\n]{1,500})\]:[ \t]*<?([^\s<>]{1,2000})>?(?:[ \t]+[\"'(][^\n]*)?$", re.MULTILINE
)
# attributes behind a heading: `{#id .class}`, `{-}` of Pandoc (no number) or `{/* #id */}` of MDX
_HEADING_ATTRIBUTES = re.compile(rf"(?:{ATTRIBUTES}|\{{-\}}|\{{/\*[ \t]*#[^*\n]{{1,200}}\*/\}})$")
_ID = re.compile(r"#([^\s{}*]+)|\bid=[\"']?([\w.:-]+)")
_LABELLED = re.compile(r"\[([^\[\]\n]{1,300})\]\(\[\[([^\[\]\n|]{1,300})\]\]\)")  # wiki link with a label in Logseq
_SPACED = re.compile(  # path as the target of a link, which may contain spaces
    rf"{FENCED}|\]\((?P<path>[^\s()<>\"'][^()<>\n\"']{{0,400}}\.(?:md|markdown|mdx|html)(?:#[^()\s<>]{{0,300}})?)\)",
    re.MULTILINE | re.DOTALL,
)
_WIKI_LINK = re.compile(r"\[\[[^\[\]\n]{1,500}\]\]")
_OUTLINE = re.compile(r"[-*+] ")  # first line of an indented list of notes
_LABEL = re.compile(r"\(([^()\n]{1,200})\)=\s*(?:\n|$)")
_BLOCK_ID = re.compile(r"(?:^|\s)\^([\w-]{1,50})$")  # block id in Obsidian
_URL = re.compile(r"https?://[^\s<>\"')\]]{1,2000}")
_HIDDEN = re.compile(r"<!--(?:.*?-->|.*)|<(script|style|svg)\b(?:.*?</\1>|.*)", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(  # slash of a closing tag, name and attributes
    r"<(/?)([A-Za-z][\w:.-]*)"
    r"((?:[^<>\"']++|\"[^\"]{0,1000}\"|'[^']{0,1000}'){0,40}+|[^<>]*+)>"  # quoted values may contain `<` and `>`
)
_ATTRIBUTE = re.compile(r"(?<![\w-])(href|to|id|name|alt|title|label)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'<>]+))")
_BREAKS = re.compile(
    "p|div|li|tr|dt|dd|table|ul|ol|br|summary|details|section|article|pre|blockquote|hr|figure|figcaption|nav|h[1-6]"
)
_SITE = re.compile(
    r"^(?:(?:@site|@|pathname://)(?=[/#])|(?:project|path):(?!//))"
)  # prefixes in Docusaurus, Zola and MyST
_PROSE_DIRECTIVES = re.compile(
    "admonition|attention|caution|danger|error|hint|important|note|seealso|tip|warning|todo|dropdown|card|grid|tabs"
    "|grid-item|grid-item-card|tab-set|tab-item|version(?:added|changed)|deprecated|margin|sidebar|epigraph|topic"
    "|figure|glossary|details"
)
_DIRECTIVE = re.compile(r"\{([\w:-]{1,50})\}[ \t]*(.*)")
_AUTOMATIC = re.compile(r"^\.\. auto\w{1,20}:: *([\w.]{1,500})", re.MULTILINE)
# options of a directive: a block of YAML, or lines such as `:name: value`
_OPTIONS = re.compile(r"---\n.{0,2000}?^---\n|(?:[ \t]*:[\w-]{1,50}:[^\n]*(?:\n|$))+", re.DOTALL | re.MULTILINE)
_NAME_OPTION = re.compile(r"^[ \t]*:?(?:name|label):[ \t]*([\w.:-]{1,200})[ \t]*$", re.MULTILINE)
_TITLED = re.compile(r"([^<]{1,1000}?)\s*<([^<>]+)>")  # title and target in a role
_IMAGE = re.compile(r"\.(?:png|jpe?g|gif|svg|webp|bmp|avif|mp[34]|webm)\b", re.IGNORECASE)
_HAS_MARKDOWN = re.compile(r"^[^\S\n]*<\w[^<>]*\smarkdown\b", re.MULTILINE)
_NO_LINKS = ("data:", "javascript:")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_ROLES = {
    "doc": DOCUMENT,
    **dict.fromkeys(("ref", "numref", "any"), LABEL),
    **dict.fromkeys(("class", "func", "meth", "mod", "attr", "exc", "obj", "data"), SYMBOL),
}


def read_markdown(content: bytes, name: str) -> list[Document]:
    """Parse a Markdown page.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source. The suffix distinguishes MDX from Markdown.

    Returns:
        One document with a section per heading.

    Raises:
        UnreadableError: If ``content`` is binary or its encoding is unknown.
    """
    reader = MarkdownReader(content, name)
    said = front_matter(reader.text, name)
    text = "\n" * reader.text.count("\n", 0, said.length) + reader.text[said.length :]
    has_redirect = "<meta" in text or "<Redirect" in text
    url = said.redirect or (markup_url(_CODE.sub("", text)) if has_redirect else "")
    text = (_MDX if reader.is_mdx else _IMPORT).sub(_without_code, text)
    text = _COMPUTED.sub(lambda found: found[1] + written_target(found[2]), text)
    text = _LABELLED.sub(r"[[\2|\1]]", text) if "]([[" in text else text
    text = _SPACED.sub(_without_spaces, text) if "](" in text else text
    reader.define(text)
    reader.read(text)
    return [redirecting(with_note_markup(reader.document(said), reader.text), url)]


def _without_code(found: re.Match[str]) -> str:
    """Remove JavaScript. Fenced code, inline code and the number of lines are unchanged."""
    if found["fence"] or found["span"]:
        return found[0]
    return ('=""' if found[0].startswith("=") else "") + "\n" * found[0].count("\n")


def _without_spaces(found: re.Match[str]) -> str:
    """Return a link whose path has spaces in the syntax of Markdown. Code is unchanged."""
    return f"](<{found['path']}>)" if " " in (found["path"] or "") else found[0]


def _is_outline(text: str) -> bool:
    """Return whether indented text is a list with wiki links, as under a heading in Logseq, rather than code."""
    return bool(_OUTLINE.match(text)) and "[[" in text and bool(_WIKI_LINK.search(text))


def _ids(attributes: str) -> list[str]:
    return [marked or named for marked, named in _ID.findall(attributes)]


def _item_marker(token: Token) -> str:
    """Return the marker of a list item: its number, or a dash."""
    return f"{token.info}{token.markup} " if token.info else "- "


class MarkdownReader(LinedReader):
    """Reader of one or more Markdown texts, which are combined in one document.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source. The suffix distinguishes MDX from Markdown.
    """

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content, name)
        self.is_mdx = name.lower().endswith(".mdx")
        self._slugs = Slugs()
        self._env: dict[str, dict[str, object]] = {"references": {}}
        self._ids: list[str] = []  # pending anchors of the next heading or block, from HTML tags
        self._labels: list[str] = []
        self._has_title = False  # whether `title` is a heading of level 1 rather than the first heading
        self._title_level = 0
        self._levels = Counter[int]()  # number of headings by level
        self._line = 1  # line of the current token

    def define(self, text: str) -> None:
        """Add the link definitions of a text. As in Python-Markdown, they may occur anywhere outside code.

        Args:
            text: Markdown text.
        """
        for found in _DEFINITION.finditer(_CODE.sub("", text)) if "]:" in text else ():
            target = {"title": "", "href": found[2], "map": [0, 0]}
            self._env["references"].setdefault(normalizeReference(found[1]), target)

    def read(self, text: str, line: int = 1, depth: int = 0) -> None:
        """Parse a text and append its blocks.

        Args:
            text: Markdown text.
            line: Line of the file in which the text starts, 1-based.
            depth: Number of enclosing directives.
        """
        self._walk(markdown_parser(self.is_mdx).parse(text, self._env), line, depth)

    def add_code(self, text: str, line: int = 1) -> None:
        """Append code to the current section.

        Args:
            text: Code to append.
            line: Line of the file in which the code starts, 1-based.
        """
        for block in code_block(text, line):
            self.add(block.text, block.line, is_whole=True)

    def document(self, said: FrontMatter) -> Document:
        """Return the document. A page without text contains its description, or properties that link to other pages.

        The title is that of the front matter, the first heading if it is above all others, or the name of the file.

        Args:
            said: Front matter of the page.
        """
        self._mark()
        self._flush()
        if not any(span.blocks for span in self.spans):
            text = said.description or (said.text if said.links else "")
            if text:
                self.spans[0].blocks.append(Block(text, 1))
        first = next((span for span in self.spans if span.blocks), None)
        if said.links and first is not None:
            first.blocks[0] = replace(first.blocks[0], links=(*said.links, *first.blocks[0].links))
        has_siblings = sum(count for level, count in self._levels.items() if level <= self._title_level) > 1
        self.title = said.title or (self.title if not has_siblings else "") or file_title(self.name)
        damage = (said.damage,) if said.damage else ()
        return replace(self.documents()[0], aliases=said.aliases, damage=damage)

    def _flush(self) -> None:
        """Add pending links without a following block to the last block of the section."""
        span = self.spans[-1]
        if self.links and (span.blocks or span.heading):
            last = span.blocks.pop() if span.blocks else Block(span.heading, span.line)
            span.blocks.append(replace(last, links=(*last.links, *self.links)))
            self.links = []

    def _mark(self) -> None:
        self.spans[-1].anchors += (*self._ids, *self._labels)
        self.spans[-1].labels += self._labels
        self._ids, self._labels = [], []

    def _open(self, heading: str, tag: str, line: int, ids: Sequence[str], links: Sequence[Link]) -> None:
        self._flush()
        is_first = not any(span.blocks or span.heading for span in self.spans[:2])
        heading = self.open(heading, line, links).heading
        self._levels[int(tag[1])] += 1
        if is_first or (tag == "h1" and not self._has_title):
            self.title, self._has_title, self._title_level = heading, tag == "h1", int(tag[1])
        self.spans[-1].anchors += (*ids, *self._slugs.of(heading))
        self._mark()

    def add(
        self, text: str, line: int, links: Sequence[Link] = (), *, is_whole: bool = False, header: str = ""
    ) -> None:
        """Add a block with the pending anchors and links. Without text, the links remain pending.

        Args:
            text: Text of the block. A blank text is ignored.
            line: First line of the block, 1-based.
            links: Links in the block.
            is_whole: Whether the block is indivisible (see :class:`~graphrerank_documents.document.Block`).
            header: Header of the table for a row.
        """
        self.links += links
        if text:
            self._mark()
            super().add(text, line, is_whole=is_whole, header=header)

    def _walk(self, tokens: list[Token], first: int, depth: int) -> None:
        """Convert tokens to blocks. ``first`` is the line of the file in which the text starts."""
        marks: list[str] = []  # markers of the open list items, empty after their first block
        is_tight = False  # whether the next paragraph continues a list, or is the definition of a term
        index = -1
        while (index := index + 1) < len(tokens):
            token = tokens[index]
            kind = token.type
            if token.map:
                self._line = first + token.map[0]
            if kind == "heading_open":
                self._heading(tokens[index + 1], token.tag, token.level)
                index += 2  # the text and the end of the heading
            elif kind == "inline":
                opening = tokens[index - 1]
                mark = marks[-1] if marks else ""
                text = self._paragraph(token, mark, is_tight and (opening.hidden or not mark))
                if text and opening.type == "dt_open":  # Hugo generates anchors for terms as for headings
                    self.spans[-1].anchors += self._slugs.of(text)[:1]
                if marks:
                    marks[-1] = ""
                is_tight = False
            elif kind in ("list_item_open", "dd_open"):
                is_tight = bool(marks) or tokens[index - 1].type in ("list_item_close", "dt_close", "dd_close")
                marks.append("" if kind == "dd_open" else _item_marker(token))
            elif kind in ("list_item_close", "dd_close"):
                marks.pop()
            elif kind == "table_open":
                start = index
                while tokens[index].type != "table_close":
                    index += 1
                self._table(tokens[start:index], first)
            elif kind == "code_block" and depth < _MAX_DEPTH and _is_outline(token.content):
                self.read(token.content, self._line, depth + 1)
            elif kind in ("fence", "code_block"):
                self._code(token, depth)
            elif kind == "html_block":
                self._html_block(token.content, depth)

    def _heading(self, token: Token, tag: str, level: int) -> None:
        attributes = _HEADING_ATTRIBUTES.search(token.content.rstrip())
        ids = _ids(attributes[0]) if attributes else []
        line = self._line
        text, links = self._inline(token, is_heading=True)
        if level:  # a heading in a list, quotation or container starts no section
            self._ids += [*ids, *self._slugs.of(text)]
            self.add(text, line, links)
        else:
            self._open(text, tag, line, ids, links)

    def _paragraph(self, token: Token, mark: str, is_tight: bool) -> str:
        raw, line, span = token.content, self._line, self.spans[-1]
        if raw.startswith("{") and not span.blocks and _HEADING_ATTRIBUTES.fullmatch(raw):
            span.anchors[:0] = _ids(raw)
            return ""
        text, links = self._inline(token)
        if raw.startswith("(") and (label := _LABEL.match(raw)):
            self._labels.append(label[1])
            text = text.removeprefix(f"({label[1]})=").lstrip()
        if "^" in raw and (block := _BLOCK_ID.search(text)):
            self._ids.append(f"^{block[1]}")
            text = text[: block.start()].rstrip()
        self.is_tight = is_tight
        self.add(mark + text if text else "", line, links)
        return text

    def _table(self, tokens: Sequence[Token], first: int) -> None:
        """Add the rows of a table. Links in the header are added to the first row."""
        rows = list[Row]()
        for token in tokens:
            if token.type == "tr_open":
                cells, links = list[str](), list[Link]()
                self._line = first + token.map[0] if token.map else self._line
            elif token.type == "inline":
                text, cell_links = self._inline(token)
                cells.append(" ".join(text.split()))
                links += cell_links
            elif token.type == "tr_close":
                rows.append(Row(" | ".join(cells).strip(" |"), self._line, links))
        if len(rows) > 1:
            self.links += rows[0].links
        self.table(rows, 1)

    def _code(self, token: Token, depth: int) -> None:
        is_fence = token.type == "fence"
        line = self._line + is_fence  # line of the body, which starts after the fence and the options
        directive = _DIRECTIVE.match(token.info.strip()) if is_fence else None
        name, title = directive.groups() if directive else ("", "")
        options = _OPTIONS.match(token.content) if directive else None
        start = options.end() if options else 0
        if options and (named := _NAME_OPTION.search(options[0])):  # label of a figure, table or equation
            self._labels.append(named[1])
        body = token.content[start:]
        line += token.content.count("\n", 0, start)
        if name == "toctree":
            for number, row in enumerate(body.split("\n"), line):
                if not row.strip().startswith(":") and "*" not in row:
                    self._link(row.rpartition("<")[2].rstrip("> "), number, DOCUMENT)
        elif name in ("include", "literalinclude"):
            self._link(title, line)
            self.add(title, self._line)
        elif _PROSE_DIRECTIVES.fullmatch(name) and depth < _MAX_DEPTH:
            self.read(title if name != "figure" else "", self._line, depth + 1)  # the title of a figure is its path
            self.read(body, line, depth + 1)
        else:
            for symbol in _AUTOMATIC.findall(body) if name == "eval-rst" else ():
                self._link(symbol, line, SYMBOL)
            self.add_code(body, line)

    def _inline(self, token: Token, *, is_heading: bool = False) -> tuple[str, list[Link]]:
        """Return the visible text of a token, and its links."""
        # images in a heading are usually badges, so they are used only if the heading has no text
        parts, images = list[str](), list[str]()
        pending_links, self.links = self.links, []
        line = self._line
        in_link = False
        for child in token.children or ():
            kind, content = child.type, child.content
            if kind in ("text", "text_special", "code_inline"):
                parts.append(content)
                for url in _URL.findall(content) if kind != "code_inline" and not in_link else ():
                    self._link(url.rstrip(".,;:!?*_"), line)
            elif kind in ("softbreak", "hardbreak"):
                last_character = parts[-1][-1:] or " " if parts else " "
                if kind == "hardbreak":
                    parts.append("\n")
                else:  # in scripts without spaces, lines are joined without one
                    parts.append("" if east_asian_width(last_character) in "WF" else " ")
                line += 1
            elif kind in ("link_open", "link_close"):
                in_link = kind == "link_open"
                self._link(str(child.attrs.get("href", "")), line)
            elif kind == "image":
                (images if is_heading else parts).append(alt_text(content))
            elif kind == "html_inline":
                tag = _TAG.fullmatch(content)
                parts.append(self._tag(tag, line) if tag else "")
            elif kind == "wiki":
                if not _IMAGE.search(content):
                    parts.append(child.info)
                    self._link(content.rstrip("\\"), line, PAGE)
            elif kind == "role":
                parts.append(self._role(child.info, content, line))
        links, self.links = self.links, pending_links
        text = "".join(parts).strip() or " ".join(images)
        if is_heading:
            text = _HEADING_ATTRIBUTES.sub("", text).rstrip()
        return text, links

    def _link(self, target: str, line: int, kind: str = PATH) -> None:
        target = _SITE.sub("", target.strip())
        if target.startswith("((") and target.endswith("))"):  # block of Logseq, see `with_note_markup`
            return
        if 0 < len(target) <= MAX_TARGET and not target.startswith(_NO_LINKS) and "{{" not in target:
            self.links.append(Link(target, line, kind))

    def _role(self, role: str, content: str, line: int) -> str:
        """Add the link of a MyST role and return its text."""
        titled = _TITLED.fullmatch(content)
        title, target = (titled[1], titled[2]) if titled else (content, content)
        kind = _ROLES.get(role.rpartition(":")[2])
        if kind and not target.startswith("!"):
            self._link(target.lstrip("~"), line, kind)
        return title.rpartition(".")[2] if title.startswith("~") else title.lstrip("!")

    def _tag(self, tag: re.Match[str], line: int) -> str:
        """Add the anchors and links of an HTML tag and return its text."""
        name = tag[2].lower()
        if tag[1]:
            return " | " if name in ("td", "th") else ""
        attributes = _ATTRIBUTE.findall(tag[3])
        values = {key.lower(): unescape(double or single or bare) for key, double, single, bare in attributes}
        is_component = tag[2][0].isupper() or name == "tab"
        names = ("id", "name") if name in ("a", *_HEADINGS) else ("id",)
        self._ids += filter(None, map(values.get, names))
        if is_component or name in ("a", "area"):
            self._link(values.get("href") or values.get("to", ""), line)
        if name == "br":
            return "\n"
        if is_component:
            return "".join(f"{values[key]}\n" for key in ("title", "label") if values.get(key))
        return alt_text(values.get("alt", ""))

    def _html_block(self, content: str, depth: int) -> None:
        first = self._line
        content = _HIDDEN.sub(lambda hidden: "\n" * hidden[0].count("\n"), content)
        content = written_target(content) if "{" in content else content
        if (self.is_mdx or _HAS_MARKDOWN.search(content)) and depth < _MAX_DEPTH:
            text = _TAG.sub(lambda tag: self._tag(tag, first), content)
            self.read(text, first, depth + 1)
        elif content.startswith("<pre"):
            self.add_code(unescape(_TAG.sub("", content)), first)
        else:
            self._html(content, first)

    def _html(self, content: str, line: int) -> None:
        """Add the blocks of an HTML fragment."""
        parts = list[str]()  # text of the current block
        end = 0  # end of the previous tag
        for tag in _TAG.finditer(f"{content}<p>"):  # the added tag ends the last block
            parts.append(content[end : tag.start()])
            line += content.count("\n", end, tag.end())
            end = tag.end()
            name = tag[2].lower()
            if _BREAKS.fullmatch(name):
                text = " ".join(unescape("".join(parts)).split()).strip("| ")
                parts = []
                if name in _HEADINGS and tag[1] and text:
                    ids, links, self._ids, self.links = self._ids, self.links, [], []
                    self._open(text, name, self._line, ids, links)
                else:
                    self.add(text, self._line)
                self._line = line
            parts.append(self._tag(tag, line))
