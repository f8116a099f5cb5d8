"""Markup of notes and pages that Markdown does not know: includes of other files, and blocks and names of Logseq."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from itertools import islice
from pathlib import PurePosixPath
from urllib.parse import unquote

from graphrerank_documents.document import LABEL, MAX_NAME, MAX_TARGET, TAG, Block, Document, Link, Section
from graphrerank_documents.formats.markdown_syntax import FENCED

_ID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_BLOCK = re.compile(rf"^[ \t]*(?:[-*] )?[ \t]*id:: ({_ID})[ \t]*$", re.MULTILINE)
_REFERENCE = re.compile(rf"\(\(({_ID})\)\)")
_NAMES = re.compile(r"^[ \t]*(?:[-*] )?(alias|title):: ?(.{1,1000})$", re.MULTILINE)
_HEAD = 2000  # number of characters in which the names of a page are searched for
_INCLUDE = re.compile(
    r"\{\{#(?:rustdoc_)?include\s{1,9}(?P<book>[^\s{}:]{1,500})"  # mdBook
    r"|^[ \t]*(?:;?-{1,20}8<-{1,20})[ \t]+\"(?P<snippet>[^\"\n:]{1,500})"  # PyMdown Extensions
    r"|\{\{<[ \t]*include[ \t]+(?P<quarto>[^\s<>{}]{1,500})"
    r"|\{%-?[ \t]*include-markdown[ \t]+[\"'](?P<plugin>[^\"'\n]{1,500})"
    r"|<!--[ \t]*@include:[ \t]*(?P<vite>[^\s<>]{1,500}?)(?:\{[^{}\s]{0,50}\})?[ \t]*-->",
    re.MULTILINE,
)
_JOURNAL = re.compile(r"(?:^|/)journals/(\d{4})[_-](\d\d)[_-](\d\d)\Z")
_PAGES = re.compile(r"(?:^|/)(?:pages|journals)/[^/]+\.(?:md|markdown)\Z")  # folders of Logseq
_TAG = re.compile(
    rf"{FENCED}|(?:^|(?<=[\s(]))#(?P<tag>[^\s#,;:!?.'\"()\[\]{{}}|`]{{1,200}})"
    r"|^[ \t]*(?:[-*] )?tags:: (?P<names>[^\n]{1,1000})$",
    re.MULTILINE | re.DOTALL,
)
_KINDS = "sec|fig|tbl|tab|eq|lst|thm|lem|cor|prp|cnj|def|exm|exr|sol|rem|suppfig|nte|tip|wrn|imp|cau"
_CELL_LABEL = re.compile(rf"^[ \t]*#\|[ \t]*label:[ \t]*[\"']?((?:{_KINDS})-[\w-]{{1,200}})", re.MULTILINE)
_CHUNK_LABEL = re.compile(
    r"[ \t]*`{3,}\{\w{1,20}[ ,]{1,9}([\w.-]{1,200})[ \t]{0,9}[,}]"
)  # as in ```{r plot, echo=FALSE}
_CROSS_REFERENCE = re.compile(  # of Quarto and bookdown
    rf"{FENCED}|\{{#(?P<label>[\w:.-]{{1,200}})"
    rf"|(?<![\w\\])@(?P<name>(?:{_KINDS})-[\w-]{{1,200}})|\\@ref\((?P<bookdown>[\w:-]{{1,200}})\)",
    re.MULTILINE | re.DOTALL | re.IGNORECASE,
)
_MAX_MATCHES = 10_000  # maximum number of includes, references and block ids of a page


def with_note_markup(document: Document, text: str) -> Document:
    """Return a page with the links of its includes and block references, and with the names and ids of Logseq.

    Args:
        document: Document of the page.
        text: Text of the file, which determines the lines of the links.
    """
    links: list[Link] = []
    labels: list[Link] = []
    if "{{" in text or "8<-" in text or "{%" in text or "@include" in text:
        for found, line in _matches(_INCLUDE, text):
            path = next(filter(None, found.groups()))
            target = f"/{path}" if found["snippet"] and path[0] not in "./" else path
            links.append(Link(target, line))
    if "((" in text:
        links += [Link(found[1].lower(), line, LABEL) for found, line in _matches(_REFERENCE, text)]
    if "id:: " in text:
        labels = [Link(found[1].lower(), line) for found, line in _matches(_BLOCK, text)]
    if document.name.lower().endswith((".qmd", ".rmd")):
        references, labels_of_quarto = _cross_references(text)
        links += references
        labels += labels_of_quarto
    if _PAGES.search(document.name):
        links += _tags(text)
    names = {kind: value.strip() for kind, value in _NAMES.findall(text[:_HEAD])} if ":: " in text[:_HEAD] else {}
    names_of_file = _file_names(document.name)
    aliases = [each.strip().strip("[]#") for each in names.get("alias", "").split(",")] + names_of_file
    if title := names.get("title", ""):
        document = replace(document, title=title[:MAX_NAME])
    if aliases := [each for each in aliases if 0 < len(each) <= MAX_TARGET]:
        document = replace(document, aliases=tuple(dict.fromkeys((*document.aliases, *aliases))))
    return with_links(document, links, labels) if links or labels else document


def _cross_references(text: str) -> tuple[list[Link], list[Link]]:
    """Return the cross references of a page of Quarto or bookdown, and the labels that it defines, with their lines."""
    references, labels = list[Link](), list[Link]()
    for found, line in _matches(_CROSS_REFERENCE, text):
        if found["fence"]:
            cell, chunk = _CELL_LABEL.search(found[0]), _CHUNK_LABEL.match(found[0])
            names = [cell[1]] if cell else [f"{kind}{chunk[1]}" for kind in ("", "fig:", "tab:")] if chunk else []
            labels += [Link(name, line) for name in names]
        elif label := found["label"]:
            labels.append(Link(label, line))
        elif name := found["name"] or found["bookdown"]:
            references.append(Link(name, line, LABEL))
    return references, labels


def _tags(text: str) -> list[Link]:
    """Return the tags of a page of Logseq, each of which is the name of a page."""
    links = []
    for found, line in _matches(_TAG, text) if "#" in text or "tags:: " in text else ():
        names = found["names"].split(",") if found["names"] else [found["tag"] or ""]
        links += [Link(name, line, TAG) for each in names if (name := each.strip().strip("#")) and "[[" not in name]
    return links


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Yield the first matches of a pattern with the lines of their ends, 1-based."""
    line, counted = 1, 0
    for found in islice(pattern.finditer(text), _MAX_MATCHES):
        line += text.count("\n", counted, found.end())
        counted = found.end()
        yield found, line


def _file_names(name: str) -> list[str]:
    """Return the names of a page of Logseq that its file name encodes, such as ``a/b`` and dates of journals."""
    stem = PurePosixPath(name).stem
    names = [stem.replace("___", "/")] * ("___" in stem) + [unquote(stem)] * bool(re.search(r"%[0-9A-F]{2}", stem))
    if found := _JOURNAL.search(str(PurePosixPath(name).with_suffix(""))):
        try:
            day = date(*map(int, found.groups()))
        except ValueError:
            return names
        ordinal = {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10 if day.day not in (11, 12, 13) else 0, "th")
        names += [f"{day:%b} {day.day}{ordinal}, {day.year}", f"{day:%B} {day.day}{ordinal}, {day.year}"]
        names += [f"{day:%Y-%m-%d}", f"{day:%d-%m-%Y}", f"{day:%Y/%m/%d}"]
    return names


def with_links(document: Document, links: Sequence[Link], labels: Sequence[Link] = ()) -> Document:
    """Return a document with links in the blocks, and labels of the sections, that contain their lines.

    Args:
        document: Document to which the links are added.
        links: Links with their lines. If the document has no blocks, it gets one with their targets.
        labels: Labels of sections, as links with their lines.
    """
    blocks = [
        (number, place, block)
        for number, section in enumerate(document.sections)
        for place, block in enumerate(section.blocks)
    ]
    if not blocks:
        if not links:
            return document
        text = "\n".join(link.target for link in links)
        return replace(document, sections=(Section("", (Block(text, links[0].line, tuple(links)),), 1),))
    starts = [block.line for _, _, block in blocks]
    added: dict[tuple[int, int], list[Link]] = {}
    for link in links:
        number, place, _ = blocks[max(0, bisect_right(starts, link.line) - 1)]
        added.setdefault((number, place), []).append(link)
    names: dict[int, list[str]] = {}
    for label in labels:
        number, *_ = blocks[max(0, bisect_right(starts, label.line) - 1)]
        names.setdefault(number, []).append(label.target)
    sections = []
    for number, section in enumerate(document.sections):
        own = tuple(
            replace(block, links=(*block.links, *added[number, place])) if (number, place) in added else block
            for place, block in enumerate(section.blocks)
        )
        sections.append(replace(section, blocks=own, labels=(*section.labels, *names.get(number, ()))))
    return replace(document, sections=tuple(sections))
