"""A folder of documents as a data set folder: chunks with titles, their places, and the links between files."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from posixpath import normpath
from urllib.parse import unquote

from graphrerank.checks import check_counts
from graphrerank.data.documents.document import Document
from graphrerank.data.documents.formats import FORMATS, divide
from graphrerank.data.engines import LOCAL, Block, Engine
from graphrerank.files import atomic_folder, write_text

MAX_BYTES = 50_000_000  # of a file; larger ones are listed, not read
BLOCK_FILES = 1 << 8  # read and divided by a worker at once


@dataclass(frozen=True)
class IndexedFolder:
    """What was made.

    Attributes:
        folder: The data set folder.
        documents: How many there were.
        chunks: How many passages they make.
        links: Links between two of the documents: edges.
        unread: Files that were not read, by reason.
    """

    folder: Path
    documents: int
    chunks: int
    links: int
    unread: dict[str, int]

    def __str__(self) -> str:
        """Say what was made, and what was not read."""
        rows = [f"{self.documents:,} documents, {self.chunks:,} passages, {self.links:,} links: {self.folder}"]
        rows += [f"not read: {count:,} x {reason}" for reason, count in sorted(self.unread.items())]
        return "\n".join(rows)


@dataclass(frozen=True)
class _Chunk:
    id: str
    title: str
    text: str
    document: str
    number: int
    heading: str
    links: tuple[str, ...]


class ChunkFiles:
    """Reads files and divides them into passages, as the work of an engine.

    Args:
        source: The folder of documents, which all workers must see.
        max_words: Words of a passage, at most.
    """

    def __init__(self, source: Path, *, max_words: int) -> None:
        self.source = source
        self.max_words = max_words

    def __call__(self, block: Block) -> Block:
        """Return the passages of the files ``paths``, in JSON."""
        chunks = (
            chunk
            for name in block["paths"]
            for document in FORMATS[PurePosixPath(name).suffix.lower()](self.source / name, name)
            for chunk in _chunks(document, self.max_words)
        )
        return {"chunks": [json.dumps(asdict(chunk)) for chunk in chunks]}


def index_folder(source: str | Path, out: str | Path, *, max_words: int = 200, engine: Engine = LOCAL) -> IndexedFolder:
    """Write the documents of a folder as a data set folder.

    A passage's id is its document's path and number; its title is the document's, with the section's heading. Numbers
    join neighbouring passages (``data.adjacency=true``, ``data.edges=auto``); links between the files are edges of the
    type ``link``, from the passage that has the link to the first of the section that it names. Hidden files, links of
    the file system, and files of unknown formats are left out and counted.

    Args:
        source: The folder.
        out: The folder to write; must not exist.
        max_words: Words of a passage, at most.
        engine: Reads and divides the files; its workers must see ``source``.

    Raises:
        ValueError: If there is no such folder or nothing to read in it, ``out`` exists, or a file is not of its format.
        MissingExtraError: If there is a PDF file and no package to read it.
    """
    check_counts(max_words=max_words)
    source, out = Path(source), Path(out)
    if not source.is_dir():
        raise ValueError(f"`source` must be a folder of documents, got {source}")
    if out.exists():
        raise ValueError(f"`out` must not exist, got {out}; remove it, or name another folder")
    unread: Counter[str] = Counter()
    names = (path.relative_to(source).as_posix() for path in _files(source, out, unread))
    blocks: Iterator[Block] = ({"paths": block} for block in iter(lambda: list(islice(names, BLOCK_FILES)), []))
    done = engine.map(ChunkFiles(source.absolute(), max_words=max_words), blocks)
    chunks = [_parsed(str(chunk)) for block in done for chunk in block["chunks"]]
    if not chunks:
        raise ValueError(f"`source` must hold documents ({', '.join(sorted(FORMATS))}), found no text in {source}")
    edges = _edges(chunks)
    with atomic_folder(out) as temporary:
        write_text(temporary / "corpus.jsonl", "".join(f"{json.dumps(_row(c), ensure_ascii=False)}\n" for c in chunks))
        if edges:
            write_text(
                temporary / "edges.tsv", "".join(["source\ttarget\ttype\n", *(f"{i}\t{j}\tlink\n" for i, j in edges)])
            )
    return IndexedFolder(out, len({chunk.document for chunk in chunks}), len(chunks), len(edges), dict(unread))


def _files(source: Path, out: Path, unread: Counter[str]) -> Iterator[Path]:
    for folder, names, files in os.walk(source):
        names[:] = sorted(n for n in names if not n.startswith(".") and not (Path(folder) / n).is_symlink())
        for name in sorted(files):
            path = Path(folder) / name
            if name.startswith("."):
                unread["hidden"] += 1
            elif path.is_symlink():
                unread["a link of the file system"] += 1
            elif path.suffix.lower() not in FORMATS:
                unread[f"{path.suffix.lower() or 'no suffix'}: no known format"] += 1
            elif path.stat().st_size > MAX_BYTES:
                unread[f"larger than {MAX_BYTES // 1_000_000} MB"] += 1
            else:
                yield path


def _chunks(document: Document, max_words: int) -> Iterator[_Chunk]:
    number = 0
    for section in document.sections:
        title = " - ".join(dict.fromkeys(filter(None, (document.title, section.heading))))
        for place, text in enumerate(divide(section, max_words)):
            # a link that the text does not show, as in HTML, is the first passage's
            links = tuple(k for k in section.links if k in text or (place == 0 and k not in section.text))
            yield _Chunk(f"{document.name}:{number}", title, text, document.name, number, section.heading, links)
            number += 1


def _parsed(chunk: str) -> _Chunk:
    content = json.loads(chunk)
    return _Chunk(**(content | {"links": tuple(content["links"])}))


def _row(chunk: _Chunk) -> dict[str, object]:
    metadata = {"doc_id": chunk.document, "chunk_id": chunk.number, "heading": chunk.heading}
    return {"_id": chunk.id, "title": chunk.title, "text": chunk.text, "metadata": metadata}


def _edges(chunks: list[_Chunk]) -> list[tuple[str, str]]:
    first: dict[str, str] = {}
    of_section: dict[tuple[str, str], str] = {}
    for chunk in chunks:
        first.setdefault(chunk.document, chunk.id)
        of_section.setdefault((chunk.document, _anchor(chunk.heading)), chunk.id)
    found: dict[tuple[str, str], None] = {}
    for chunk in chunks:
        for link in chunk.links:
            path, _, anchor = unquote(link).partition("#")
            if "://" in path or path.startswith("/"):
                continue
            own = chunk.document
            document = normpath(str(PurePosixPath(own).parent / path)) if path else own
            target = of_section.get((document, _anchor(anchor)), first.get(document)) if anchor else first.get(document)
            if target is not None and target != chunk.id:
                found[chunk.id, target] = None
    return list(found)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-"))
