"""The data set folder: what a user brings. It is BEIR's layout, with edges.

- ``corpus.jsonl``: ``{"_id", "title"?, "text", "metadata"?}`` a line.
- ``queries.jsonl``: ``{"_id", "text", "metadata"?}`` a line.
- ``qrels/<split>.tsv``: the header ``query-id corpus-id score``; a score of 0 means judged not relevant.
- ``edges.tsv``, optional: ``source target type [weight]``.

Gzipped JSONL and Parquet are read too, so that a BEIR data set as it lies on the Hugging Face hub is such a folder. An
id that does not match, a text that is empty, a score that is no number: each is an error that names file and line.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from graphrerank.data.dataset import RetrievalDataset
from graphrerank.data.edge_list import FILTERED, read_edges
from graphrerank.data.enrichment.mentions import mention_edges
from graphrerank.data.judgements import (
    Judgement,
    Splits,
    as_qrels,
    plan_splits,
    qrels_files,
    read_qrels,
    share_of_queries,
)
from graphrerank.data.records import Record, bad_line, find_record_files, read_records
from graphrerank.graphs import CorpusGraph

EDGES = "edges.tsv"  # read where it is there
_ENDS = (".", "!", "?", ":", ";")
_BREAKS = set("\t\r\n")  # would not survive a TSV file


class Document(NamedTuple):
    """One line of the corpus; ``metadata`` is empty where the file gives none."""

    doc_id: str
    title: str
    text: str
    metadata: Mapping[str, Any]

    @property
    def passage(self) -> str:
        """The text of its node: title and text as two sentences.

        Example:
            >>> Document("1", "Marie Curie", "She was a physicist.", {}).passage
            'Marie Curie. She was a physicist.'
        """
        if not (self.title and self.text):
            return self.title or self.text
        return f"{self.title}{'' if self.title.endswith(_ENDS) else '.'} {self.text}"


class Query(NamedTuple):
    """One line of the queries; ``metadata`` is empty where the file gives none."""

    query_id: str
    text: str
    metadata: Mapping[str, Any]


def load_folder(
    path: str | Path,
    *,
    name: str | None = None,
    splits: Splits = None,
    edges: Sequence[str] | None = None,
    edge_types: Sequence[str] | None = None,
    corpus_where: Mapping[str, Any] | None = None,
    drop_empty: bool = False,
    mentions: bool = False,
) -> RetrievalDataset:
    """Read and check a data set folder.

    Args:
        path: The folder.
        name: Short name; the folder's own when None.
        splits: Which judgements to read. None: every file, each under its name, and queries without judgements stay.
            A list of names; or a mapping from a split's name to a file's, or to a share of its queries in their file's
            order: ``{"train": "train[:90%]", "val": "train[90%:]", "test": "dev"}``. Only their queries are kept.
        edges: Names of edge files in the folder. None: ``edges.tsv`` where it is there. Edges between two documents
            become one, with the largest weight.
        edge_types: Types of edges to keep; None keeps all.
        corpus_where: Keep only documents whose metadata holds these entries (for a list: one of its members), and the
            edges among them: ``{"split": "dev"}``. Judgements of a document that is left out are an error: name the
            ``splits`` that belong to these documents.
        drop_empty: Leave out documents without title and text, which are an error otherwise.
        mentions: Join documents also where one's title occurs in the other's text
            (:func:`~graphrerank.data.enrichment.mentions.mention_edges`).

    Raises:
        ValueError: If a file is missing or malformed, naming file and line.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise ValueError(
            f"{folder}: no such folder; a data set needs corpus.jsonl, queries.jsonl and qrels/<split>.tsv"
        )
    edge_files = [folder / file for file in edges] if edges is not None else _default_edges(folder)
    node_number, documents = _number_documents(folder, corpus_where, drop_empty=drop_empty)
    queries = list(read_queries(folder))
    query_number = {query.query_id: i for i, query in enumerate(queries)}
    judged = _read_splits(folder, splits, query_number, node_number)
    if splits is not None:
        kept = sorted({row.query for rows in judged.values() for row in rows})
        renumbered = {query: i for i, query in enumerate(kept)}
        queries = [queries[query] for query in kept]
        judged = {s: [row._replace(query=renumbered[row.query]) for row in rows] for s, rows in judged.items()}
    pairs, weight = read_edges(edge_files, node_number, edge_types=edge_types)
    if mentions:
        mentioned, _ = mention_edges([doc.title for doc in documents], [doc.text for doc in documents])
        pairs, weight = torch.cat([pairs, mentioned]), torch.cat([weight, torch.ones(len(mentioned))])
    return RetrievalDataset(
        name or folder.resolve().name,
        CorpusGraph.from_edges([doc.doc_id for doc in documents], [doc.passage for doc in documents], pairs, weight),
        [query.query_id for query in queries],
        [query.text for query in queries],
        {split: as_qrels(rows) for split, rows in judged.items()},
    )


def read_documents(folder: str | Path, *, drop_empty: bool = False) -> Iterator[Document]:
    """Read the corpus of a data set folder, one document at a time.

    Raises:
        ValueError: Naming file and line, if an id is missing or repeats, or a document has neither title nor text.
    """
    for file, line, record, doc_id in _identified(Path(folder), "corpus"):
        title, text = _text(file, line, record, "title", optional=True), _text(file, line, record, "text")
        if title or text:
            yield Document(doc_id, title, text, _metadata(file, line, record))
        elif not drop_empty:
            raise bad_line(file, line, needed="a `title` or a `text` (or `drop_empty`)", found=record)


def read_queries(folder: str | Path) -> Iterator[Query]:
    """Read the queries of a data set folder, one at a time.

    Raises:
        ValueError: Naming file and line, if an id is missing or repeats, or a text is empty.
    """
    for file, line, record, query_id in _identified(Path(folder), "queries"):
        text = _text(file, line, record, "text")
        if not text:
            raise bad_line(file, line, needed="a `text`", found=record)
        yield Query(query_id, text, _metadata(file, line, record))


def _number_documents(
    folder: Path, where: Mapping[str, Any] | None, *, drop_empty: bool
) -> tuple[dict[str, int], list[Document]]:
    """Number the documents kept, in order; the others get -1."""
    number: dict[str, int] = {}
    documents: list[Document] = []
    for document in read_documents(folder, drop_empty=drop_empty):
        kept = where is None or _matches(document.metadata, where)
        number[document.doc_id] = len(documents) if kept else FILTERED
        if kept:
            documents.append(document)
    if not documents:
        wanted = f" with {dict(where)} in its metadata (`corpus_where`)" if where and number else ""
        raise ValueError(f"{folder}: the corpus must hold a document{wanted}, found none")
    return number, documents


def _matches(metadata: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    for key, wanted in where.items():
        several = isinstance(wanted, Sequence) and not isinstance(wanted, str)
        if key not in metadata or metadata[key] not in (wanted if several else [wanted]):
            return False
    return True


def _read_splits(
    folder: Path, splits: Splits, query_number: Mapping[str, int], node_number: Mapping[str, int]
) -> dict[str, list[Judgement]]:
    files = qrels_files(folder)
    plan = plan_splits(splits, files)
    rows: dict[str, list[Judgement]] = {}
    owner: dict[int, tuple[str, int]] = {}
    ids = list(query_number)
    for file in dict.fromkeys(file for file, _, _ in plan.values()):
        rows[file], first_line = read_qrels(files[file], query_number, node_number)
        for query, line in first_line.items():
            if query in owner:
                other = f"{ids[query]}, which {owner[query][0]} judges too (line {owner[query][1]})"
                raise bad_line(files[file], line, needed="a query of no other split", found=other)
            owner[query] = (files[file].name, line)
    judged = {split: share_of_queries(rows[file], start, stop) for split, (file, start, stop) in plan.items()}
    for split, part in judged.items():
        if not part:
            raise ValueError(f"`splits` must each hold a query, got none for {split!r} of {folder}")
    return judged


def _default_edges(folder: Path) -> list[Path]:
    return [folder / EDGES] if (folder / EDGES).is_file() else []


def _identified(folder: Path, table: str) -> Iterator[tuple[Path, int, Record, str]]:
    """Read a table's records with their ids, each of which occurs once."""
    seen: set[str] = set()
    for file in find_record_files(folder, table):
        for line, record in read_records(file):
            found = record.get("_id")
            if file.suffix == ".parquet" and type(found) is int:
                found = str(found)
            if not isinstance(found, str) or not found or found != found.strip() or _BREAKS & set(found):
                needed = "an `_id`: a string, not empty, without tabs, line breaks or blanks at its ends"
                raise bad_line(file, line, needed=needed, found=found)
            if found in seen:
                raise bad_line(file, line, needed="each `_id` once", found=f"{found} a second time")
            seen.add(found)
            yield file, line, record, found


def _text(file: Path, line: int, record: Record, key: str, *, optional: bool = False) -> str:
    text = record.get(key)
    if text is None and optional:
        return ""
    if not isinstance(text, str):
        raise bad_line(file, line, needed=f"a string as `{key}`", found=text)
    return text.strip()


def _metadata(file: Path, line: int, record: Record) -> Mapping[str, Any]:
    metadata = record.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise bad_line(file, line, needed="an object as `metadata`", found=metadata)
    return metadata
