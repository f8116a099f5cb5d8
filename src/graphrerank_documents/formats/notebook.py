"""Parse Jupyter notebooks."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from graphrerank_documents.document import Document
from graphrerank_documents.formats.code import read_code
from graphrerank_documents.formats.front_matter import front_matter
from graphrerank_documents.formats.markdown import MarkdownReader
from graphrerank_documents.formats.note_markup import with_links
from graphrerank_documents.formats.text import decode_text, without_blobs

_MAX_OUTPUT = 500  # maximum number of characters of an output; longer ones are considered data and dropped
_OUTPUT = "output"
_CELL_MAGIC = re.compile(r"\s*%%(\w{1,50})")
_PYTHON_MAGICS = ("time", "timeit", "capture", "prun", "memit")  # commands of IPython for cells of Python
_COLOURS = re.compile(r"\x1b\[[\d;]{0,20}m")


def read_notebook(content: bytes, name: str) -> list[Document]:
    """Parse a notebook: its Markdown, code and raw cells, and short text outputs.

    Imports, calls and bases in cells of Python become links, as in a module. Line numbers are 0, because the lines of
    the file are lines of JSON.

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
    notebook = json.loads(decode_text(content))
    code = [""]  # lines of the Python cells, with empty lines in place of the others
    for number, (kind, source) in enumerate(_cells(notebook)):
        source, counts = without_blobs(source)
        dropped.update(counts)
        if not number and kind in ("markdown", "raw"):
            said = front_matter(source, name)
            source = source[said.length :]
        line = len(code)  # line in the text of all cells, to which the links of code are assigned
        if kind == "markdown":
            reader.read(source, line)
        elif kind in ("code", "raw", _OUTPUT):
            reader.add_code(source, line)
        elif kind == "heading":  # in notebooks before version 4
            reader.read(f"# {source}", line)
        code += _python_lines(source) if kind == "code" else [""] * (source.count("\n") + 1)
    document = reader.document(said)
    if _is_python(notebook):
        document = _with_code_links(document, "\n".join(code[1:]))
    sections = []
    for section in document.sections:
        blocks = (replace(b, line=0, links=tuple(replace(link, line=0) for link in b.links)) for b in section.blocks)
        sections.append(replace(section, line=0, end=0, blocks=tuple(blocks)))
    return [replace(document, sections=tuple(sections), dropped=dict(dropped))]


def _is_python(notebook: Mapping[str, Any]) -> bool:
    """Return whether the code of a notebook is Python, which is the default."""
    metadata = notebook.get("metadata")
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        settings = metadata.get(key) if isinstance(metadata, dict) else None
        if isinstance(settings, dict) and isinstance(language := settings.get(name), str):
            return "python" in language.lower()
    return True


def _python_lines(source: str) -> list[str]:
    r"""Return the lines of a code cell, with empty lines in place of commands of IPython and cells of other languages.

    Example:
        >>> _python_lines("%matplotlib inline\nimport pump\n!ls"), _python_lines("%%bash\nls")
        (['', 'import pump', ''], ['', ''])
    """
    lines = source.split("\n")
    if (magic := _CELL_MAGIC.match(source)) and magic[1] not in _PYTHON_MAGICS:
        return [""] * len(lines)
    return ["" if line.lstrip().startswith(("%", "!", "?")) or line.rstrip().endswith("?") else line for line in lines]


def _with_code_links(document: Document, code: str) -> Document:
    """Return a notebook with the links of its code in the blocks that contain their lines."""
    if not code.strip():
        return document
    (module,) = read_code(code.encode(), f"{document.name}.py")
    links = [link for section in module.sections for block in section.blocks for link in block.links]
    # names that the notebook defines itself have no section
    links = [link for link in links if not link.target.startswith("/")]
    return replace(with_links(document, links), imports=module.imports)


def _cells(notebook: Any) -> Iterator[tuple[str, str]]:
    """Yield the type and text of each cell and each short output. The notebook is not validated."""
    worksheets = notebook.get("worksheets", ())  # in notebooks before version 4
    cells = notebook["cells"] if not worksheets else [cell for sheet in worksheets for cell in sheet["cells"]]
    for cell in cells:
        yield str(cell["cell_type"]), _joined(cell["source"] if "source" in cell else cell.get("input", ""))
        for output in cell.get("outputs", ()):
            shown = _COLOURS.sub("", _joined(output.get("text", output.get("data", {}).get("text/plain", "")))).strip()
            if shown and len(shown) <= _MAX_OUTPUT and not shown.startswith("<"):
                yield _OUTPUT, shown


def _joined(text: object) -> str:
    return "".join(map(str, text)) if isinstance(text, list) else str(text)
