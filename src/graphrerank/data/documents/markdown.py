"""Markdown to documents: sections by headings, and links of all its kinds, those of wikis too."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from graphrerank.data.documents.document import Document, Link, Section, text_of

_HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_UNDERLINE = re.compile(r"^ {0,3}(={2,}|-{2,})\s*$")  # of a heading of the first or second level
_NO_HEADING = re.compile(r"^(\s{4}|\s*([-*+>|#=]|\d+[.)]\s))")
_CODE_OR_COMMENT = re.compile(r"(^\s*(```|~~~).*?(?:^\s*\2|\Z))|<!--.*?-->", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^\s*(`{3,}|~{3,})(.*)$")
_LABEL = r"\[(?P<label>[^\[\]]*)\]"
_INLINE = re.compile(rf"(?<!!){_LABEL}\(\s*(?:<(?P<pointed>[^<>\n]*)>|(?P<bare>[^)\s<>]+))")
_REFERENCE = re.compile(rf"(?<!!){_LABEL}(?:\[(?P<name>[^\[\]]*)\])?(?![(:\[])")
_DEFINITION = re.compile(r"^ {0,3}\[([^\[\]]+)\]:\s*(?:<([^<>]*)>|(\S+))", re.MULTILINE)
_WIKI = re.compile(r"\[\[([^\[\]|\n]+)(?:\|[^\[\]\n]*)?\]\]")
_KEY = re.compile(r"^([\w-]+)\s*:\s*(.*)$")


def read_markdown(path: Path, name: str) -> list[Document]:
    """Read a document whose sections are its headings'; lines of code are no headings.

    Of YAML before the text only a title is read; comments are left out.
    """
    matter, text = _front_matter(text_of(path))
    lines = _CODE_OR_COMMENT.sub(lambda found: found[1] or "", text).split("\n")
    sections: list[tuple[str, list[str]]] = [("", [])]
    title, fence = "", ""
    for line in lines:
        if (mark := _FENCE.match(line)) and (not fence or (mark[1].startswith(fence) and not mark[2].strip())):
            fence = "" if fence else mark[1]
        rows = sections[-1][1]
        if not fence and (found := _HEADING.match(line)):
            title = title or (_plain(found[2]) if len(found[1]) == 1 else "")
            sections.append((found[2], []))
        elif not fence and (found := _UNDERLINE.match(line)) and _is_heading(rows):
            heading = rows.pop().strip()
            title = title or (_plain(heading) if found[1].startswith("=") else "")
            sections.append((heading, []))
        else:
            rows.append(line)
    targets = {
        _label(found[1]): found[2] or found[3] or "" for found in _DEFINITION.finditer("\n".join(lines))
    }  # of the whole document
    parts = tuple(_section(heading, rows, targets) for heading, rows in sections)
    return [Document(name, matter.get("title") or title or path.stem, parts)]


def _front_matter(text: str) -> tuple[dict[str, str], str]:
    """Return the plain settings of a block of YAML that opens a page, and the text after it."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---" or len(lines) < 2 or not _KEY.match(lines[1]):
        return {}, text
    end = next((place for place, line in enumerate(lines) if place and line.rstrip() in ("---", "...")), None)
    if end is None:
        return {}, text
    found = [key for line in lines[1:end] if (key := _KEY.match(line))]
    return {key[1].lower(): key[2].strip().strip("\"'") for key in found}, "\n".join(lines[end + 1 :])


def _is_heading(rows: Sequence[str]) -> bool:
    """Return whether the last line stands alone above an underline, and is a paragraph's."""
    alone = bool(rows) and bool(rows[-1].strip()) and (len(rows) == 1 or not rows[-2].strip())
    return alone and _NO_HEADING.match(rows[-1]) is None


def _section(heading: str, lines: Sequence[str], targets: dict[str, str]) -> Section:
    text = "\n".join(lines).strip()
    links = [(0, target) for _, target in _links(heading, targets)] + list(_links(text, targets))
    return Section(_plain(heading), text, tuple(links))


def _links(text: str, targets: dict[str, str]) -> Iterator[Link]:
    """List places and targets: ``[label](target)``, ``[label][name]``, ``[name]`` and ``[[page]]``."""
    found = [(link.start(), link["pointed"] or link["bare"] or "") for link in _INLINE.finditer(text)]
    found += [(link.start(), f"[[{link[1].strip()}]]") for link in _WIKI.finditer(text)]
    if targets:
        named = ((link.start(), _label(link["name"] or link["label"])) for link in _REFERENCE.finditer(text))
        found += [(place, targets[label]) for place, label in named if label in targets]
    yield from sorted(link for link in found if link[1])


def _plain(heading: str) -> str:
    """Return a heading as it is shown: labels of links without their targets, and no marks of code."""
    shown = _WIKI.sub(lambda link: link[0][2:-2].rsplit("|", 1)[-1], heading)
    return re.sub(r"\[([^\[\]]*)\]\([^)]*\)", r"\1", shown).replace("`", "").strip()


def _label(name: str) -> str:
    return " ".join(name.split()).lower()
