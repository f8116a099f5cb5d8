"""Parse single-file components of Vue, Svelte and Astro: their scripts as code, the rest as text."""

import re
from pathlib import PurePosixPath

from graphrerank_documents.document import Document, Section
from graphrerank_documents.formats.code import read_code
from graphrerank_documents.formats.text import code_block, decode_text, without_blobs

_SCRIPT = re.compile(r"<script\b[^<>]{0,500}>(.*?)</script\s{0,9}>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"\s*---[ \t]*\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)  # script of an Astro component


def read_component(content: bytes, name: str) -> list[Document]:
    """Parse a component. Imports and calls of its scripts become links.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document with the sections of the scripts, and a section ``template`` with the remaining text.
    """
    text, dropped = without_blobs(decode_text(content))
    found_scripts = list(_SCRIPT.finditer(text))
    scripts, elements = ([found.span(group) for found in found_scripts] for group in (1, 0))
    if name.lower().endswith(".astro") and (fence := _FENCE.match(text)):
        scripts, elements = [fence.span(1), *scripts], [fence.span(0), *elements]
    (code,) = read_code(_only(text, scripts).encode(), f"{name}.ts")
    sections = [section for section in code.sections if section.blocks]
    rest, place = list[str](), 0
    for start, end in elements:
        rest += [text[place:start], "\n" * text.count("\n", start, end)]
        place = end
    blocks = tuple(code_block("".join([*rest, text[place:]]), 1))
    if blocks:
        sections.append(Section("template" if sections else "", blocks, blocks[0].line, text.count("\n") + 1))
    dropped = {**code.dropped, **dropped}
    return [Document(name, PurePosixPath(name).name, tuple(sections), imports=code.imports, dropped=dropped)]


def _only(text: str, spans: list[tuple[int, int]]) -> str:
    """Return the parts of a text, with line breaks in place of the others, so that line numbers are unchanged."""
    parts, place = list[str](), 0
    for start, end in spans:
        parts += ["\n" * text.count("\n", place, start), text[start:end]]
        place = end
    return "".join(parts)
