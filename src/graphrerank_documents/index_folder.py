"""Convert a folder of documents into a data set folder, or update one: passages with titles and links between them."""

import gzip
import hashlib
import json
import os
import shutil
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from graphrerank.data.folder_layout import ACCOUNT, CORPUS
from graphrerank.data.readers.records import read_jsonl
from graphrerank.data.synthetic_queries.questions import DRAFTED_FILE
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
from graphrerank_documents.deferred_names import resolve_names
from graphrerank_documents.document import Document
from graphrerank_documents.failures import noting_failure
from graphrerank_documents.folder_walk import list_folder
from graphrerank_documents.includes import included_paths
from graphrerank_documents.link_account import LinkAccount
from graphrerank_documents.links import PassageEdge, resolve_links
from graphrerank_documents.notes import is_vault, vault_note
from graphrerank_documents.passages import Passage, passages_of
from graphrerank_documents.readers import READERS, suffix_of
from graphrerank_documents.reading import ReadFile, read_files
from graphrerank_documents.redirects import redirect_documents
from graphrerank_documents.selection import FileSelection
from graphrerank_documents.site import Site, find_site
from graphrerank_documents.sources import MAX_BYTES, UNKNOWN_FORMAT, DocumentSource, FileList, LeftOut, unread_reason
from graphrerank_documents.symbols import SymbolIndex

MAX_WORDS = 200
#: Maximum number of skipped files that the summary names for each reason.
SHOWN = 3
#: File with the parsed documents of each source file, so that an update parses changed files only.
READ = "documents.jsonl.gz"
#: First line of :data:`READ`. Increase the number when a parser returns different documents for the same file.
FORMAT = "graphrerank documents 10"
EDGES = "edges.tsv"
_RST = ".rst"
_MAX_INCLUDES = 4  # maximum depth of included files in included files that are not parsed as RST otherwise
#: Reason why a file or record has no passages. Links and imports may still point to it.
NO_TEXT = "no text"
#: Reason why a page that sends its readers to another one has no passages. Links to it lead to that page.
REDIRECTED = "a redirect to another page"
#: Reason to skip a document, such as a file in the folder ``a.zip#b`` if the archive ``a.zip`` has a folder ``b``.
SAME_NAME = "another document has the same name"
_NOT_DIVIDED = "cannot be divided into passages"
_WRITTEN = (CORPUS, EDGES, READ, ACCOUNT)


@dataclass(frozen=True)
class Update:
    """Number of files and passages affected by an update.

    Attributes:
        added: Number of new files.
        changed: Number of files whose content changed.
        removed: Number of files that no longer exist.
        kept_passages: Number of passages whose id, title and text are unchanged.
    """

    added: int
    changed: int
    removed: int
    kept_passages: int


@dataclass(frozen=True)
class IndexedFolder:
    """Result of :func:`index_folder`.

    Attributes:
        folder: Path of the data set folder.
        documents: Number of documents with text.
        passages: Number of passages.
        edges: Number of edges between passages.
        links: Number of resolved, broken and external links.
        unread: Skipped files, and records without text, by reason.
        dropped: Number of omitted parts of documents, by kind, such as ``data URIs``.
        update: Differences from the previous version of the folder, or None if the folder is new.
        left_out: Files and folders that were not chosen, by reason, such as ``installed or built``. The name of a
            folder ends with ``/``.
    """

    folder: Path
    documents: int
    passages: int
    edges: int
    links: LinkAccount
    unread: Mapping[str, Sequence[str]]
    dropped: Mapping[str, int] = field(default_factory=dict)
    update: Update | None = None
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)

    def __str__(self) -> str:
        """Summarise the counts, the links and the skipped files in a few lines."""
        rows = [f"{self.documents:,} documents, {self.passages:,} passages, {self.edges:,} edges: {self.folder}"]
        if (update := self.update) is not None:
            rows.append(
                f"files: {update.added:,} added, {update.changed:,} changed, {update.removed:,} removed; "
                f"{update.kept_passages:,} passages unchanged"
            )
        rows += [str(self.links)] if str(self.links) else []
        if self.dropped:
            rows.append(f"omitted: {', '.join(f'{count:,} {kind}' for kind, count in self.dropped.items())}")
        rows += _left_out_rows(self.left_out)
        return "\n".join([*rows, *_unread_rows(self.unread)])


def _left_out_rows(left_out: Mapping[str, LeftOut]) -> list[str]:
    """Return one line with the number of files that were left out, and why."""
    if not left_out:
        return []
    total = sum(each.num_files for each in left_out.values())
    reasons = [f"{each.num_files:,} {reason} ({_shown(each.names)})" for reason, each in sorted(left_out.items())]
    files = f"{total:,} file{'s' * (total != 1)}"
    return [f"left out: {files}: {'; '.join(reasons)}; --include PATTERN or --all reads them"]


def _shown(names: Sequence[str]) -> str:
    """Return the first names of a list for a message."""
    return ", ".join([*map(shown_name, names[:SHOWN]), *["..."] * (len(names) > SHOWN)])


def _unread_rows(unread: Mapping[str, Sequence[str]]) -> list[str]:
    rows = []
    for reason in sorted(unread):
        rows.append(f"not read: {len(unread[reason]):,} x {shown_name(reason)} ({_shown(unread[reason])})")
    return rows


def index_folder(
    source: str | Path | DocumentSource,
    out: str | Path,
    *,
    max_words: int = MAX_WORDS,
    workers: int | None = None,
    finish: Callable[[Path, IndexedFolder], None] | None = None,
    selection: FileSelection | None = None,
) -> IndexedFolder:
    """Convert a folder of documents into a data set folder, or update an existing one.

    Documents are split into passages at headings (see :mod:`~graphrerank_documents.passages`). A passage id consists of
    the document's path and the section's anchor. Links between documents become edges (see
    :mod:`~graphrerank_documents.links`). Passages are numbered within their document, so that neighbouring passages
    can be connected with ``data.adjacency=true`` or ``data.edges=auto``.

    Files that cannot be indexed are listed in :attr:`IndexedFolder.unread` and do not stop the function. These are
    hidden files, symbolic links, unreadable files and folders, nested data set folders, files in an unknown or invalid
    format, and records without text.

    If ``out`` was written by this function, only files whose content changed are parsed again. The result equals that
    of a new folder. Other files in ``out``, such as questions and judgements, are preserved.

    Args:
        source: Folder of documents, or another source of documents.
        out: Data set folder to write. Must be new, empty or written by this function.
        max_words: Maximum number of words per passage.
        workers: Number of parser processes, which have time and memory limits. Defaults to the number of processors.
        finish: Function called with the path of the unfinished folder and the result, in order to write additional
            files. The unfinished folder is hidden and replaces ``out`` afterwards. If the process is killed, ``out`` is
            unchanged and the next call removes the hidden folder.
        selection: Choice of the files to read if ``source`` is a folder. If None, ignored, installed, built, locked
            and hidden files are left out.

    Returns:
        Summary of the documents, passages, links and skipped files.

    Raises:
        ValueError: If ``source`` is not a folder or has no text, if ``out`` has other content, or if ``max_words`` or
            ``workers`` is not a positive integer.
    """
    check_counts(max_words=max_words, workers=workers)
    source = source if isinstance(source, DocumentSource) else FolderSource(Path(source), selection)
    out = Path(out)
    known, known_passages = _read_before(out)
    files = source.list_files(out)
    unread = defaultdict(list, {reason: [*names] for reason, names in files.unread.items()})
    read = _read(source, files.names, known, workers or os.cpu_count() or 1)
    read = _read_included(source, read, unread, known, workers or os.cpu_count() or 1)
    for file in read:
        if file.reason or not file.documents:
            unread[file.reason or NO_TEXT].append(file.path)
        for damage in file.damage:
            unread[damage].append(file.path)
        for document in file.documents:
            for damage in document.damage:
                unread[damage].append(document.name)
    site = source.site()
    for damage, paths in site.damaged.items():
        unread[damage] += paths
    documents = resolve_names(_uniquely_named((each for file in read for each in file.documents), unread))
    if site.is_vault or is_vault(documents):
        documents = [vault_note(document, is_named_by_heading=not site.is_vault) for document in documents]
    documents, passages, dropped = _divide(documents, max_words, unread)
    if not passages:
        skipped = "".join(f"; {row}" for row in _unread_rows(unread))
        formats = ", ".join(sorted(READERS))
        message = f"`source` must contain documents with text, found none in {source}{skipped}"
        raise UserError(f"{message}. The supported formats are {formats}")
    documents += redirect_documents((*site.redirects, *files.redirects), documents)
    names = {*files.names, *files.others}
    manifests = {file.path: file.manifest for file in read if file.manifest is not None}
    symbols = SymbolIndex(documents, manifests=manifests, files=names, failures=unread)
    edges, links = resolve_links(documents, passages, site, files=names, symbols=symbols, failures=unread)
    rows = [_row(passage) for passage in passages]
    update = None
    if known_passages is not None:
        hashes = {file.path: file.sha256 for file in read}
        changed = sum(path in known and known[path].sha256 != sha256 for path, sha256 in hashes.items())
        added, removed = hashes.keys() - known.keys(), known.keys() - hashes.keys()
        update = Update(len(added), changed, len(removed), len(known_passages & {*map(_hash, rows)}))
    num_documents = len({passage.document for passage in passages})
    made = IndexedFolder(
        out, num_documents, len(passages), len(edges), links, dict(unread), dropped, update, files.left_out
    )
    _write(out, made, rows, edges, read, finish)
    return made


def _read_before(out: Path) -> tuple[dict[str, ReadFile], set[str] | None]:
    """Return the files parsed by an earlier run and the hashes of its passages, or None if there was no earlier run."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return {}, None
    if not (out / ACCOUNT).is_file() or not (out / CORPUS).is_file():
        raise UserError(f"`out` must be new or written by `graphrerank index`, got {out}. Choose another folder")
    files = {}
    with suppress(OSError, EOFError, ValueError, zlib.error), gzip.open(out / READ, "rt", encoding="utf-8") as lines:
        if next(lines, "").strip() == FORMAT:  # all files are parsed again if the format differs or the file is damaged
            for line in lines:
                file = ReadFile.from_record(line)
                files[file.path] = file
    return files, _passage_hashes(out / CORPUS)


def _passage_hashes(path: Path) -> set[str]:
    """Return the hashes of the passages of an earlier run. Damaged lines are skipped."""
    hashes = set()
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with suppress(ValueError, KeyError, TypeError, RecursionError):
                hashes.add(_hash(json.loads(line)))
    return hashes


def _hash(row: Mapping[str, object]) -> str:
    return hashlib.sha256("\0".join(str(row[key]) for key in ("_id", "title", "text")).encode()).hexdigest()


class FolderSource(DocumentSource):
    """Source of documents in a folder on disk.

    Args:
        folder: Path of the folder.
        selection: Choice of the files to read. If None, the default of
            :class:`~graphrerank_documents.selection.FileSelection`.

    Raises:
        ValueError: If ``folder`` is not an existing folder.
    """

    def __init__(self, folder: Path, selection: FileSelection | None = None) -> None:
        if not folder.is_dir():
            raise UserError(f"`source` must be a folder of documents, got {folder}")
        self._folder, self._selection = folder, selection or FileSelection()

    def __str__(self) -> str:
        """Return the path of the folder."""
        return str(self._folder)

    def list_files(self, out: Path) -> FileList:
        """List the files in the folder and its subfolders.

        Args:
            out: Data set folder to exclude.

        Returns:
            Files to parse, other files, skipped files and files left out, with the reasons.
        """
        return list_folder(self._folder, out, self._selection)

    def read(self, names: Sequence[str], *, workers: int, read_as: str = "") -> Iterator[ReadFile]:
        """Parse files in parallel processes and yield the results in the order of ``names``.

        Args:
            names: Paths of the files, relative to the folder.
            workers: Number of parser processes.
            read_as: Suffix of the format of all files, such as ``.rst``. Defaults to those of the names.

        Returns:
            Iterator over the parsed files.
        """
        if read_as:  # files in an unknown format have not been checked
            names = [name for name in names if not unread_reason(f"{name}{read_as}", self._size_of(name))]
        return read_files(self._folder.absolute(), names, workers=workers, read_as=read_as)

    def _size_of(self, name: str) -> int:
        path = self._folder / name
        with suppress(OSError):
            return path.stat().st_size if path.is_file() and not path.is_symlink() else MAX_BYTES + 1
        return MAX_BYTES + 1

    def has(self, file: ReadFile) -> bool:
        """Return whether the content of a file is the same as when it was parsed.

        Args:
            file: File parsed by an earlier run.
        """
        with suppress(OSError):
            return hashlib.sha256((self._folder / file.path).read_bytes()).hexdigest() == file.sha256
        return False

    def site(self) -> Site:
        """Return the site of the folder, based on the site configurations in the folder and its parents."""
        return find_site(self._folder)


def _read(source: DocumentSource, names: Sequence[str], known: Mapping[str, ReadFile], workers: int) -> list[ReadFile]:
    """Parse new and changed files, reuse the results of an earlier run for the others, and return all in order."""
    same = {name for name in names if name in known and _is_same(source, known[name])}
    fresh: dict[str, ReadFile] = {}
    with progress_bar("parsing files", total=len(names)):
        advance(len(same))
        for file in source.read([name for name in names if name not in same], workers=workers):
            fresh[file.path] = file
            advance(1)
    return [known[name] if name in same else fresh[name] for name in names]


def _is_same(source: DocumentSource, file: ReadFile, read_as: str = "") -> bool:
    """Return whether a file was parsed in a format, and its content is the same as then."""
    return not file.reason and file.read_as == read_as and source.has(file)


def _read_included(
    source: DocumentSource,
    read: Sequence[ReadFile],
    unread: defaultdict[str, list[str]],
    known: Mapping[str, ReadFile],
    workers: int,
) -> list[ReadFile]:
    """Parse the files that RST files include as RST, whatever their suffix, and return all files in order.

    Files in an unknown format are removed from ``unread``.
    """
    files = {file.path: file for file in read}
    for _ in range(_MAX_INCLUDES):
        others = [name for reason, names in unread.items() if reason.endswith(UNKNOWN_FORMAT) for name in names]
        names = {*files, *others}
        pages = (file for file in files.values() if _RST in (file.read_as, suffix_of(file.path)))
        documents = (document for file in pages for document in file.documents if document.includes)
        paths = dict.fromkeys(path for document in documents for path in included_paths(document, names))
        wanted = [path for path in paths if path not in files or (not files[path].read_as and not _is_markup(path))]
        same = [path for path in wanted if path in known and _is_same(source, known[path], _RST)]
        fresh = source.read([path for path in wanted if path not in same], workers=workers, read_as=_RST)
        parsed = [file for file in (*(known[path] for path in same), *fresh) if not file.reason]
        files |= {file.path: file for file in parsed}
        for names_of_reason in unread.values():
            names_of_reason[:] = [name for name in names_of_reason if name not in files]
        if not parsed:
            break
    for reason in [reason for reason, names in unread.items() if not names]:
        del unread[reason]
    return list(files.values())


def _is_markup(path: str) -> bool:
    """Return whether the format of a file is not plain text, so that the file is parsed in its own format."""
    return suffix_of(path) not in ("", ".txt", ".text")


def _uniquely_named(documents: Iterable[Document], unread: defaultdict[str, list[str]]) -> list[Document]:
    """Return the documents without those whose names earlier ones have, because names become the ids of passages."""
    unique: dict[str, Document] = {}
    for document in documents:
        if document.name in unique:
            unread[SAME_NAME].append(document.name)
        else:
            unique[document.name] = document
    return list(unique.values())


class _DividedDocuments(NamedTuple):
    """Documents and their passages.

    Attributes:
        documents: Documents without repeated blocks. Those without passages come last.
        passages: Passages of the documents.
        dropped: Number of omitted parts of the documents by kind.
    """

    documents: list[Document]
    passages: list[Passage]
    dropped: dict[str, int]


def _divide(documents: Sequence[Document], max_words: int, unread: defaultdict[str, list[str]]) -> _DividedDocuments:
    """Return the documents without repeated blocks, their passages, and the number of omitted parts by kind.

    Documents without passages, such as an empty ``__init__.py``, come last. Links and imports may point to them.
    """
    keys: dict[str, frozenset[int]] = {}
    for document in documents:
        with noting_failure(unread, document.name, _NOT_DIVIDED):
            keys |= {document.name: edges} if (edges := edge_keys(document)) else {}
    repeated = repeated_keys(keys)
    documents = [
        without_repeated(document, repeated[document.name]) if document.name in repeated else document
        for document in documents
    ]
    dropped = Counter[str]()
    for document in documents:
        dropped.update(document.dropped)
    texts = [block.text for document in documents for section in document.sections for block in section.blocks[:1]]
    language = detect_language(texts)
    with_text, without_text = list[Document](), list[Document]()
    passages = list[Passage]()
    for document in documents:
        with noting_failure(unread, document.name, _NOT_DIVIDED):
            document_passages = list(passages_of(document, max_words=max_words, language=language))
            (with_text if document_passages else without_text).append(document)
            passages += document_passages
            if not document_passages and not document.damage:
                unread[NO_TEXT if document.redirect is None else REDIRECTED].append(document.name)
    return _DividedDocuments([*with_text, *without_text], passages, dict(dropped))


def _row(passage: Passage) -> dict[str, object]:
    metadata = {"doc_id": passage.document, "chunk_id": passage.number, "heading": passage.heading}
    if passage.line:
        metadata["line"] = passage.line
    return {"_id": passage.id, "title": passage.title, "text": passage.text, "metadata": metadata}


def _write(
    out: Path,
    made: IndexedFolder,
    rows: Sequence[Mapping[str, object]],
    edges: Sequence[PassageEdge],
    read: Sequence[ReadFile],
    finish: Callable[[Path, IndexedFolder], None] | None,
) -> None:
    """Write the data set folder and preserve the other files of an existing one."""
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
        account = {
            "account": str(made),
            "links": asdict(made.links),
            "unread": made.unread,
            "left_out": {reason: asdict(left_out) for reason, left_out in made.left_out.items()},
            "dropped": made.dropped,
        }
        write_json(temporary / ACCOUNT, account)
        if (drafted := temporary / DRAFTED_FILE).is_file():  # keep the drafted questions whose passages still exist
            ids = {row["_id"] for row in rows}
            drafts = [draft for _, draft in read_jsonl(drafted) if ids.issuperset(draft["relevant"])]
            drafted.unlink()
            if drafts:
                write_json_lines(drafted, drafts)
        if finish is not None:
            finish(temporary, made)
