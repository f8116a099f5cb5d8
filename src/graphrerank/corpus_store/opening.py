"""A corpus folder: its columns, the manifest that makes them count, and the data set whose graph is mapped from them.

A column is one file of plain numbers, with its size and hashes in the manifest. It is written once, or appended to:
rows that the manifest counts never change, so that processes that have mapped the file go on. Rows beyond them are left
over from a growth that was stopped. A folder opens in constant time, but for the check of the rows of edges, and many
processes share its pages.
"""

import hashlib
import json
import math
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError, model_validator
from torch import Tensor

from graphrerank._moved import moved_names
from graphrerank.corpus import (
    AddedTokens,
    CorpusGraph,
    EntityIncidence,
    PackedStrings,
    Postings,
    TextStems,
    Vocabulary,
    WordIndex,
)
from graphrerank.corpus.corpus_graph import combined_hash
from graphrerank.corpus.edge_lists import GuardedEdges
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.corpus.mapped_pages import MappedPages
from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus.metadata_index import Entries
from graphrerank.corpus.passages import NodeVectors, Passages
from graphrerank.data.dataset import Dataset
from graphrerank.data.derived_edges import EdgeRule, Edges, FoundEdges
from graphrerank.data.qrels import Qrels
from graphrerank.text.languages import ENGLISH, language_of
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import append_bytes, hash_files, open_plain, write_chunks
from graphrerank.utils.safe_loading import plain_name, read_json

__getattr__ = moved_names(__name__)

CORPUS_MANIFEST = "corpus.json"
FORMAT = 3
CONTENT_COLUMNS = ("node_ids.offsets", "node_ids.content", "texts.offsets", "texts.content", "vectors")
VECTOR_INDEXES = {"ivf": "vectors.ivf", "hnsw": "vectors.hnsw"}
Array = npt.NDArray[Any]
PlainName = Annotated[str, AfterValidator(plain_name)]  # of a file or folder: no path
CHECKED_BYTES = 1 << 26  # of columns whose numbers are checked on opening: 30 ms; all with `thorough`
CHECKED_ROWS = 1 << 20  # at once
ROWS_OF = {  # column that says where rows begin: column of the rows
    "token.ptr": "token.postings",
    "added.ptr": "added.tokens",
    "stem.ptr": "stem.stems",
    "metadata.ptr": "metadata.holders",
    "entities.indptr": "entities.indices",
    "entities.holder_ptr": "entities.holders",
}
NUMBERS_OF = {  # column of numbers: the strings that they number
    "edges.indices": "node_ids",
    "edges.moved": "node_ids",  # of each row the first, as for the next one
    "token.postings": "node_ids",
    "added.tokens": "token.words",
    "stem.stems": "stem.words",
    "metadata.holders": "node_ids",
    "entities.indices": "entities.names",
    "entities.holders": "node_ids",
    "stated.pairs": "node_ids",
    "guarded.pairs": "node_ids",
    "guarded.group": "guarded.groups",
    "split.query": "query_ids",
    "split.node": "node_ids",
    "removed": "node_ids",
}
HASH_BYTES = 1 << 20  # read at once
END_BYTES = 1 << 16  # at a file's start and end, which are compared whenever the folder is opened
WHOLE_BYTES = 1 << 22  # of files that are then compared as a whole: 5 ms; a GB takes 1.1 s, and is left to `thorough`


class Column(BaseModel):
    """One file of numbers."""

    model_config = ConfigDict(frozen=True)

    dtype: Literal["<i8", "<i4", "<f4", "<f2", "|u1", "|b1"]  # byte order, kind and bytes
    shape: tuple[NonNegativeInt, ...] = Field(min_length=1)
    pieces: tuple[tuple[NonNegativeInt, str], ...]  # bytes and SHA-256 of what was written first, and of what followed
    ends: str  # SHA-256 of the first and last 64 KiB

    @model_validator(mode="after")
    def _pieces_make_the_whole(self) -> Self:
        if sum(size for size, _ in self.pieces) != self.num_bytes:
            raise UserError(f"pieces must have {self.num_bytes:,} bytes together, as `shape` says")
        return self

    @property
    def num_bytes(self) -> int:
        """Bytes of the file that count."""
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)


class ColumnWriter:
    """Writes columns of a folder, and appends to them; they count when the manifest holds its ``entries``."""

    def __init__(self, folder: Path, entries: Mapping[str, Column]) -> None:
        self.folder = folder
        self.entries = dict(entries)

    def write(self, name: str, dtype: str, blocks: Iterable[Array], row_shape: tuple[int, ...] = ()) -> None:
        """Write the rows of an array block by block, atomically; blocks ``[n, *row_shape]`` are converted."""
        chunks = (np.ascontiguousarray(block, dtype=dtype).data.cast("B") for block in blocks if block.size)
        sha256 = write_chunks(self.folder / name, chunks)
        size = (self.folder / name).stat().st_size
        count = size // (np.dtype(dtype).itemsize * math.prod(row_shape))
        self._note(name, dtype, (count, *row_shape), [(size, sha256)])

    def write_arrays(self, arrays: Mapping[str, Array]) -> None:
        """Write arrays, in their types."""
        for name, array in arrays.items():
            self.write(name, array.dtype.str, [array], array.shape[1:])

    def note_file(self, name: str) -> None:
        """Describe a file that something else wrote, as bytes."""
        size = (self.folder / name).stat().st_size
        self._note(name, "|u1", (size,), [(size, hash_files([self.folder / name]))])

    def append(self, name: str, rows: Array) -> None:
        """Append rows to a column.

        Pieces that are not longer than what follows are joined, so that their number grows with its logarithm.
        """
        if not len(rows):
            return
        column, path = self.entries[name], self.folder / name
        content = np.ascontiguousarray(rows, dtype=column.dtype).data.cast("B")
        append_bytes(path, column.num_bytes, content)
        pieces, length, sha256 = list(column.pieces), len(content), hashlib.sha256(content).hexdigest()
        size = column.num_bytes + len(content)
        while len(pieces) > 1 and pieces[-1][0] <= length:
            length += pieces.pop()[0]
            sha256 = _hash(path, (size - length, size))
        self._note(name, column.dtype, (column.shape[0] + len(rows), *column.shape[1:]), [*pieces, (length, sha256)])

    def append_strings(self, name: str, added: Iterable[str]) -> None:
        """Append strings to the two columns of a list of them."""
        strings = PackedStrings.of(added)
        self.append(f"{name}.offsets", strings.offsets[1:] + self.entries[f"{name}.content"].shape[0])
        self.append(f"{name}.content", strings.content)

    def _note(self, name: str, dtype: Any, shape: tuple[int, ...], pieces: list[tuple[int, str]]) -> None:
        ends = _hash_ends(self.folder / name, sum(size for size, _ in pieces))
        self.entries[name] = Column(dtype=dtype, shape=shape, pieces=tuple(pieces), ends=ends)


class Columns:
    """The columns of a manifest, checked as :func:`open_corpus` says, and mapped; ``pages`` are those that are read."""

    def __init__(self, folder: Path, entries: Mapping[str, Column], *, thorough: bool = False) -> None:
        self.folder, self.entries, self.pages = folder, entries, MappedPages()
        if folder.exists() or folder.is_symlink():  # else each file is missing
            os.close(open_plain(folder, getattr(os, "O_DIRECTORY", 0)))
        for name, column in entries.items():
            _check_file(folder / name, column, thorough=thorough)
        for name, column in entries.items():
            if thorough or column.num_bytes <= CHECKED_BYTES:
                self._check_numbers(name, column)

    def _check_numbers(self, name: str, column: Column) -> None:
        """Check that a column's numbers lead to no place outside another column."""
        rows = f"{name.removesuffix('offsets')}content" if name.endswith(".offsets") else ROWS_OF.get(name, "")
        if rows in self.entries:
            self.check_rows(name, self.array(name, "<i8"), self.entries[rows].shape[0])
        strings = f"{NUMBERS_OF.get(re.sub('^split[0-9]+', 'split', name))}.offsets"
        if strings in self.entries and column.num_bytes:
            numbers = self.array(name, column.dtype, column.shape[1:])
            if name in ("edges.moved", "token.postings"):
                numbers = numbers.reshape(len(numbers), -1)[:, 0]
            least, most, count = int(numbers.min()), int(numbers.max()), self.entries[strings].shape[0] - 1
            if least < 0 or most >= count:
                found = least if least < 0 else most
                raise self._odd(name, f"must hold numbers from 0 to {count - 1:,}, found {found:,}")

    def check_rows(self, name: str, start: Array, count: int, stop: Array | None = None) -> None:
        """Check that rows of a column lie within another one.

        Args:
            name: The column, for messages.
            start: Where each row begins, ``[N + 1]``, or ``[N]`` with ``stop``.
            count: Number of rows of the other column.
            stop: Where each row ends, ``[N]``. If None, each ends where the next begins, and the last at ``count``.

        Raises:
            ValueError: If a row does; the message names the file.
        """
        if stop is None and (not len(start) or start[0] != 0 or start[-1] != count):
            found = f"{int(start[0]):,} to {int(start[-1]):,}" if len(start) else "none"
            raise self._odd(name, f"must have rows from 0 to {count:,}, found {found}")
        first, last = (start[:-1], start[1:]) if stop is None else (start, stop)
        for at in range(0, len(first), CHECKED_ROWS):
            begins, ends = first[at : at + CHECKED_ROWS], last[at : at + CHECKED_ROWS]
            odd = np.flatnonzero((begins < 0) | (begins > ends) | (ends > count))
            if len(odd):
                row = f"{int(begins[odd[0]]):,} to {int(ends[odd[0]]):,} of {count:,}"
                raise self._odd(
                    name, f"must have rows that lie behind each other, found row {at + int(odd[0]):,} at {row}"
                )

    def _odd(self, name: str, reason: str) -> UserError:
        return UserError(f"{self.folder / name}: {reason}; prepare the corpus again")

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def array(self, name: str, dtype: str, row_shape: tuple[int, ...] = (), *, private: bool = False) -> Array:
        """Map a column of some type; a ``private`` one may be written to, which no other process sees."""
        column = self.entries.get(name)
        if column is None or column.dtype != dtype or column.shape[1:] != row_shape:
            raise UserError(f"{self.folder}: needed a column {name!r} of type {dtype}, found {column}")
        if not column.num_bytes:
            return np.zeros(column.shape, dtype=dtype)
        return self.pages.map(self.folder / name, dtype, column.shape, private=private)

    def tensor(self, name: str, dtype: str, row_shape: tuple[int, ...] = ()) -> Tensor:
        """Map a column as a tensor, which must not be written to."""
        array = self.array(name, dtype, row_shape)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            return torch.from_numpy(array)

    def strings(self, name: str) -> PackedStrings:
        """Map the two columns of a list of strings."""
        return PackedStrings(self.array(f"{name}.offsets", "<i8"), self.array(f"{name}.content", "|u1"))


def _check_file(path: Path, column: Column, *, thorough: bool) -> None:
    try:
        is_same, start = _hash_ends(path, column.num_bytes) == column.ends, 0
        for length, sha256 in column.pieces if thorough or column.num_bytes <= WHOLE_BYTES else ():
            is_same = is_same and _hash(path, (start, start + length)) == sha256
            start += length
    except FileNotFoundError:
        raise UserError(f"{path}: is missing; prepare the corpus again") from None
    if not is_same:
        found = "damaged, cut off or another corpus's (its hash is not the manifest's)"
        raise UserError(f"{path}: is {found}; prepare the corpus again")


def _hash_ends(path: Path, size: int) -> str:
    return _hash(path, (0, min(size, END_BYTES)), (max(0, size - END_BYTES), size))


def _hash(path: Path, *ranges: tuple[int, int]) -> str:
    """Hash the bytes of a file from ``start`` to ``stop`` of each range, one after the other."""
    sha = hashlib.sha256()
    with os.fdopen(open_plain(path), "rb") as file:
        for start, stop in ranges:
            file.seek(start)
            while start < stop and (block := file.read(min(HASH_BYTES, stop - start))):
                sha.update(block)
                start += len(block)
    return sha.hexdigest()


class EncoderName(BaseModel):
    """The encoder of a corpus's vectors."""

    name: str
    fingerprint: str


class CorpusManifest(BaseModel):
    """Manifest of a corpus folder. It is written last, and only rows that it counts are read."""

    model_config = ConfigDict(frozen=True)

    format: int
    name: str
    fingerprint: str  # of the data set, with the type of its vectors and all changes since
    encoder: EncoderName | None
    knn: int = 0  # edges from each passage to its nearest neighbours that the preparation found
    knn_below: int | None = None  # from those with fewer others than this; None: from all
    derived: EdgeRule | None = None  # how edges are found in the texts; None: not at all
    num_prepared: int = 0  # passages that the folder was prepared with
    language: str = ENGLISH
    num_tokens: int  # of BM25 in all passages but removed ones, repeats included
    num_stems: int  # of the prepared passages, in order; those of added passages follow
    splits: Sequence[str]
    edge_counts: Mapping[str, int]
    answers: Mapping[str, Sequence[str]]
    columns_folder: PlainName
    columns: Mapping[PlainName, Column]

    def has_grown(self) -> bool:
        """Return whether passages were added or removed."""
        return self.columns["added.ptr"].shape != (1,) or self.columns["removed"].shape != (0,)


def is_corpus_folder(path: str | Path) -> bool:
    """Return whether a folder was written by :func:`prepare_corpus`."""
    return (Path(path) / CORPUS_MANIFEST).is_file()


def open_corpus(path: str | Path, *, name: str | None = None, thorough: bool = False) -> Dataset:
    """Open a corpus folder.

    Files of up to 4 MiB, and the ends of larger ones, are compared with the hashes in the manifest. Rows and numbers of
    columns of up to 64 MiB, and the rows of edges of any size, are checked to lie in their ranges.

    Args:
        path: The folder.
        name: Short name of the data set. If None, the one that the folder was prepared with is used.
        thorough: Whether to compare and check all files as a whole.

    Returns:
        The data set, whose graph is mapped from the folder.

    Raises:
        ValueError: If a file is missing, truncated, damaged, a symbolic link or another corpus's, or holds numbers out
            of range; the message names the file.
    """
    manifest, columns = read_columns(Path(path), thorough=thorough)
    try:
        graph = map_graph(columns, manifest)
        read = {split: _qrels(columns, number, graph.passages.removed) for number, split in enumerate(manifest.splits)}
    except (IndexError, RuntimeError) as error:
        raise UserError(f"{path}: has columns that do not fit each other ({error}); prepare it again") from error
    return Dataset(
        name or manifest.name,
        graph,
        columns.strings("query_ids")[:],
        columns.strings("query_texts")[:],
        {split: qrels for split, qrels in read.items() if len(qrels.query)},  # not one whose passages are all removed
        edge_counts=manifest.edge_counts,
        answers=manifest.answers,
        encoded_by=None if manifest.encoder is None else manifest.encoder.fingerprint,
        known_fingerprint=manifest.fingerprint,
        found=_found(columns, manifest, graph) if graph.is_guarded else None,
    )


def _found(columns: Columns, manifest: CorpusManifest, graph: CorpusGraph) -> FoundEdges | None:
    """Map what edges follow from that the preparation found."""
    if manifest.derived is None and not manifest.knn:
        return None
    names = None
    if "stated.entities.offsets" in columns:
        held = columns.strings("stated.entities")
        names = lambda nodes: [set(json.loads(row) or ()) for row in held.chosen(nodes)]  # noqa: E731
    below = graph.num_nodes if manifest.knn_below == manifest.num_prepared else manifest.knn_below
    return FoundEdges(
        stated_edges(columns), manifest.derived or EdgeRule(mention_type=None), names, manifest.knn, below
    )


def stated_edges(columns: Columns) -> Edges | None:
    """Map the edges that a preparation was given, where it found others."""
    if "stated.pairs" not in columns:
        return None
    weight, types = columns.tensor("stated.weight", "<f4"), columns.tensor("stated.type", "<i8")
    return columns.tensor("stated.pairs", "<i8", (2,)), weight, types


def read_columns(folder: Path, *, thorough: bool = False) -> tuple[CorpusManifest, Columns]:
    """Read the manifest of a corpus folder, and check its columns; again if it is compacted meanwhile."""
    while True:
        manifest = read_corpus_manifest(folder)
        try:
            return manifest, Columns(folder / manifest.columns_folder, manifest.columns, thorough=thorough)
        except ValueError:
            if read_corpus_manifest(folder).columns_folder == manifest.columns_folder:
                raise


def read_corpus_manifest(folder: Path) -> CorpusManifest:
    """Read the manifest of a corpus folder; a ValueError names what is wrong with it."""
    path = folder / CORPUS_MANIFEST
    again = f"prepare it again: graphrerank prepare {folder} data=... encoder=..."
    try:
        os.close(open_plain(path))
        content = read_json(path)
        found = content.get("format") if isinstance(content, dict) else content
        if found != FORMAT:
            raise UserError(f"{path}: needed a corpus folder of format {FORMAT}, found {str(found)[:80]!r}; {again}")
        return CorpusManifest.model_validate(content)
    except FileNotFoundError:
        needed = f"{CORPUS_MANIFEST}, which `graphrerank prepare DIR` writes last"
        raise UserError(f"{folder}: needed {needed}; found none") from None
    except (ValidationError, KeyError) as error:
        reason = str(error).partition("\n  For further")[0].replace("\n", " ")
        raise UserError(f"{path}: is damaged ({reason}); {again}") from error


def map_graph(columns: Columns, manifest: CorpusManifest) -> CorpusGraph:
    """Map a corpus: what was prepared, and in memory of this process what was changed since, in so far as it moved."""
    gone, node_ids, removed = columns.array("removed", "<i8"), columns.strings("node_ids"), None
    if len(gone):
        removed = torch.zeros(len(node_ids), dtype=torch.bool)
        removed[torch.from_numpy(gone.copy())] = True
    passages = Passages(
        node_ids,
        columns.strings("texts"),
        title_lengths=columns.tensor("title_lengths", "<i4") if "title_lengths" in columns else None,
        language=language_of(manifest.language).name,
        words=WordIndex(_tokens(columns, manifest.num_tokens, removed), _stems(columns, manifest.num_stems, gone)),
        removed=removed,
        metadata=_metadata(columns, manifest.num_prepared) if "metadata.ptr" in columns else None,
    )
    indptr, row_stop = _rows_of_edges(columns)
    typed = "edges.weight_by_type"
    return CorpusGraph(
        passages,
        indptr=indptr,
        indices=columns.tensor("edges.indices", "<i8"),
        weight=columns.tensor("edges.weight", "<f4"),
        weight_by_type=columns.tensor(typed, "<f4", (len(EDGE_TYPES),)) if typed in columns else None,
        row_stop=row_stop,
        entities=_entities(columns, len(node_ids), removed),
        vectors=_vectors(columns) if "vectors" in columns else None,
        guarded=_guarded(columns) if "guarded.pairs" in columns else None,
        pages=columns.pages,
    )


def _qrels(columns: Columns, number: int, removed: Tensor | None) -> Qrels:
    """Map the judgements of a split; of removed passages there are none."""
    query, node = (columns.tensor(f"split{number}.{name}", "<i8") for name in ("query", "node"))
    kept = slice(None) if removed is None else ~removed[node]
    return Qrels(query[kept], node[kept], columns.tensor(f"split{number}.gain", "<f4")[kept])


def _rows_of_edges(columns: Columns) -> tuple[Tensor, Tensor | None]:
    """Map where each row of edges begins and, if some have moved, where it ends."""
    name, count = "edges.indptr", len(columns.array("edges.indices", "<i8"))
    num_nodes = len(columns.strings("node_ids"))
    for column, needed in ((name, num_nodes + 1), ("edges.weight", count), ("edges.weight_by_type", count)):
        if column in columns and columns.entries[column].shape[0] != needed:
            found = columns.entries[column].shape[0]
            raise UserError(f"{columns.folder / column}: must have {needed:,} rows, found {found:,}; prepare it again")
    moved = columns.array("edges.moved", "<i8", (3,))
    if not len(moved):
        start = columns.array(name, "<i8")
        columns.check_rows(name, start, count)
        return columns.tensor(name, "<i8"), None
    start, stop = (columns.array(name, "<i8", private=True) for _ in range(2))
    start[moved[:, 0]] = moved[:, 1]  # of several moves the last
    stop[1:][moved[:, 0]] = moved[:, 2]
    columns.check_rows(name, start[:-1], count, stop[1:])
    return torch.from_numpy(start), torch.from_numpy(stop[1:])


def _vectors(columns: Columns) -> NodeVectors:
    """Map vectors and their index; the hash of a corpus that has grown is not known."""
    dtype = "<f2" if columns.entries["vectors"].dtype == "<f2" else "<f4"
    index = next((columns.folder / name for name in VECTOR_INDEXES.values() if name in columns), None)
    pieces = [columns.entries[name].pieces for name in CONTENT_COLUMNS]
    content = combined_hash(*(of[0][1] for of in pieces)) if all(len(of) == 1 for of in pieces) else None
    return NodeVectors(columns.tensor("vectors", dtype, columns.entries["vectors"].shape[1:]), index, content)


def _metadata(columns: Columns, num_prepared: int) -> Metadata:
    """Map metadata with the index that the preparation wrote; that of added passages is built at the first need."""
    ptr, holders = columns.array("metadata.ptr", "<i8"), columns.array("metadata.holders", "<i4")
    return Metadata(columns.strings("metadata"), Entries(columns.strings("metadata.terms"), ptr, holders), num_prepared)


def _guarded(columns: Columns) -> GuardedEdges:
    pairs, weight = columns.tensor("guarded.pairs", "<i8", (2,)), columns.tensor("guarded.weight", "<f4")
    types, group = (columns.tensor(f"guarded.{name}", "<i8") for name in ("types", "group"))
    return GuardedEdges(pairs, weight, types, group, columns.strings("guarded.groups")[:])


def _entities(columns: Columns, num_nodes: int, removed: Tensor | None) -> EntityIncidence | None:
    """Map which passage holds which entity; added and removed ones hold none."""
    if "entities.sizes" not in columns:
        return None
    names = ("indptr", "indices", "sizes", "holder_ptr", "holders")
    indptr, indices, sizes, start, holder = (columns.tensor(f"entities.{name}", "<i8") for name in names)
    incidence = EntityIncidence(columns.strings("entities.names"), indptr, indices, sizes, (start, holder))
    return incidence if removed is None and num_nodes == len(sizes) else incidence.resized(num_nodes, removed)


def _tokens(columns: Columns, num_tokens: int, removed: Tensor | None) -> Postings:
    postings = columns.array("token.postings", "<i4", (2,))
    ptr, added = (columns.array(name, "<i8") for name in ("token.ptr", "added.ptr"))
    lengths, *held = (columns.array(name, "<i4") for name in ("token.lengths", "added.tokens", "added.counts"))
    return Postings(
        words=Vocabulary(columns.strings("token.words"), len(ptr) - 1),
        ptr=ptr,
        texts=postings[:, 0],
        counts=postings[:, 1],
        lengths=lengths,
        num_tokens=num_tokens,
        added=AddedTokens(len(lengths) - len(added) + 1, added, *held) if len(added) > 1 else None,
        numbers=None if removed is None else np.where(removed.numpy(), -1, np.arange(len(removed))).astype(np.int32),
    )


def _stems(columns: Columns, num_prepared: int, removed: npt.NDArray[np.int64]) -> TextStems:
    ptr, stems = columns.array("stem.ptr", "<i8"), columns.array("stem.stems", "<i4")
    num_added = len(columns.array("added.ptr", "<i8")) - 1
    texts_with = columns.array("stem.texts_with", "<i8", private=bool(num_added or len(removed)))
    if num_added:
        np.add.at(texts_with, stems[int(ptr[-1 - num_added]) :], 1)
    for node in removed.tolist():
        texts_with[stems[int(ptr[node]) : int(ptr[node + 1])]] -= 1  # each stem once in a text
    return TextStems(
        words=Vocabulary(columns.strings("stem.words"), num_prepared),
        ptr=ptr,
        stems=stems,
        in_lead=columns.array("stem.in_lead", "|b1"),
        texts_with=texts_with,
        num_texts=len(ptr) - 1 - len(removed),
    )
