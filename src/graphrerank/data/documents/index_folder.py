"""A folder of documents as a data set folder: chunks with titles, their places, and the links between files."""

import json
import os
import re
import shutil
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from glob import escape
from itertools import islice
from pathlib import Path, PurePosixPath
from posixpath import dirname, join, normpath, splitext
from urllib.parse import unquote

from graphrerank.checks import UserError, check_counts
from graphrerank.data.documents.old_formats import (
    FORMATS,
    MAX_NAME,
    MAX_TARGET,
    Chunk,
    Document,
    UnreadableError,
    divide,
)
from graphrerank.data.engines.local import LOCAL, Block, Engine
from graphrerank.files import FolderInUseError, atomic_folder, sole_use, write_json_lines, write_text
from graphrerank.text.characters import whole_characters

MAX_BYTES = 50_000_000  # of a file; larger ones are listed, not read
SHOWN = 3  # names of files that were not read, for each reason
BLOCK_FILES = 1 << 8  # read and divided by a worker at once
_FOREIGN = re.compile(r"^([a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)
_FIRST_PAGES = ("index", "readme", "_index")  # of a folder


@dataclass(frozen=True)
class IndexedFolder:
    """The result of :func:`index_folder`."""

    folder: Path  # the data set folder
    documents: int
    chunks: int  # passages
    links: int  # between two of the documents: edges
    unread: Mapping[str, Sequence[str]]  # files that were not read, and records without a text, by reason

    def __str__(self) -> str:
        """Say what was made, and what was not read."""
        rows = [f"{self.documents:,} documents, {self.chunks:,} passages, {self.links:,} links: {self.folder}"]
        return "\n".join([*rows, *_unread_rows(self.unread)])


def _unread_rows(unread: Mapping[str, Sequence[str]]) -> list[str]:
    shown = {reason: ", ".join([*names[:SHOWN], *["..."] * (len(names) > SHOWN)]) for reason, names in unread.items()}
    return [f"not read: {len(unread[reason]):,} x {reason} ({shown[reason]})" for reason in sorted(unread)]


class ChunkFiles:
    """Reads files of a folder, which all workers must see, and divides them into passages of at most ``max_words``."""

    def __init__(self, source: Path, *, max_words: int) -> None:
        self.source = source
        self.max_words = max_words

    def __call__(self, block: Block) -> Block:
        """Return the passages of the files ``paths``, in JSON, and among them what was not read: reason and name."""
        found: list[object] = []
        for name in map(str, block["paths"]):
            try:
                documents = FORMATS[PurePosixPath(name).suffix.lower()](self.source / name, name)
            except UnreadableError as error:
                found.append([str(error), name])
                continue
            if not documents:
                found.append(["no text", name])
            for document in documents:
                chunks = list(map(asdict, _chunks(document, self.max_words)))
                found += chunks if chunks else [["no text", document.name]]
        return {"found": [json.dumps(each) for each in found]}


def index_folder(
    source: str | Path,
    out: str | Path,
    *,
    max_words: int = 200,
    engine: Engine = LOCAL,
    finish: Callable[[Path, IndexedFolder], None] | None = None,
) -> IndexedFolder:
    """Write the documents of a folder, which the engine's workers must see, as a data set folder.

    A passage's id is its document's path and number; its title is the document's, with the section's heading. Numbers
    join neighbouring passages (``data.adjacency=true``, ``data.edges=auto``); links between the files are edges of the
    type ``link`` (:func:`linked_passages`). Hidden files, links of the file system, files of unknown formats, files
    that are not of their format and records without a text are left out and named. ``finish`` may write more into the
    folder, which is then at another place: ``out`` appears when all is written, and a command that was killed leaves
    only a hidden folder, which the next one removes. A ValueError if there is no such folder or nothing to read in it,
    or ``out`` exists; a MissingExtraError if there is a PDF file and no package to read it.
    """
    check_counts(max_words=max_words)
    source, out = Path(source), Path(out)
    if not source.is_dir():
        raise UserError(f"`source` must be a folder of documents, got {source}")
    if out.exists():
        raise UserError(f"`out` must not exist, got {out}; remove it, or name another folder")
    unread: defaultdict[str, list[str]] = defaultdict(list)
    names = _files(source, unread)
    blocks: Iterator[Block] = ({"paths": block} for block in iter(lambda: list(islice(names, BLOCK_FILES)), []))
    done = engine.map(ChunkFiles(source.absolute(), max_words=max_words), blocks)
    chunks: list[Chunk] = []
    for each in (json.loads(str(each)) for block in done for each in block["found"]):
        if isinstance(each, list):
            unread[each[0]].append(each[1])
        else:
            chunks.append(Chunk(**(each | {"links": tuple(each["links"])})))
    if not chunks:
        found = "".join(f"; {row}" for row in _unread_rows(unread))
        formats = ", ".join(sorted(FORMATS))
        raise UserError(f"`source` must hold documents ({formats}), found no text in {source}{found}")
    edges = linked_passages(chunks)
    made = IndexedFolder(out, len({chunk.document for chunk in chunks}), len(chunks), len(edges), dict(unread))
    for left in out.absolute().parent.glob(f".{escape(out.name)}.*.tmp"):
        with suppress(FolderInUseError), sole_use(left):
            shutil.rmtree(left)
    with atomic_folder(out) as temporary, sole_use(temporary.parent):
        write_json_lines(temporary / "corpus.jsonl", map(_row, chunks))
        if edges:
            rows = ["source\ttarget\ttype\n", *(f"{i}\t{j}\tlink\n" for i, j in edges)]
            write_text(temporary / "edges.tsv", "".join(rows))
        if finish is not None:
            finish(temporary, made)
    return made


def _files(source: Path, unread: defaultdict[str, list[str]]) -> Iterator[str]:
    """List the files to read by their paths within the folder; note the others."""
    for folder, names, files in os.walk(source):
        names[:] = sorted(n for n in names if not n.startswith(".") and not (Path(folder) / n).is_symlink())
        for path in (Path(folder) / name for name in sorted(files)):
            own = path.relative_to(source).as_posix()
            if reason := _why_not(path, own):
                unread[reason].append(own.encode("utf-8", "replace").decode())
            else:
                yield own


def _why_not(path: Path, own: str) -> str:
    """Return why a file, with its path within the folder, is not read; empty if it is."""
    if path.name.startswith("."):
        return "hidden"
    if path.is_symlink():
        return "a link of the file system"
    if not path.is_file():
        return "no regular file"  # a pipe, of which reading waits for ever
    if path.suffix.lower() not in FORMATS:
        return f"{path.suffix.lower() or 'no suffix'}: no known format"
    if path.stat().st_size > MAX_BYTES:
        return f"larger than {MAX_BYTES // 1_000_000} MB"
    is_id = own == own.lstrip() and not set(own) & set("\t\r\n") and own.encode("utf-8", "replace").decode() == own
    return "" if is_id else "a name that begins with a blank, or with tabs, line breaks or bytes that are not UTF-8"


def _chunks(document: Document, max_words: int) -> Iterator[Chunk]:
    number = 0
    for section in document.sections:
        names = (document.title[:MAX_NAME], section.heading[:MAX_NAME])
        title = " - ".join(dict.fromkeys(filter(None, names)))
        chunks = list(divide(section.text, max_words))
        starts = [start for start, _ in chunks]
        links: list[list[str]] = [[] for _ in chunks]
        for place, target in section.links if chunks else ():
            if len(target) <= MAX_TARGET:
                links[max(0, bisect_right(starts, place) - 1)].append(target)
        for (_, text), own in zip(chunks, links, strict=True):
            title, heading, text = map(whole_characters, (title, names[1], text))
            yield Chunk(f"{document.name}:{number}", title, text, document.name, number, heading, tuple(own))
            number += 1


def _row(chunk: Chunk) -> dict[str, object]:
    metadata = {"doc_id": chunk.document, "chunk_id": chunk.number, "heading": chunk.heading}
    return {"_id": chunk.id, "title": chunk.title, "text": chunk.text, "metadata": metadata}


def linked_passages(passages: Sequence[Chunk]) -> list[tuple[str, str]]:
    """List the different pairs of passages of which one links to the other, in order.

    A target is the first passage of the section that it names, or else of its document. Paths are relative to the
    document or, where they begin with ``/``, to the folder; the suffix may be missing, and a folder is its ``index`` or
    ``README``. ``[[NAME]]`` is the document of that path, else that file name, in the same folder if there are several,
    else that title.
    """
    places = _Places(passages)
    found = {
        (passage.id, target): None
        for passage in passages
        for link in passage.links
        if (target := places.target(passage.document, link)) not in (None, passage.id)
    }
    return [(source, target) for source, target in found if target is not None]


class _Places:
    def __init__(self, passages: Iterable[Chunk]) -> None:
        self.first: dict[str, str] = {}
        self.of_section: dict[tuple[str, str], str] = {}
        self.by_path: dict[str, str] = {}  # document by its path without suffix, and by its folder's
        self.by_name: dict[str, list[str]] = {}  # documents by file name, else by title
        titles: dict[str, list[str]] = {}
        for passage in passages:
            document = passage.document
            self.of_section.setdefault((document, _anchor(passage.heading)), passage.id)
            if document in self.first:
                continue
            self.first[document] = passage.id
            bare = splitext(document)[0]
            self.by_path.setdefault(bare, document)
            folder, _, stem = bare.rpartition("/")
            if stem.lower() in _FIRST_PAGES:
                self.by_path.setdefault(folder or ".", document)
            self.by_name.setdefault(_name(stem), []).append(document)
            titles.setdefault(_name(passage.title), []).append(document)
        for name, documents in titles.items():
            self.by_name.setdefault(name, documents)

    def target(self, own: str, link: str) -> str | None:
        is_wiki = link.startswith("[[")
        if not is_wiki and _FOREIGN.match(link):
            return None
        written = link[2:-2] if is_wiki else unquote(link.replace("\\", "/"))
        path, _, anchor = written.partition("#")
        path = path.strip() if is_wiki else path.partition("?")[0].strip()
        document = own if not path else self._page(own, path) if is_wiki else self._document(own, path)
        if document is None:
            return None
        first = self.first.get(document)
        return self.of_section.get((document, _anchor(unquote(anchor))), first) if anchor else first

    def _document(self, own: str, path: str) -> str | None:
        place = normpath(path.lstrip("/") if path.startswith("/") else join(dirname(own), path))
        return place if place in self.first else self.by_path.get(place)

    def _page(self, own: str, name: str) -> str | None:
        if (document := self._document("", name) or self._document(own, name)) is not None:
            return document
        listed = self.by_name.get(_name(splitext(name)[0] if name.lower().endswith(".md") else name), [])
        return next((each for each in listed if dirname(each) == dirname(own)), listed[0] if listed else None)


def _name(text: str) -> str:
    return " ".join(text.replace("_", " ").lower().split())


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w-]", "", heading.strip().lower().replace(" ", "-"))
