"""LaTeX by its commands of structure; the text of what stands between them by pylatexenc."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from graphrerank.data.documents.document import LABEL, MAX_NAME, MAX_TARGET, PATH, Block, Document, Link
from graphrerank.data.documents.formats.spans import Span, sections_of
from graphrerank.data.documents.formats.text import decode_text, without_blobs
from graphrerank.extras import optional

_MAX_ARGUMENT, _MAX_UNBALANCED = 1000, 1000  # characters of an argument in braces; arguments that have no end
_MAX_PARAGRAPH, _MAX_CONVERTED = (
    20_000,
    300_000,
)  # characters that pylatexenc reads: at once, of a file (11 s a million)
_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)%.*")
_SECTION = r"\\(?:part|chapter|(?:sub){0,2}section|(?:sub)?paragraph|frametitle)\*?\s*(?:\[[^\[\]]{0,500}\])?\s*(?=\{)"
_WHOLE = (
    "verbatim|Verbatim|lstlisting|minted|alltt|equation|align|gather|multline|eqnarray|displaymath|comment|tikzpicture"
)
_TOKEN = re.compile(
    rf"(?P<section>{_SECTION})|\\begin\{{(?P<whole>(?:{_WHOLE})\*?)\}}"
    r"|\\(?P<mark>begin|end)\{(?P<environment>[\w*]{1,50})\}(?P<options>(?:\[[^\[\]]{0,200}\])?)"
    r"|\\(?P<item>item)\b\s*(?:\[(?P<term>[^\[\]]{0,500})\])?"
    r"|\\label\{(?P<label>[^{}]{1,500})\}"
    r"|\\(?P<include>input|include|subfile)\{(?P<path>[^{}]{1,500})\}"
    r"|(?P<blank>\n[ \t]*\n\s*)"
)
_VERBATIM = re.compile(r"\\begin\{(verbatim|Verbatim|lstlisting|minted|alltt)\}")
_LINK = re.compile(
    r"\\(?P<name>[a-zA-Z]*ref|hyperlink|url|cite[a-z]*|nocite)\*?(?:\[(?P<option>[^\[\]]{0,500})\]){0,2}"
    r"\{(?P<target>[^{}]{0,2000})\}"
)
_COMMANDS = re.compile(r"\\(?:emph|text[a-z]{2}|underline|mbox|caption|footnote|title|text)\s*\{([^{}\\]{0,2000})\}")
_DROPPED = re.compile(r"\\(?:maketitle|tableofcontents|centering|noindent|\w+skip|newpage|clearpage|hline|hfill)\b")
_MATH = re.compile(r"(\$\$?[^$]{1,1000}\$\$?)")
_SIGNS = (("~", " "), ("``", "“"), ("''", "”"), ("---", "—"), ("--", "–"), ("\\ ", " "), ("\\\\", " "))  # noqa: RUF001
_SIGN = re.compile(r"\\([%&_#${}])")
_TITLE = re.compile(r"\\title\s*(?:\[[^\[\]]{0,500}\])?\s*(?=\{)")
_TABULAR = ("tabular", "tabularx", "longtable", "array", "tabular*")
_MARKS_OF_TABLE = re.compile(r"\\(?:hline|(?:top|mid|bottom)rule|endhead|cline\{[^{}]{0,50}\})")


def read_latex(content: bytes, name: str) -> list[Document]:
    """Read a file of LaTeX; nothing that it includes is opened."""
    text, dropped = without_blobs(decode_text(content))
    reader = _Reader(text)
    reader.read()
    sections = sections_of(reader.spans, max(text.rstrip().count("\n") + 1, 1))
    title = reader.title or next((section.heading for section in sections if section.heading), "")
    return [Document(name, title or PurePosixPath(name).stem, sections, dropped=dropped)]


def _without_comments(text: str) -> str:
    lines, whole = [], ""
    for line in text.split("\n"):
        found = _VERBATIM.search(line)
        whole = whole if whole else found[1] if found else ""
        lines.append(line if whole or "%" not in line else _COMMENT.sub(r"\1", line))
        whole = "" if whole and f"\\end{{{whole}}}" in line else whole
    return "\n".join(lines)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = _without_comments(text)
        self.converter = optional("pylatexenc.latex2text", "a LaTeX file").LatexNodes2Text(math_mode="verbatim")
        self.room, self.unbalanced = _MAX_CONVERTED, 0
        self.spans = [Span("", 1)]
        self.links: list[Link] = []  # of the heading
        self.at, self.number = 0, 1  # a place in the text, and its line
        self.mark, self.is_tight = "", False
        found = _TITLE.search(self.text)
        self.title = self.inline(self.argument(found.end())[0], 1)[0][:MAX_NAME] if found else ""

    def read(self) -> None:
        first = self.text.find("\\begin{document}")
        start = end = first + len("\\begin{document}") if first >= 0 else 0
        last = self.text.find("\\end{document}", start)
        last = last if last >= 0 else len(self.text)
        while (found := _TOKEN.search(self.text, end, last)) is not None:
            if found["label"]:
                self.spans[-1].labels.append(found["label"])
                self.spans[-1].anchors.append(found["label"])
                end = found.end()
                start = start if self.text[start : found.start()].strip() else end
                continue
            self.paragraph(start, found.start())
            start = end = self.token(found, last)
        self.paragraph(start, last)

    def token(self, found: re.Match[str], last: int) -> int:
        """Read a command of structure; return where the text goes on."""
        line = self.line(found.start())
        if found["section"]:
            heading, end = self.argument(found.end())
            self.open(heading, line)
            return end
        if found["whole"]:
            end = self.text.find(f"\\end{{{found['whole']}}}", found.end(), last)
            end = end if end >= 0 else last
            self.as_written(found["whole"], found.end(), end)
            return min(end + len(found["whole"]) + 6, last)
        if found["include"]:
            path = found["path"].strip()
            path = path if PurePosixPath(path).suffix else f"{path}.tex"
            self.add(path, line, [Link(path, line)])
        elif found["item"]:
            self.mark = f"{found['term']}: " if found["term"] else "- "
        elif found["environment"] == "abstract" and found["mark"] == "begin":
            self.open("Abstract", line)
        elif found["environment"] in _TABULAR and found["mark"] == "begin":
            end = self.text.find(f"\\end{{{found['environment']}}}", found.end(), last)
            return self.table(found.end(), end if end >= 0 else last)
        return found.end()

    def line(self, at: int) -> int:
        self.number += self.text.count("\n", self.at, at) if at >= self.at else -self.text.count("\n", at, self.at)
        self.at = at
        return self.number

    def argument(self, at: int) -> tuple[str, int]:
        """Return an argument in braces, and where it ends."""
        depth = 0
        if self.unbalanced > _MAX_UNBALANCED:
            return "", at
        for brace in re.finditer(r"\\.|[{}]", self.text[at : at + _MAX_ARGUMENT], re.DOTALL):
            depth += {"{": 1, "}": -1}.get(brace[0], 0)
            if not depth:
                return self.text[at + 1 : at + brace.start()], at + brace.end()
        self.unbalanced += 1
        return "", at

    def open(self, heading: str, line: int) -> None:
        text, links = self.inline(heading, line)
        self.links += links
        self.spans.append(Span(text[:MAX_NAME], line))

    def paragraph(self, start: int, end: int) -> None:
        text = self.text[start:end]
        if text.strip():
            line = self.line(start + len(text) - len(text.lstrip()))
            self.add(*self.converted(text.strip(), line))
        self.mark = self.mark if not text.strip() else ""

    def converted(self, text: str, line: int) -> tuple[str, int, list[Link]]:
        shown, links = self.inline(re.sub(r"\\label\{[^{}]{1,500}\}", "", text), line)
        return (f"{self.mark}{shown}" if shown else ""), line, links

    def add(self, text: str, line: int, links: list[Link], **options: Any) -> None:
        if text.strip():
            held = tuple(link for link in (*self.links, *links) if len(link.target) <= MAX_TARGET)
            is_tight = bool(self.mark and self.spans[-1].blocks and self.spans[-1].blocks[-1].text.startswith("- "))
            self.spans[-1].blocks.append(Block(text, line, held, **{"is_tight": is_tight, **options}))
            self.links = []

    def as_written(self, name: str, start: int, end: int) -> None:
        if name in ("comment", "tikzpicture"):
            return
        line, text = self.line(start), self.text[start:end]
        labels = re.findall(r"\\label\{([^{}]{1,500})\}", text) if name[0] in "eagmd" else []
        self.spans[-1].labels += labels
        self.spans[-1].anchors += labels
        self.add(re.sub(r"\\label\{[^{}]{1,500}\}", "", text).strip("\n").rstrip(), line, [], is_whole=True)

    def table(self, start: int, end: int) -> int:
        """Read the rows of a table, the first as its header if a line follows it."""
        columns = self.argument(start)[1] if self.text[start : start + 1] == "{" else start
        rows = list(self.rows(columns, end))
        has_header = len(rows) > 1 and rows[1][3]
        for i, (text, line, links, _) in enumerate(rows[has_header:]):
            self.add(text, line, links, is_whole=True, is_tight=i > 0, header=rows[0][0] if has_header else "")
        return end

    def rows(self, start: int, end: int) -> Iterator[tuple[str, int, list[Link], bool]]:
        for row in re.split(r"\\\\", self.text[start:end]):
            line, has_rule = self.line(start + len(row) - len(row.lstrip())), bool(_MARKS_OF_TABLE.match(row.strip()))
            start += len(row) + 2
            text, links = self.inline(re.sub(r"(?<!\\)&", " | ", _MARKS_OF_TABLE.sub("", row)), line)
            if text.strip(" |"):
                yield re.sub(r"\s*\|\s*", " | ", text).strip(), line, links, has_rule

    def inline(self, text: str, line: int) -> tuple[str, list[Link]]:
        """Return a paragraph without its commands, its formulas as they are written, and its links."""
        links: list[Link] = []
        at, parts = 0, []
        for found in _LINK.finditer(text):
            line += text.count("\n", at, found.start())
            parts += [text[at : found.start()], _shown(found, line, links)]
            at = found.end()
        text = "".join([*parts, text[at:]])
        if "\\" in text or "{" in text:
            text = _DROPPED.sub("", text)
            for _ in range(3):
                text = _COMMANDS.sub(r"\1", text)
        text = "".join(part if i % 2 else self.plain(part) for i, part in enumerate(_MATH.split(text)))
        return " ".join(text.split()), links

    def plain(self, text: str) -> str:
        if re.search(r"\\[^%&_#$\\ ]|\{", text) and len(text) <= min(_MAX_PARAGRAPH, self.room):
            self.room -= len(text) + 100  # a call takes time too
            try:
                return str(self.converter.latex_to_text(text))
            except Exception:  # of many kinds, for what is no LaTeX
                return text
        for sign, shown in _SIGNS:
            text = text.replace(sign, shown)
        return _SIGN.sub(r"\1", text)


def _shown(found: re.Match[str], line: int, links: list[Link]) -> str:
    """Return what is shown of a reference, its links noted."""
    name, target = found["name"], " ".join(found["target"].split())
    if "cite" in name:
        return "" if name == "nocite" else f"[{target}]"
    if name in ("href", "url"):
        links.append(Link(target.replace("\\", ""), line, PATH))
        return "" if name == "href" else target
    if name == "hyperref":
        links += [Link(found["option"], line, LABEL)] if found["option"] else []
        return target
    links += [Link(part.strip(), line, LABEL) for part in target.split(",") if part.strip()]
    return f"({target})" if name == "eqref" else target
