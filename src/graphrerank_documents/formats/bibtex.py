"""Parse BibTeX files. Each entry is a document, to which citations of its key lead."""

import re

from graphrerank_documents.document import MAX_NAME, Block, Document, Link, Section, UnreadableError
from graphrerank_documents.formats.text import decode_text, without_blobs

#: Start of the labels of entries, and the type of the links that cite them.
CITE = "cite"
_ENTRY = re.compile(r"^[ \t]*@([a-zA-Z]{1,50})\s{0,9}[{(]\s{0,9}([^\s,{}()\"=]{1,300})\s{0,9},", re.MULTILINE)
_FIELD = re.compile(r"([a-zA-Z][\w-]{0,50})\s{0,9}=\s{0,9}")
_SILENT = ("comment", "string", "preamble")
_LINKS = ("url", "doi", "eprint")
_MAX_FIELDS, _MAX_VALUE = 200, 20_000
_COMMAND = re.compile(r"\\[a-zA-Z]+\s?|\\(.)|[{}$]")


def citation(key: str, line: int = 0) -> Link:
    """Return the link to the entry of a bibliography.

    Args:
        key: Key of the entry.
        line: Line of the citation, 1-based, or 0 if the format has no lines.
    """
    return Link(f"{CITE}:{key}"[:MAX_NAME], line, "label", CITE)


def read_bibtex(content: bytes, name: str) -> list[Document]:
    """Parse a bibliography. Comments and abbreviations are left out.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document per entry. Its text has all fields.

    Raises:
        UnreadableError: If ``content`` is binary, its encoding is unknown or it has no entry.
    """
    text, dropped = without_blobs(decode_text(content))
    entries = [found for found in _ENTRY.finditer(text) if found[1].lower() not in _SILENT]
    if not entries:
        raise UnreadableError("no entry of a bibliography")
    documents: dict[str, Document] = {}
    ends = [*(found.start() for found in entries[1:]), len(text)]
    line, counted = 1, 0
    for found, end in zip(entries, ends, strict=True):
        line += text.count("\n", counted, found.start())
        counted = found.start()
        own = f"{name}#{found[2]}"
        if own in documents:
            continue
        fields = _fields(text[found.end() : end])
        title = fields.pop("title", "")[:MAX_NAME]
        rows = [f"{key}: {value}" for key, value in fields.items() if value]
        links = tuple(
            Link(value, line) for key in _LINKS if "://" in (value := fields.get(key, "")) and " " not in value
        )
        blocks = (Block("\n".join([title] * bool(title) + rows) or found[2], line, links),)
        labels = (f"{CITE}:{found[2]}",)
        section = Section("", blocks, line, line + text.count("\n", found.start(), end), labels=labels)
        documents[own] = Document(own, title or found[2], (section,))
    first, *others = documents.values()
    return [Document(first.name, first.title, first.sections, dropped=dropped), *others]


def _fields(text: str) -> dict[str, str]:
    """Return the fields of an entry as plain text."""
    fields: dict[str, str] = {}
    place = 0
    while len(fields) < _MAX_FIELDS and (found := _FIELD.search(text, place)):
        end = _end_of_value(text, found.end())
        value = _COMMAND.sub(lambda sign: sign[1] or "", text[found.end() : end])
        fields.setdefault(found[1].lower(), " ".join(value.strip("\"' \t\n,#").split()))
        place = max(end, found.end() + 1)
    return fields


def _end_of_value(text: str, start: int) -> int:
    """Return the end of a value: the comma, brace or end of the text outside braces and quotation marks."""
    depth, is_quoted = 0, False
    for place in range(start, min(len(text), start + _MAX_VALUE)):
        sign = text[place]
        if sign == "{":
            depth += 1
        elif sign == "}":
            depth -= 1
            if depth < 0:
                return place
        elif sign == '"' and not depth:
            is_quoted = not is_quoted
        elif sign == "," and not depth and not is_quoted:
            return place
    return min(len(text), start + _MAX_VALUE)
