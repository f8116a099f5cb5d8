"""Define builders of data set folders, and the writer of the folder and its card."""

import inspect
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from graphrerank.data.dataset import Dataset
from graphrerank.data.readers.fetch import Downloader, download
from graphrerank.data.readers.records import Record
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import atomic_folder, hash_files, hash_json, write_json, write_text
from graphrerank_papers.builders.raw_files import RawFiles

DATASET_CARD = "dataset.json"
#: Name of the file that lists the dropped records, one per line.
DROPPED_FILE = "dropped.jsonl"


class DatasetWriter:
    """Writer of the files of a data set folder, one record at a time.

    Documents and queries without text are dropped, together with the judgements and edges that refer to them.

    Attributes:
        folder: Folder that the files are written to.
        counts: Number of documents, of queries, of judgements per split, and of edges.
        reasons: Number of dropped records per reason.
        notes: Remarks for the card of the data set.
    """

    def __init__(self, folder: Path) -> None:
        """Create a writer for a folder.

        Args:
            folder: Existing, empty folder.
        """
        self.folder = folder
        self.counts: dict[str, Any] = {"documents": 0, "queries": 0, "qrels": {}, "edges": 0}
        self.reasons: Counter[str] = Counter()
        self.notes: list[str] = []
        self._empty: dict[str, set[str]] = {"document": set(), "query": set()}
        self._judgements = defaultdict[str, list[tuple[str, str, int]]](list)
        self._edges: list[tuple[str, ...]] = []
        self._edge_columns: tuple[str, ...] = ()
        self._files: dict[str, IO[bytes]] = {}

    def document(self, doc_id: str, title: str, text: str, /, **metadata: Any) -> None:
        """Write a document to the corpus.

        Args:
            doc_id: Id of the document.
            title: Title, or an empty string.
            text: Text of the document.
            **metadata: Metadata of the document. Entries that are None are omitted.
        """
        self.record("document", {"_id": doc_id, "title": title, "text": text}, **metadata)

    def query(self, query_id: str, text: str, /, **metadata: Any) -> None:
        """Write a query.

        Args:
            query_id: Id of the query.
            text: Text of the query.
            **metadata: Metadata of the query. Entries that are None are omitted.
        """
        self.record("query", {"_id": query_id, "text": text}, **metadata)

    def record(self, kind: str, record: Record, **metadata: Any) -> None:
        """Write a document or a query, or drop it if it has neither text nor title.

        Args:
            kind: ``document`` or ``query``.
            record: Record with ``_id``, ``text`` and optionally ``title`` and ``metadata``.
            **metadata: Metadata that replaces that of ``record``. Entries that are None are omitted.
        """
        if given := {key: entry for key, entry in metadata.items() if entry is not None}:
            record = record | {"metadata": given}
        if not record["text"].strip() and not record.get("title", "").strip():
            self._empty[kind].add(record["_id"])
            self.drop(kind, record["_id"], "no text")
            return
        name, count = ("corpus.jsonl", "documents") if kind == "document" else ("queries.jsonl", "queries")
        self.counts[count] += 1
        self._write(name, json.dumps(record, ensure_ascii=False))

    def judge(self, split: str, query_id: str, *doc_ids: str, score: int = 1) -> None:
        """Add a judgement for each document. Duplicate documents are judged once.

        Args:
            split: Name of the split.
            query_id: Id of the query.
            *doc_ids: Ids of the documents.
            score: Relevance score of all of them.
        """
        self._judgements[split] += [(query_id, doc_id, score) for doc_id in dict.fromkeys(doc_ids)]

    def edge(self, source: str, target: str, kind: str, **columns: str) -> None:
        """Add an edge between two documents.

        Args:
            source: Id of the document at the start of the edge.
            target: Id of the document at its end.
            kind: Edge type.
            **columns: Further columns by name. All edges of a data set must have the same columns.
        """
        self._edge_columns = tuple(columns)
        self._edges.append((source, target, kind, *columns.values()))

    def drop(self, kind: str, record_id: str, reason: str, detail: str = "") -> None:
        """List a record in ``dropped.jsonl``, and count its reason for the card.

        Args:
            kind: ``query``, ``document``, ``judgement`` or ``edge``.
            record_id: Id of the record.
            reason: Reason, with the same words for all records with the same problem.
            detail: Particulars of this record. They are listed but not counted.
        """
        self.reasons[f"{kind}: {reason}"] += 1
        dropped = {"kind": kind, "id": record_id, "reason": reason, "detail": detail}
        self._write(DROPPED_FILE, json.dumps(dropped, ensure_ascii=False))

    def finish(self) -> None:
        """Write the judgements and edges, and close all files."""
        documents, queries = self._empty["document"], self._empty["query"]
        for split, rows in self._judgements.items():
            valid = [row for row in rows if row[0] not in queries and row[1] not in documents]
            if valid:
                self._write_table(f"qrels/{split}.tsv", [("query-id", "corpus-id", "score"), *valid])
                self.counts["qrels"][split] = {"queries": len({row[0] for row in valid}), "rows": len(valid)}
        if edges := [edge for edge in self._edges if documents.isdisjoint(edge[:2])]:
            self._write_table("edges.tsv", [("source", "target", "type", *self._edge_columns), *edges])
        self.counts["edges"] = len(edges)
        self.close()

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()

    def _write_table(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        for row in rows:
            self._write(name, "\t".join(map(str, row)))

    def _write(self, name: str, line: str) -> None:
        if name not in self._files:
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            self._files[name] = path.open("wb")
        self._files[name].write(f"{line}\n".encode())


@dataclass(frozen=True)
class Builder:
    """Builder of one data set, registered as an entry point of the group ``graphrerank.builders``.

    Attributes:
        name: Name on the command line.
        title: Name of the data set.
        license: Licence of the data set.
        page: URL of the page on which the authors publish the files.
        read: Function that reads a :class:`RawFiles` and writes to a :class:`DatasetWriter`. Its keyword arguments are
            the options of the builder. Errors that it raises while it reads are reported as an unexpected file format.
    """

    name: str
    title: str
    license: str
    page: str
    read: Callable[..., None]

    def __call__(
        self,
        locations: Sequence[str],
        out: str | Path,
        *,
        downloads: Path,
        downloader: Downloader = download,
        **options: Any,
    ) -> dict[str, Any]:
        """Build a data set folder.

        Nothing is written if an option or a file is invalid, or if
        :meth:`~graphrerank.data.dataset.Dataset.from_folder` would reject the folder.

        Args:
            locations: Paths or URLs of the authors' files (see :class:`RawFiles`).
            out: Folder to write. It must be new or empty.
            downloads: Folder in which downloaded files are stored and found again.
            downloader: Function that downloads a URL to a path.
            **options: Options of the builder, which are the keyword arguments of :attr:`read`.

        Returns:
            Card of the data set: name, licence, source files, counts, reasons of dropped records, and hashes.

        Raises:
            UserError: If ``out`` is not empty, an option is unknown, or the files cannot be read.
        """
        out = Path(out)
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"`out` must be a new or empty folder, got {out}. Existing files are not overwritten.")
        allowed = inspect.getfullargspec(self.read).kwonlyargs
        if unknown := sorted(set(options) - set(allowed)):
            raise UserError(f"`options` of {self.name} must be among {allowed}, got {unknown[0]!r}")
        files = RawFiles(locations, downloads=downloads, downloader=downloader)
        with atomic_folder(out) as folder, closing(DatasetWriter(folder)) as writer:
            with files.parsing(self.title):
                self.read(files, writer, **options)
                writer.finish()
            Dataset.from_folder(folder)  # raises now, because an invalid folder could never be loaded
            card = self._card(writer, files, options)
            write_json(folder / DATASET_CARD, card)
            write_text(folder / "README.md", _page(card))
        return card

    def _card(self, writer: DatasetWriter, files: RawFiles, options: dict[str, Any]) -> dict[str, Any]:
        option_flags = "".join(f" --option {key}={options[key]}" for key in sorted(options))
        paths = sorted(path for path in writer.folder.rglob("*") if path.is_file())
        digests = {path.relative_to(writer.folder).as_posix(): hash_files([path]) for path in paths}
        return {
            "name": self.title,
            "license": self.license,
            "page": self.page,
            "built_by": f"graphrerank {version('graphrerank')} build {self.name}{option_flags}",
            "files": files.sources(),
            "counts": writer.counts,
            "dropped": dict(sorted(writer.reasons.items())),
            "notes": writer.notes,
            "sha256": digests,
            "hash": hash_json(digests),
        }


def builder(name: str, title: str, license: str, page: str) -> Callable[[Callable[..., None]], Builder]:
    """Return a decorator that turns a function into a :class:`Builder`.

    Args:
        name: Name on the command line.
        title: Name of the data set.
        license: Licence of the data set.
        page: URL of the page on which the authors publish the files.

    Returns:
        Decorator for a function that takes a :class:`RawFiles` and a :class:`DatasetWriter`.
    """
    return lambda read: Builder(name, title, license, page, read)


def _page(card: dict[str, Any]) -> str:
    counts = card["counts"]
    lines = [f"# {card['name']}", "", f"Licence: {card['license']}. Home: <{card['page']}>.", ""]
    lines += [f"Made by `{card['built_by']}` from:", ""]
    lines += [f"- `{file['name']}`, {file['bytes']:,} bytes, SHA-256 `{file['sha256']}`" for file in card["files"]]
    lines += ["", "| what | count |", "| --- | --: |"]
    lines += [f"| {kind} | {counts[kind]:,} |" for kind in ("documents", "queries", "edges")]
    for split, judged in counts["qrels"].items():
        lines.append(f"| judged queries of `{split}` | {judged['queries']:,} ({judged['rows']:,} judgements) |")
    if card["dropped"]:
        lines += ["", f"Dropped, one by one in `{DROPPED_FILE}`:", ""]
        lines += [f"- {reason}: {count:,}" for reason, count in card["dropped"].items()]
    lines += ["", *[f"- {note}" for note in card["notes"]], *([""] if card["notes"] else [])]
    lines += [f"Hash of all files: `{card['hash']}`.", ""]
    return "\n".join(lines)
