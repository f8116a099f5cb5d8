"""Parse Jupyter notebooks."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from graphrerank_documents.document import Document
from graphrerank_documents.formats.front_matter import front_matter
from graphrerank_documents.formats.markdown import MarkdownReader
from graphrerank_documents.formats.text import decode_text, without_blobs

_MAX_OUTPUT = 500  # maximum number of characters of an output; longer ones are considered data and dropped
_COLOURS = re.compile(r"\x1b\[[\d;]{0,20}m")


def read_notebook(content: bytes, name: str) -> list[Document]:
    """Parse a notebook: its Markdown, code and raw cells, and short text outputs.

    Line numbers are 0, because the lines of the file are lines of JSON.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document with a section per heading.

    Raises:
        UnreadableError: If ``content`` is binary or its encoding is unknown.
        ValueError: If ``content`` is not JSON.
        KeyError: If ``content`` is not a notebook.
    """
    reader, dropped, said = MarkdownReader(b"", name), Counter[str](), front_matter("", name)
    for number, (kind, source) in enumerate(_cells(decode_text(content))):
        source, counts = without_blobs(source)
        dropped.update(counts)
        if not number and kind in ("markdown", "raw"):
            said = front_matter(source, name)
            source = source[said.length :]
        if kind == "markdown":
            reader.read(source)
        elif kind in ("code", "raw"):
            reader.add_code(source)
        elif kind == "heading":  # in notebooks before version 4
            reader.read(f"# {source}")
    document = reader.document(said)
    sections = []
    for section in document.sections:
        blocks = (replace(b, line=0, links=tuple(replace(link, line=0) for link in b.links)) for b in section.blocks)
        sections.append(replace(section, line=0, end=0, blocks=tuple(blocks)))
    return [replace(document, sections=tuple(sections), dropped=dict(dropped))]


def _cells(text: str) -> Iterator[tuple[str, str]]:
    """Yield the type and text of each cell and each short output. The notebook is not validated."""
    notebook = json.loads(text)
    worksheets = notebook.get("worksheets", ())  # in notebooks before version 4
    cells = notebook["cells"] if not worksheets else [cell for sheet in worksheets for cell in sheet["cells"]]
    for cell in cells:
        yield str(cell["cell_type"]), _joined(cell["source"] if "source" in cell else cell.get("input", ""))
        for output in cell.get("outputs", ()):
            shown = _COLOURS.sub("", _joined(output.get("text", output.get("data", {}).get("text/plain", "")))).strip()
            if shown and len(shown) <= _MAX_OUTPUT and not shown.startswith("<"):
                yield "code", shown


def _joined(text: object) -> str:
    return "".join(map(str, text)) if isinstance(text, list) else str(text)
