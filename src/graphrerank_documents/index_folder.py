"""A folder of documents as a data set folder, and its update: passages with titles, and the links between them."""

import gzip
import hashlib
import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from graphrerank.data.folder_layout import ACCOUNT, CORPUS
from graphrerank.data.readers.records import read_jsonl
from graphrerank.data.synthetic_queries.questions import DRAFTED
from graphrerank.text.languages import detect_language
from graphrerank.utils.checks import UserError, check_counts
from graphrerank.utils.files import (
    atomic_folder,
    sole_use,
    write_bytes,
    write_json,
    write_json_lines,
    write_text,
)
from graphrerank.utils.progress import advance, progress_bar
from graphrerank.utils.safe_loading import shown_name
from graphrerank_documents.boilerplate import edge_keys, repeated_keys, without_repeated
from graphrerank_documents.document import Document
from graphrerank_documents.links import LinkAccount, resolve_links
from graphrerank_documents.passages import Passage, passages_of
from graphrerank_documents.readers import READERS
from graphrerank_documents.reading import ReadFile, read_files
from graphrerank_documents.site import Site, find_site
from graphrerank_documents.sources import (
    DATASET_FOLDER,
    HIDDEN,
    DocumentSource,
    FileList,
    is_dataset_folder,
    listed_name,
    unread_reason,
)
from graphrerank_documents.symbols import SymbolIndex

MAX_WORDS = 200
SHOWN = 3  # names of files that were not read, for each reason
READ = "documents.jsonl.gz"  # what was read of each file, for updates
FORMAT = "graphrerank documents 1"  # raise it when readers give other documents of the same files
EDGES = "edges.tsv"
_WRITTEN = (CORPUS, EDGES, READ, ACCOUNT)


@dataclass(frozen=True)
class Update:
    """The documents' files that an update found, and the passages."""

    added: int
    changed: int
    removed: int
    kept_passages: int  # with the same id, title and text


@dataclass(frozen=True)
class IndexedFolder:
    """The result of :func:`index_folder`."""

    folder: Path  # the data set folder
    documents: int
    passages: int
    edges: int
    links: LinkAccount
    unread: Mapping[str, Sequence[str]]  # files that were not read, and records without a text, by reason
    dropped: Mapping[str, int] = field(default_factory=dict)  # parts of documents that were left out, by kind
    update: Update | None = None  # of a folder that was there

    def __str__(self) -> str:
        """Say what was made, what became of the links, and what was not read."""
        rows = [f"{self.documents:,} documents, {self.passages:,} passages, {self.edges:,} edges: {self.folder}"]
        if (update := self.update) is not None:
            rows.append(
                f"files: {update.added:,} added, {update.changed:,} changed, {update.removed:,} removed; "
                f"{update.kept_passages:,} passages are as they were"
            )
        rows += [str(self.links)] if str(self.links) else []
        if self.dropped:
            rows.append(f"left out: {', '.join(f'{count:,} {kind}' for kind, count in self.dropped.items())}")
        return "\n".join([*rows, *_unread_rows(self.unread)])


def _unread_rows(unread: Mapping[str, Sequence[str]]) -> list[str]:
    rows = []
    for reason in sorted(unread):
        names = [*map(shown_name, unread[reason][:SHOWN]), *["..."] * (len(unread[reason]) > SHOWN)]
        rows.append(f"not read: {len(unread[reason]):,} x {shown_name(reason)} ({', '.join(names)})")
    return rows


def index_folder(
    source: str | Path | DocumentSource,
    out: str | Path,
    *,
    max_words: int = MAX_WORDS,
    workers: int | None = None,
    finish: Callable[[Path, IndexedFolder], None] | None = None,
) -> IndexedFolder:
    """Write the documents of a folder as a data set folder, or bring such a folder up to date.

    Passages are cut at headings (:mod:`~graphrerank_documents.passages`); their ids are their document's path and
    their section's anchor. Numbers join neighbouring passages (``data.adjacency=true``, ``data.edges=auto``); links
    between the documents are edges (:mod:`~graphrerank_documents.links`). What is not read is an entry of
    :attr:`IndexedFolder.unread` and ends nothing: hidden files, links of the file system, unreadable files and folders,
    data set folders within, files of unknown formats or that are not of their format, records without a text.

    Where ``out`` is a folder that this function wrote, only files whose content changed are read; the result is that of
    a new folder. Other files in it, such as questions and judgements, stay.

    Args:
        source: The folder of documents, or another source of them.
        out: The data set folder.
        max_words: Words of a passage, at most.
        workers: Number of processes that read, with limits of time and memory; None for the number of processors.
        finish: Writes more into the folder, which is then at another place: ``out`` changes when all is written, and a
            command that was killed leaves only a hidden folder, which the next one removes.

    Raises:
        ValueError: If there is no such folder or nothing to read in it, or ``out`` is a folder of something else.
    """
    check_counts(max_words=max_words, workers=workers)
    source, out = source if isinstance(source, DocumentSource) else FolderSource(Path(source)), Path(out)
    known, held = _read_before(out)
    files = source.list_files(out)
    unread = defaultdict(list, {reason: [*names] for reason, names in files.unread.items()})
    read = _read(source, files.names, known, workers or os.cpu_count() or 1)
    for file in read:
        if file.reason or not file.documents:
            unread[file.reason or "no text"].append(file.path)
    documents, passages, dropped = _divide([each for file in read for each in file.documents], max_words, unread)
    if not passages:
        found = "".join(f"; {row}" for row in _unread_rows(unread))
        formats = ", ".join(sorted(READERS))
        raise UserError(f"`source` must hold documents ({formats}), found no text in {source}{found}")
    edges, links = resolve_links(
        documents, passages, source.site(), files={*files.names, *files.others}, symbols=SymbolIndex(documents)
    )
    rows = [_row(passage) for passage in passages]
    update = None
    if held is not None:
        hashes = {file.path: file.sha256 for file in read}
        changed = sum(path in known and known[path].sha256 != sha256 for path, sha256 in hashes.items())
        added, removed = hashes.keys() - known.keys(), known.keys() - hashes.keys()
        update = Update(len(added), changed, len(removed), len(held & {*map(_hash, rows)}))
    made = IndexedFolder(out, len(documents), len(passages), len(edges), links, dict(unread), dropped, update)
    _write(out, made, rows, edges, read, finish)
    return made


def _read_before(out: Path) -> tuple[dict[str, ReadFile], set[str] | None]:
    """Return the files that an earlier run read and hashes of its passages, None without one."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return {}, None
    if not (out / ACCOUNT).is_file():
        raise UserError(f"`out` must be new or a folder that `graphrerank index` wrote, got {out}; name another folder")
    files = {}
    with suppress(OSError, EOFError, ValueError), gzip.open(out / READ, "rt", encoding="utf-8") as lines:
        if next(lines, "").strip() == FORMAT:  # else, or where it is damaged, everything is read again
            for line in lines:
                file = ReadFile.from_record(line)
                files[file.path] = file
    with (out / CORPUS).open(encoding="utf-8") as lines:
        return files, {*map(_hash, map(json.loads, lines))}


def _hash(row: Mapping[str, object]) -> str:
    return hashlib.sha256("\0".join(str(row[key]) for key in ("_id", "title", "text")).encode()).hexdigest()


class FolderSource(DocumentSource):
    """A folder of documents.

    Args:
        folder: The folder.

    Raises:
        ValueError: If there is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UserError(f"`source` must be a folder of documents, got {folder}")
        self._folder = folder

    def __str__(self) -> str:
        """Return the path of the folder."""
        return str(self._folder)

    def list_files(self, out: Path) -> FileList:
        """List the files of the folder and its subfolders; hidden ones, links and data set folders are not read."""
        names: list[str] = []
        others: list[str] = []
        unread: defaultdict[str, list[str]] = defaultdict(list)

        def note(reason: str, path: Path) -> None:
            unread[reason].append(listed_name(path.relative_to(self._folder).as_posix()))

        def note_folder(error: OSError) -> None:
            note(f"a folder that cannot be opened: {error.strerror}", Path(error.filename))

        for root, folders, files in os.walk(self._folder, onerror=note_folder):
            for path in sorted(Path(root) / name for name in folders):
                if reason := _why_not_within(path, out):
                    folders.remove(path.name)
                    if reason != HIDDEN:
                        note(reason, path)
            folders.sort()
            for path in sorted(Path(root) / name for name in files):
                own = path.relative_to(self._folder).as_posix()
                if reason := _why_not(path, own):
                    note(reason, path)
                (others if reason else names).append(own)
        return FileList(names, others, unread)

    def read(self, names: Sequence[str], *, workers: int) -> Iterator[ReadFile]:
        """Read files of the folder in several processes and yield them in order."""
        return read_files(self._folder.absolute(), names, workers=workers)

    def has(self, file: ReadFile) -> bool:
        """Return whether a file of the folder still has the content that it had when it was read."""
        with suppress(OSError):
            return hashlib.sha256((self._folder / file.path).read_bytes()).hexdigest() == file.sha256
        return False

    def site(self) -> Site:
        """Return where the folder is published, as configurations in it and above it say."""
        return find_site(self._folder)


def _why_not_within(folder: Path, out: Path) -> str:
    """Return why the files of a folder are not read; empty if they are."""
    if folder.name.startswith(".") or folder.is_symlink():
        return HIDDEN if folder.name.startswith(".") else "a linked folder"
    with suppress(PermissionError):  # `os.walk` notes it
        if folder.absolute() == out.absolute() or is_dataset_folder(lambda name: (folder / name).exists()):
            return DATASET_FOLDER
    return ""


def _why_not(path: Path, own: str) -> str:
    """Return why a file, with its path within the folder, is not read; empty if it is."""
    if path.name.startswith("."):
        return HIDDEN
    if path.is_symlink():
        return "a link of the file system"
    if not path.is_file():
        return "no regular file"  # a pipe, of which reading waits for ever
    return unread_reason(own, path.stat().st_size)


def _read(source: DocumentSource, names: Sequence[str], known: Mapping[str, ReadFile], workers: int) -> list[ReadFile]:
    """Read the files whose content is not that of an earlier run; return all in order."""
    same = {name for name in names if name in known and not known[name].reason and source.has(known[name])}
    fresh: dict[str, ReadFile] = {}
    with progress_bar("files", total=len(names)):
        advance(len(same))
        for file in source.read([name for name in names if name not in same], workers=workers):
            fresh[file.path] = file
            advance(1)
    return [known[name] if name in same else fresh[name] for name in names]


def _divide(
    documents: Sequence[Document], max_words: int, unread: defaultdict[str, list[str]]
) -> tuple[list[Document], list[Passage], dict[str, int]]:
    """Return documents without what a site repeats, their passages, and the number of parts that were left out."""
    repeated = repeated_keys({document.name: keys for document in documents if (keys := edge_keys(document))})
    documents = [
        without_repeated(document, repeated[document.name]) if document.name in repeated else document
        for document in documents
    ]
    dropped = Counter[str]()
    for document in documents:
        dropped.update(document.dropped)
    texts = [block.text for document in documents for section in document.sections for block in section.blocks[:1]]
    language = detect_language(texts)
    kept, passages = [], list[Passage]()
    for document in documents:
        if own := list(passages_of(document, max_words=max_words, language=language)):
            kept.append(document)
            passages += own
        else:
            unread["no text"].append(document.name)
    return kept, passages, dict(dropped)


def _row(passage: Passage) -> dict[str, object]:
    metadata = {"doc_id": passage.document, "chunk_id": passage.number, "heading": passage.heading}
    if passage.line:
        metadata["line"] = passage.line
    return {"_id": passage.id, "title": passage.title, "text": passage.text, "metadata": metadata}


def _write(
    out: Path,
    made: IndexedFolder,
    rows: Sequence[Mapping[str, object]],
    edges: Sequence[tuple[str, str, str]],
    read: Sequence[ReadFile],
    finish: Callable[[Path, IndexedFolder], None] | None,
) -> None:
    """Write the folder; of one that was there, other files are kept."""
    with ExitStack() as stack:
        if out.exists():
            stack.enter_context(sole_use(out))
        temporary = stack.enter_context(atomic_folder(out))
        if out.exists():
            shutil.copytree(out, temporary, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*_WRITTEN))
        write_json_lines(temporary / CORPUS, rows)
        if edges:
            lines = ["source\ttarget\ttype\n", *("\t".join(edge) + "\n" for edge in edges)]
            write_text(temporary / EDGES, "".join(lines))
        records = b"\n".join([FORMAT.encode(), *(file.record for file in read), b""])
        write_bytes(temporary / READ, gzip.compress(records, 1, mtime=0))
        account = {"account": str(made), "links": asdict(made.links), "unread": made.unread, "dropped": made.dropped}
        write_json(temporary / ACCOUNT, account)
        if (drafted := temporary / DRAFTED).is_file():  # those of an earlier run whose passages are still there
            ids = {row["_id"] for row in rows}
            drafts = [draft for _, draft in read_jsonl(drafted) if ids.issuperset(draft["relevant"])]
            drafted.unlink()
            if drafts:
                write_json_lines(drafted, drafts)
        if finish is not None:
            finish(temporary, made)
