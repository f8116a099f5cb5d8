"""Parse LaTeX: structural commands become sections and blocks; pylatexenc converts the text between them."""

import re
from bisect import bisect_left
from dataclasses import replace
from functools import cache
from pathlib import PurePosixPath

from graphrerank.installation.extras import optional
from graphrerank_documents.deferred_names import MACRO, definition_of, mark
from graphrerank_documents.document import LABEL, Document, Link
from graphrerank_documents.formats.alt_text import alt_text
from graphrerank_documents.formats.bibtex import citation
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
    r"\\(?P<name>[a-zA-Z]*ref|hyperlink|url|[a-zA-Z]*cite[a-zA-Z]*)\*?(?:\[(?P<option>[^\[\]]{0,500})\]){0,2}"
    r"\{(?P<target>[^{}]{0,2000})\}"
)
_GRAPHICS = re.compile(r"\\includegraphics\*?\s{0,9}(?:\[([^\[\]]{0,1000})\])?\s{0,9}\{[^{}]{0,500}\}")
_ALT = re.compile(r"(?:^|,)\s{0,9}alt\s{0,9}=\s{0,9}(?:\{([^{}]{0,1000})\}|([^,{}]{0,1000}))")
_COMMANDS = re.compile(r"\\(?:maketitle|tableofcontents)\b|\\(?:caption|footnote|title)\s*\{([^{}\\]{0,2000})\}")
_DEFINITION = re.compile(
    r"\\(?:(?:re)?newcommand|providecommand|DeclareRobustCommand)\*?\s{0,9}"
    r"(?:\{\s{0,9}\\(?P<braced>[a-zA-Z@]{1,100})\s{0,9}\}|\\(?P<bare>[a-zA-Z@]{1,100}))\s{0,9}"
    r"(?:\[(?P<count>\d)\])?\s{0,9}(?:\[(?P<default>[^\[\]]{0,200})\])?\s{0,9}(?=\{)"
    r"|\\[gex]?def\s{0,9}\\(?P<def>[a-zA-Z@]{1,100})(?P<params>(?:#\d){0,9})\s{0,9}(?=\{)"
)
_IMPORT = re.compile(r"\\(?:sub)?(?:import|includefrom|inputfrom)\*?\{([^{}\n]{1,300})\}\{([^{}\n]{1,300})\}")
_INCLUDE = re.compile(r"\\(?:input|include|subfile|usepackage)\{([^{}\n]{1,500})\}")
_MACRO = re.compile(
    r"\$\$.{0,2000}?\$\$|\$[^$]{0,2000}\$|\\\(.{0,2000}?\\\)|\\\[.{0,2000}?\\\]"
    r"|\\(?P<name>[a-zA-Z@]{1,100})\*?|\\.",
    re.DOTALL,
)
_ARGUMENT_OPTION = re.compile(r"\[[^\[\]]{0,200}\](?=\{)")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_MAX_BODY = 2000  # maximum number of characters of a definition and of an argument
_MAX_ARGUMENTS, _MAX_DEPTH = 9, 4
# Commands without text that pylatexenc does not know.
_SILENT = (
    "noindent indent centering raggedright raggedleft hfill vfill newpage clearpage cleardoublepage pagebreak "
    "linebreak nolinebreak nopagebreak newline small footnotesize scriptsize tiny normalsize large Large LARGE huge "
    "Huge bfseries itshape scshape ttfamily sffamily rmfamily mdseries upshape slshape normalfont bf it sc tt sf rm "
    "sl em par smallskip medskip bigskip protect maketitle tableofcontents listoffigures listoftables appendix "
    "xspace null frontmatter mainmatter backmatter printbibliography bibliographystyle bibliography linewidth "
    "textwidth columnwidth baselineskip parindent parskip hline toprule midrule bottomrule cline cmidrule endhead "
    "endfirsthead endfoot makeatletter makeatother documentstyle pagestyle thispagestyle pagenumbering onecolumn "
    "twocolumn sloppy fussy displaystyle textstyle left right big Big begingroup endgroup relax ignorespaces unskip "
    "leavevmode allowbreak setlength setcounter addtocounter addtolength vspace hspace usepackage RequirePackage "
    "documentclass input include subfile graphicspath includegraphics label ref pageref eqref cite citep citet "
    "nocite and thanks def edef gdef let newcommand renewcommand providecommand newenvironment renewenvironment "
    "newtheorem DeclareMathOperator begin end item caption footnote title author date section subsection "
    "subsubsection chapter part paragraph subparagraph multicolumn multirow rule color textcolor phantom vphantom "
    "hphantom"
)
#: Reason in the report for a file with paragraphs whose commands cannot be converted to text.
NOT_CONVERTED = "read, but some paragraphs keep their LaTeX commands, because they are not valid LaTeX"
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


@cache
def _known_macros() -> frozenset[str]:
    """Return the names of the commands that the converter handles, or that have no text."""
    latex2text, latexwalker = (
        optional(f"pylatexenc.{module}", "a LaTeX file").get_default_latex_context_db()
        for module in ("latex2text", "latexwalker")
    )
    names = (db.d[category]["macros"] for db in (latex2text, latexwalker) for category in db.category_list)
    return frozenset().union(*names, _SILENT.split())


def _closing(text: str, start: int) -> int:
    """Return the position after the brace that closes the one at ``start``, or -1 if it is too far away."""
    depth = 0
    for found in _BRACE.finditer(text, start, start + _MAX_BODY):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if depth == 0:
            return found.end()
    return -1


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
        self.damage: tuple[str, ...] = ()
        self.definitions: dict[str, tuple[str, int]] = {}  # body and number of parameters of the file's macros
        body = _IMPORT.sub(
            lambda found: rf"\input{{{found[1].strip()}{found[2].strip()}}}", _without_comments(self.text)
        )
        self.body = self.defined(body)
        self.ends = [found.start() for found in re.finditer("\n", self.body)]
        self.converter = optional("pylatexenc.latex2text", "a LaTeX file").LatexNodes2Text(math_mode="verbatim")
        self.known = _known_macros() - self.definitions.keys()

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
        names = {
            f"{MACRO}{name}": definition_of(self.inline(body, 1)[0], count)
            for name, (body, count) in self.definitions.items()
        }
        includes = (found[1].strip() for found in _INCLUDE.finditer(self.body))
        paths = dict.fromkeys(path if PurePosixPath(path).suffix else f"{path}.tex" for path in includes)
        (document,) = self.documents()
        return [replace(document, names=names, includes=tuple(paths), damage=self.damage)]

    def defined(self, text: str) -> str:
        """Store the definitions of macros and return the text without them. The number of lines is unchanged."""
        parts, place = list[str](), 0
        for found in _DEFINITION.finditer(text):
            if found.start() < place or (end := _closing(text, found.end())) < 0:
                continue
            body = text[found.end() + 1 : end - 1]
            if (default := found["default"]) is not None:  # the first parameter is optional, and rarely given
                body = re.sub(r"#([1-9])", lambda each: default if each[1] == "1" else f"#{int(each[1]) - 1}", body)
            count = (
                int(found["count"] or 0) - (default is not None) if found["def"] is None else len(found["params"]) // 2
            )
            self.definitions.setdefault(found["braced"] or found["bare"] or found["def"], (body, max(0, count)))
            parts += [text[place : found.start()], "\n" * text.count("\n", found.start(), end)]
            place = end
        return "".join([*parts, text[place:]])

    def marked(self, text: str, depth: int = 0) -> str:
        """Replace macros that are defined in the folder or unknown by marks. Formulas are unchanged."""
        parts, place = list[str](), 0
        for found in _MACRO.finditer(text) if "\\" in text else ():
            name = found["name"]
            if not name or name in self.known or found.start() < place:
                continue
            arguments, end = list[str](), found.end()
            while len(arguments) < _MAX_ARGUMENTS:
                end = option.end() if (option := _ARGUMENT_OPTION.match(text, end)) else end
                if (close := _closing(text, end) if text[end : end + 1] == "{" else -1) < 0:
                    break
                inner = text[end + 1 : close - 1]
                arguments.append(self.marked(inner, depth + 1) if depth < _MAX_DEPTH else inner)
                end = close
            parts += [text[place : found.start()], mark(f"{MACRO}{name}", arguments)]
            place = end
        return "".join([*parts, text[place:]])

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
                rows.append(Row(re.sub(r"\s*\|\s*", " | ", shown).strip(), line, links))
        self.table(rows, has_header)

    def inline(self, text: str, line: int) -> tuple[str, list[Link]]:
        """Return a paragraph without commands, and its links. Formulas are unchanged."""
        shown, links = replaced(_LINK, _shown, _GRAPHICS.sub(_image, text) if "graphics" in text else text, line)
        shown = self.marked(shown) if len(shown) <= _MAX_CONVERTED else shown
        if re.search(r"[\\{}$~`'-]", shown) and len(shown) <= _MAX_CONVERTED:
            try:
                shown = str(self.converter.latex_to_text(_COMMANDS.sub(r"\1", shown)))
            except Exception:  # pylatexenc raises many kinds of errors for invalid LaTeX
                self.damage = (NOT_CONVERTED,)
        return " ".join(shown.split()), links


def _image(found: re.Match[str]) -> str:
    """Return the alternative text of an image, in place of its file."""
    named = _ALT.search(found[1] or "")
    return f" {alt_text(named[1] or named[2])} " if named else ""


def _shown(found: re.Match[str], line: int, links: list[Link]) -> str:
    """Return the text of a reference and record its links."""
    name, target = found["name"], " ".join(found["target"].split())
    if "cite" in name.lower():
        links += [citation(part.strip(), line) for part in target.split(",") if part.strip(" *")]
        return "" if name == "nocite" else f"[{target}]"
    if name in ("href", "url"):
        links.append(Link(target.replace("\\", ""), line))
        return "" if name == "href" else target
    if name == "hyperref":
        links += [Link(found["option"], line, LABEL)] if found["option"] else []
        return target
    links += [Link(part.strip(), line, LABEL) for part in target.split(",") if part.strip()]
    return f"({target})" if name == "eqref" else target
