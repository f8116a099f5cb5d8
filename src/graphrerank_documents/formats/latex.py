"""Parse LaTeX: structural commands become sections and blocks; pylatexenc converts the text between them."""

import re
from bisect import bisect_left
from contextlib import suppress
from pathlib import PurePosixPath

from graphrerank.installation.extras import optional
from graphrerank_documents.document import LABEL, Document, Link
from graphrerank_documents.formats.lined_reader import LinedReader, Row, replaced

_MAX_CONVERTED = 20_000  # maximum number of characters of a paragraph that is converted
_VERBATIM = "verbatim|Verbatim|lstlisting|minted|alltt"
_WHOLE = rf"(?:{_VERBATIM}|equation|align|gather|multline|eqnarray|displaymath|comment|tikzpicture)\*?"
_BRACED = r"\{((?:\\.|[^{}\\]|\{(?:\\.|[^{}\\]|\{[^{}]{0,300}\}){0,500}\}){0,1000})\}"  # up to two nested groups
_OPTION = r"(?:\[[^\[\]]{0,500}\])?"
_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)%.*")
_LISTING = re.compile(rf"\\begin\{{({_VERBATIM})\}}")
_TITLE = re.compile(rf"\\title\s*{_OPTION}\s*{_BRACED}", re.DOTALL)
_LABEL = re.compile(r"\\label\{([^{}]{1,500})\}")
_TOKEN = re.compile(
    rf"\\(?:part|chapter|(?:sub){{0,2}}section|(?:sub)?paragraph|frametitle)\*?\s*{_OPTION}\s*(?P<section>{_BRACED})"
    rf"|\\begin\{{(?P<whole>{_WHOLE})\}}(?P<written>.*?)(?:\\end\{{(?P=whole)\}}|\Z)"
    rf"|\\begin\{{(?P<table>tabular[x*]?|longtable)\}}{_OPTION}(?:{_BRACED}){{0,2}}(?P<rows>.*?)"
    r"(?:\\end\{(?P=table)\}|\Z)"
    r"|\\begin\{(?P<abstract>abstract)\}"
    rf"|\\(?:begin|end)\{{[\w*]{{1,50}}\}}{_OPTION}"
    r"|\\(?P<item>item)\b\s*(?:\[(?P<term>[^\[\]]{0,500})\])?"
    r"|\\(?:input|include|subfile)\{(?P<path>[^{}]{1,500})\}"
    r"|\n[ \t]*\n\s*",
    re.DOTALL,
)
_LINK = re.compile(
    r"\\(?P<name>[a-zA-Z]*ref|hyperlink|url|cite[a-z]*|nocite)\*?(?:\[(?P<option>[^\[\]]{0,500})\]){0,2}"
    r"\{(?P<target>[^{}]{0,2000})\}"
)
_COMMANDS = re.compile(r"\\(?:maketitle|tableofcontents)\b|\\(?:caption|footnote|title)\s*\{([^{}\\]{0,2000})\}")
_RULES = re.compile(r"\\(?:hline|(?:top|mid|bottom)rule|endhead|cline\{[^{}]{0,50}\})")


def read_latex(content: bytes, name: str) -> list[Document]:
    """Parse a LaTeX file. Included files are not opened.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document with a section per sectioning command.

    Raises:
        UnreadableError: If ``content`` is binary or its encoding is unknown.
    """
    return _LaTeX(content, name).read()


def _without_comments(text: str) -> str:
    lines, listing = [], ""
    for line in text.split("\n"):
        listing = listing or (found[1] if (found := _LISTING.search(line)) else "")
        lines.append(line if listing else _COMMENT.sub(r"\1", line))
        listing = "" if f"\\end{{{listing}}}" in line else listing
    return "\n".join(lines)


class _LaTeX(LinedReader):
    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content, name)
        self.body = _without_comments(self.text)
        self.ends = [found.start() for found in re.finditer("\n", self.body)]
        self.converter = optional("pylatexenc.latex2text", "a LaTeX file").LatexNodes2Text(math_mode="verbatim")

    def read(self) -> list[Document]:
        """Parse the body of the document."""
        if title := _TITLE.search(self.body):
            self.title = self.inline(title[1], 1)[0]
        _, begin, rest = self.body.partition("\\begin{document}")
        start = len(self.body) - len(rest) if begin else 0
        end = self.body.find("\\end{document}", start) % (len(self.body) + 1)
        for found in _TOKEN.finditer(self.body, start, end):
            self.paragraph(start, found.start())
            self.token(found, self.line_of(found.start()))
            start = found.end()
        self.paragraph(start, end)
        return self.documents()

    def token(self, found: re.Match[str], line: int) -> None:
        """Parse a structural command."""
        if section := found["section"]:
            heading, links = self.inline(_LABEL.sub("", section[1:-1]), line)
            self.open(heading, line, links)
            self.labelled(section)
        elif found["whole"] in ("comment", "tikzpicture"):
            return
        elif found["whole"]:
            self.add(self.labelled(found["written"]).strip("\n").rstrip(), line, is_whole=True)
        elif found["table"]:
            self.rows(found["rows"], found.start("rows"))
        elif found["abstract"]:
            self.open("Abstract", line)
        elif path := (found["path"] or "").strip():
            path = path if PurePosixPath(path).suffix else f"{path}.tex"
            self.add(path, line, [Link(path, line)])
        elif found["item"]:
            self.mark = f"{found['term']}: " if found["term"] else "- "
            self.is_tight = any(block.text.startswith("- ") for block in self.spans[-1].blocks[-1:])

    def line_of(self, at: int) -> int:
        """Return the line of a character position in the text."""
        return bisect_left(self.ends, at) + 1

    def paragraph(self, start: int, end: int) -> None:
        """Add the text between two commands as a block."""
        text = self.labelled(self.body[start:end])
        line = self.line_of(start) + text[: len(text) - len(text.lstrip())].count("\n")
        shown, links = self.inline(text.strip(), line)
        self.add(shown, line, links)

    def labelled(self, text: str) -> str:
        """Add the labels in a text to the current section and return the text without them."""
        labels = _LABEL.findall(text)
        self.spans[-1].labels += labels
        self.spans[-1].anchors += labels
        return _LABEL.sub("", text)

    def rows(self, text: str, start: int) -> None:
        """Parse the rows of a table. The first row is a header if a horizontal rule follows it."""
        rows, has_header = list[Row](), False
        for row in text.split("\\\\"):
            line = self.line_of(start + len(row) - len(row.lstrip()))
            start += len(row) + 2
            shown, links = self.inline(re.sub(r"(?<!\\)&", " | ", _RULES.sub("", self.labelled(row))), line)
            if shown.strip(" |"):
                has_header |= len(rows) == 1 and bool(_RULES.match(row.strip()))
                rows.append((re.sub(r"\s*\|\s*", " | ", shown).strip(), line, links))
        self.table(rows, has_header)

    def inline(self, text: str, line: int) -> tuple[str, list[Link]]:
        """Return a paragraph without commands, and its links. Formulas are unchanged."""
        shown, links = replaced(_LINK, _shown, text, line)
        if re.search(r"[\\{}$~`'-]", shown) and len(shown) <= _MAX_CONVERTED:
            with suppress(Exception):  # pylatexenc raises many kinds of errors for invalid LaTeX
                shown = str(self.converter.latex_to_text(_COMMANDS.sub(r"\1", shown)))
        return " ".join(shown.split()), links


def _shown(found: re.Match[str], line: int, links: list[Link]) -> str:
    """Return the text of a reference and append its links."""
    name, target = found["name"], " ".join(found["target"].split())
    if "cite" in name:
        return "" if name == "nocite" else f"[{target}]"
    if name in ("href", "url"):
        links.append(Link(target.replace("\\", ""), line))
        return "" if name == "href" else target
    if name == "hyperref":
        links += [Link(found["option"], line, LABEL)] if found["option"] else []
        return target
    links += [Link(part.strip(), line, LABEL) for part in target.split(",") if part.strip()]
    return f"({target})" if name == "eqref" else target
