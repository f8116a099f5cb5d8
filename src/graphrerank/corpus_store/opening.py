"""Columns and manifest of a corpus folder, and the data set whose graph is mapped from them.

A column is one file of plain numbers, described by an entry in the manifest with its size and hashes. It is written
once and can be appended to. Rows that the manifest counts never change, so processes that have mapped the file are not
affected. Rows beyond them are left over from an interrupted update. A folder opens in constant time, except for the
check of the rows of edges, and processes share the mapped pages.
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
from graphrerank.data.derived_edges import EdgeRecipe, EdgeRule, Edges
from graphrerank.data.qrels import Qrels
from graphrerank.text.languages import ENGLISH, language_of
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import append_bytes, hash_files, open_plain, write_chunks
from graphrerank.utils.safe_loading import plain_name, read_json

__getattr__ = moved_names(__name__)

CORPUS_MANIFEST = "corpus.json"
FORMAT = 3  # Format version of corpus folders. A folder with another version must be prepared again.
CONTENT_COLUMNS = ("node_ids.offsets", "node_ids.content", "texts.offsets", "texts.content", "vectors")
VECTOR_INDEXES = {"ivf": "vectors.ivf", "hnsw": "vectors.hnsw"}
Array = npt.NDArray[Any]
PlainName = Annotated[str, AfterValidator(plain_name)]  # Name of a file or folder, without a path.
# Columns of up to this many bytes are checked on opening, which takes 30 ms. With `thorough`, all columns are checked.
CHECKED_BYTES = 1 << 26
CHECKED_ROWS = 1 << 20  # Number of rows checked at once.
ROWS_OF = {  # Columns of row boundaries, and the columns that contain the rows.
    "token.ptr": "token.postings",
    "added.ptr": "added.tokens",
    "stem.ptr": "stem.stems",
    "metadata.ptr": "metadata.holders",
    "entities.indptr": "entities.indices",
    "entities.holder_ptr": "entities.holders",
}
NUMBERS_OF = {  # Columns of indices, and the lists of strings that they index.
    "edges.indices": "node_ids",
    "edges.moved": "node_ids",  # Only the first number of each row is an index. The same holds for the next entry.
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
HASH_BYTES = 1 << 20  # Number of bytes read at once.
END_BYTES = 1 << 16  # Number of bytes at the start and end of each file that are compared on every opening.
# Files of up to this many bytes are compared as a whole, which takes 5 ms. A file of 1 GB takes 1.1 s.
WHOLE_BYTES = 1 << 22


class Column(BaseModel):
    """Manifest entry of one file of numbers.

    Attributes:
        dtype: NumPy type of the numbers: byte order, kind and number of bytes.
        shape: Shape of the array. The first dimension is the number of rows.
        pieces: Number of bytes and SHA-256 of the first write, and of each piece appended since.
        ends: SHA-256 of the first and last 64 KiB.
    """

    model_config = ConfigDict(frozen=True)

    dtype: Literal["<i8", "<i4", "<f4", "<f2", "|u1", "|b1"]
    shape: tuple[NonNegativeInt, ...] = Field(min_length=1)
    pieces: tuple[tuple[NonNegativeInt, str], ...]
    ends: str

    @model_validator(mode="after")
    def _pieces_make_the_whole(self) -> Self:
        if sum(size for size, _ in self.pieces) != self.num_bytes:
            raise UserError(f"`pieces` must have {self.num_bytes:,} bytes in total to match `shape`")
        return self

    @property
    def num_bytes(self) -> int:
        """Number of bytes that the manifest counts."""
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)


class ColumnWriter:
    """Writer of the columns of a folder. Columns become visible once the manifest contains ``entries``.

    Args:
        folder: Folder of the columns.
        entries: Manifest entries of existing columns, by name.

    Attributes:
        folder: Folder of the columns.
        entries: Manifest entries of all columns, by name.
    """

    def __init__(self, folder: Path, entries: Mapping[str, Column]) -> None:
        self.folder = folder
        self.entries = dict(entries)

    def write(self, name: str, dtype: str, blocks: Iterable[Array], row_shape: tuple[int, ...] = ()) -> None:
        """Write a column atomically, block by block.

        Args:
            name: Name of the column.
            dtype: NumPy type of the column. Blocks are converted to it.
            blocks: Blocks of rows, ``[n, *row_shape]`` each.
            row_shape: Shape of a row.
        """
        chunks = (np.ascontiguousarray(block, dtype=dtype).data.cast("B") for block in blocks if block.size)
        sha256 = write_chunks(self.folder / name, chunks)
        size = (self.folder / name).stat().st_size
        count = size // (np.dtype(dtype).itemsize * math.prod(row_shape))
        self._note(name, dtype, (count, *row_shape), [(size, sha256)])

    def write_arrays(self, arrays: Mapping[str, Array]) -> None:
        """Write columns with the types of the given arrays.

        Args:
            arrays: Arrays by the name of the column.
        """
        for name, array in arrays.items():
            self.write(name, array.dtype.str, [array], array.shape[1:])

    def note_file(self, name: str) -> None:
        """Add an entry for a file that was written by other code, as a column of bytes.

        Args:
            name: Name of the file.
        """
        size = (self.folder / name).stat().st_size
        self._note(name, "|u1", (size,), [(size, hash_files([self.folder / name]))])

    def append(self, name: str, rows: Array) -> None:
        """Append rows to a column.

        Pieces that are not longer than the rows after them are merged, so that the number of pieces grows
        logarithmically.

        Args:
            name: Name of an existing column.
            rows: Rows to append. They are converted to the type of the column.

        Raises:
            OSError: If the rows cannot be written.
        """
        if not len(rows):
            return
        column, path = self.entries[name], self.folder / name
        content = np.ascontiguousarray(rows, dtype=column.dtype).data.cast("B")
        append_bytes(path, column.num_bytes, content)
        pieces = list(column.pieces)
        size = column.num_bytes + len(content)  # of the column
        length, sha256 = len(content), hashlib.sha256(content).hexdigest()  # of its last piece
        while len(pieces) > 1 and pieces[-1][0] <= length:
            length += pieces.pop()[0]
            sha256 = _hash(path, (size - length, size))
        self._note(name, column.dtype, (column.shape[0] + len(rows), *column.shape[1:]), [*pieces, (length, sha256)])

    def append_strings(self, name: str, added: Iterable[str]) -> None:
        """Append strings to the two columns of a list of strings.

        Args:
            name: Name of the list.
            added: Strings to append.
        """
        strings = PackedStrings.of(added)
        self.append(f"{name}.offsets", strings.offsets[1:] + self.entries[f"{name}.content"].shape[0])
        self.append(f"{name}.content", strings.content)

    def _note(self, name: str, dtype: Any, shape: tuple[int, ...], pieces: list[tuple[int, str]]) -> None:
        ends = _hash_ends(self.folder / name, sum(size for size, _ in pieces))
        self.entries[name] = Column(dtype=dtype, shape=shape, pieces=tuple(pieces), ends=ends)


class Columns:
    """Columns of a manifest, checked and memory-mapped.

    Args:
        folder: Folder of the columns.
        entries: Manifest entries by the name of the column.
        thorough: Whether to check all files as a whole (:func:`open_corpus`).

    Attributes:
        folder: Folder of the columns.
        entries: Manifest entries by the name of the column.
        pages: Mapped pages of the columns that were read.

    Raises:
        ValueError: If a file is missing, damaged or a symbolic link, or contains indices out of range.
    """

    def __init__(self, folder: Path, entries: Mapping[str, Column], *, thorough: bool = False) -> None:
        self.folder, self.entries, self.pages = folder, entries, MappedPages()
        if folder.exists() or folder.is_symlink():  # If the folder is missing, the check of the files says so.
            os.close(open_plain(folder, getattr(os, "O_DIRECTORY", 0)))
        for name, column in entries.items():
            _check_file(folder / name, column, thorough=thorough)
        for name, column in entries.items():
            if thorough or column.num_bytes <= CHECKED_BYTES:
                self._check_numbers(name, column)

    def _check_numbers(self, name: str, column: Column) -> None:
        """Check that the numbers of a column are valid indices into another column."""
        rows = f"{name.removesuffix('offsets')}content" if name.endswith(".offsets") else ROWS_OF.get(name, "")
        if rows in self.entries:
            self.check_rows(name, self.array(name, "<i8"), self.entries[rows].shape[0])
        strings = f"{NUMBERS_OF.get(re.sub('^split[0-9]+', 'split', name))}.offsets"
        if strings in self.entries and column.num_bytes:
            numbers = self.array(name, column.dtype, column.shape[1:])
            if name in ("edges.moved", "token.postings"):
                numbers = numbers.reshape(len(numbers), -1)[:, 0]
            smallest, largest = int(numbers.min()), int(numbers.max())
            count = self.entries[strings].shape[0] - 1
            if smallest < 0 or largest >= count:
                number = smallest if smallest < 0 else largest
                raise self._damage(name, f"must contain numbers from 0 to {count - 1:,}, got {number:,}")

    def check_rows(self, name: str, start: Array, count: int, stop: Array | None = None) -> None:
        """Check that row boundaries are valid indices into another column.

        Args:
            name: Name of the column of boundaries, used in error messages.
            start: Start of each row, ``[N + 1]``, or ``[N]`` with ``stop``.
            count: Number of rows of the other column.
            stop: End of each row, ``[N]``. If None, each row ends where the next begins, and the last ends at
                ``count``.

        Raises:
            ValueError: If a boundary is out of range. The message names the file.
        """
        if stop is None and (not len(start) or start[0] != 0 or start[-1] != count):
            bounds = f"{int(start[0]):,} to {int(start[-1]):,}" if len(start) else "none"
            raise self._damage(name, f"must have rows from 0 to {count:,}, got {bounds}")
        first, last = (start[:-1], start[1:]) if stop is None else (start, stop)
        for offset in range(0, len(first), CHECKED_ROWS):
            rows = slice(offset, offset + CHECKED_ROWS)
            begins, ends = first[rows], last[rows]
            invalid = np.flatnonzero((begins < 0) | (begins > ends) | (ends > count))
            if len(invalid):
                bounds = f"{int(begins[invalid[0]]):,} to {int(ends[invalid[0]]):,} of {count:,}"
                row = offset + int(invalid[0])
                raise self._damage(name, f"must have rows in ascending order, got {bounds} for row {row:,}")

    def _damage(self, name: str, reason: str) -> UserError:
        return UserError(f"{self.folder / name}: {reason}; prepare the corpus again")

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def array(self, name: str, dtype: str, row_shape: tuple[int, ...] = (), *, private: bool = False) -> Array:
        """Map a column as an array.

        Args:
            name: Name of the column.
            dtype: Expected NumPy type.
            row_shape: Expected shape of a row.
            private: Whether the array may be written to. Changes are visible to this process only.

        Returns:
            Array ``[n, *row_shape]``.

        Raises:
            ValueError: If the column is missing, or has another type or shape.
        """
        column = self.entries.get(name)
        if column is None or column.dtype != dtype or column.shape[1:] != row_shape:
            raise UserError(f"{self.folder}: expected a column {name!r} of type {dtype}, got {column}")
        if not column.num_bytes:
            return np.zeros(column.shape, dtype=dtype)
        return self.pages.map(self.folder / name, dtype, column.shape, private=private)

    def tensor(self, name: str, dtype: str, row_shape: tuple[int, ...] = ()) -> Tensor:
        """Map a column as a tensor, which must not be written to.

        Args:
            name: Name of the column.
            dtype: Expected NumPy type.
            row_shape: Expected shape of a row.

        Returns:
            Tensor ``[n, *row_shape]``.

        Raises:
            ValueError: If the column is missing, or has another type or shape.
        """
        array = self.array(name, dtype, row_shape)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            return torch.from_numpy(array)

    def strings(self, name: str) -> PackedStrings:
        """Map the two columns of a list of strings.

        Args:
            name: Name of the list.

        Returns:
            The strings.

        Raises:
            ValueError: If a column is missing.
        """
        return PackedStrings(self.array(f"{name}.offsets", "<i8"), self.array(f"{name}.content", "|u1"))


def _check_file(path: Path, column: Column, *, thorough: bool) -> None:
    try:
        is_same, start = _hash_ends(path, column.num_bytes) == column.ends, 0
        for length, sha256 in column.pieces if thorough or column.num_bytes <= WHOLE_BYTES else ():
            is_same = is_same and _hash(path, (start, start + length)) == sha256
            start += length
    except FileNotFoundError:
        raise UserError(f"{path} is missing; prepare the corpus again") from None
    if not is_same:
        raise UserError(
            f"{path} is damaged, truncated or from another corpus (its hash differs from the manifest); "
            "prepare the corpus again"
        )


def _hash_ends(path: Path, size: int) -> str:
    return _hash(path, (0, min(size, END_BYTES)), (max(0, size - END_BYTES), size))


def _hash(path: Path, *ranges: tuple[int, int]) -> str:
    """Hash the given ranges of a file, one after the other. Each range is (start, stop) in bytes."""
    sha = hashlib.sha256()
    with os.fdopen(open_plain(path), "rb") as file:
        for start, stop in ranges:
            file.seek(start)
            while start < stop and (block := file.read(min(HASH_BYTES, stop - start))):
                sha.update(block)
                start += len(block)
    return sha.hexdigest()


class EncoderName(BaseModel):
    """Encoder of a corpus's vectors.

    Attributes:
        name: Short name.
        fingerprint: Hash that changes whenever the vectors would change.
    """

    name: str
    fingerprint: str


class CorpusManifest(BaseModel):
    """Manifest of a corpus folder. It is written last, and only rows that it counts are read.

    Attributes:
        format: Version of the format.
        name: Short name of the data set.
        fingerprint: Hash of the data set, the type of its vectors, and all updates since the preparation.
        encoder: Encoder of the vectors. None for a corpus without vectors.
        knn: Number of edges from each passage to its nearest neighbours at preparation.
        knn_below: Only passages with fewer neighbours than this got these edges. None if all passages got them.
        derived: Rule by which edges are derived from the texts. None if no edges are derived.
        num_prepared: Number of passages at preparation.
        language: Language in which words are matched.
        num_tokens: Number of tokens for BM25 in all passages except removed ones, repetitions included.
        num_stems: Number of stems of the prepared passages, which are sorted. Stems of added passages follow them.
        splits: Names of the splits with judgements.
        edge_counts: Number of pairs of passages joined by edges, by the source of the edges.
        answers: Correct answers by query id.
        columns_folder: Name of the folder of the columns.
        columns: Entries of the columns by name.
    """

    model_config = ConfigDict(frozen=True)

    format: int
    name: str
    fingerprint: str
    encoder: EncoderName | None
    knn: int = 0
    knn_below: int | None = None
    derived: EdgeRule | None = None
    num_prepared: int = 0
    language: str = ENGLISH
    num_tokens: int
    num_stems: int
    splits: Sequence[str]
    edge_counts: Mapping[str, int]
    answers: Mapping[str, Sequence[str]]
    columns_folder: PlainName
    columns: Mapping[PlainName, Column]

    def has_grown(self) -> bool:
        """Return whether passages were added or removed since the preparation."""
        return self.columns["added.ptr"].shape != (1,) or self.columns["removed"].shape != (0,)


def is_corpus_folder(path: str | Path) -> bool:
    """Return whether a folder was written by :func:`~graphrerank.corpus_store.preparation.prepare_corpus`.

    Args:
        path: Folder to check.

    Returns:
        True if the folder contains a manifest.
    """
    return (Path(path) / CORPUS_MANIFEST).is_file()


def open_corpus(path: str | Path, *, name: str | None = None, thorough: bool = False) -> Dataset:
    """Open a corpus folder as a data set.

    Files of up to 4 MiB, and both ends of larger files, are compared with the hashes in the manifest. The numbers in
    columns of up to 64 MiB, and the rows of edges of any size, are checked to be in range.

    Args:
        path: Corpus folder.
        name: Short name of the data set. If None, the name at preparation is used.
        thorough: Whether to compare and check all files as a whole.

    Returns:
        Data set whose graph is mapped from the folder.

    Raises:
        ValueError: If a file is missing, truncated, damaged, a symbolic link or from another corpus, or contains
            numbers out of range. The message names the file.
    """
    manifest, columns = read_columns(Path(path), thorough=thorough)
    try:
        graph = map_graph(columns, manifest)
        splits = {
            split: _qrels(columns, number, graph.passages.removed) for number, split in enumerate(manifest.splits)
        }
    except (IndexError, RuntimeError) as error:
        raise UserError(f"{path} has inconsistent columns ({error}); prepare the corpus again") from error
    return Dataset(
        name or manifest.name,
        graph,
        columns.strings("query_ids")[:],
        columns.strings("query_texts")[:],
        # A split is omitted if all its relevant passages were removed.
        {split: qrels for split, qrels in splits.items() if len(qrels.query)},
        edge_counts=manifest.edge_counts,
        answers=manifest.answers,
        encoded_by=None if manifest.encoder is None else manifest.encoder.fingerprint,
        known_fingerprint=manifest.fingerprint,
        edge_recipe=_edge_recipe(columns, manifest, graph) if graph.is_guarded else None,
    )


def _edge_recipe(columns: Columns, manifest: CorpusManifest, graph: CorpusGraph) -> EdgeRecipe | None:
    """Map the sources from which the derived edges of a visible subgraph are computed."""
    if manifest.derived is None and not manifest.knn:
        return None
    names = None
    if "stated.entities.offsets" in columns:
        strings = columns.strings("stated.entities")
        names = lambda nodes: [set(json.loads(row) or ()) for row in strings.chosen(nodes)]  # noqa: E731
    below = graph.num_nodes if manifest.knn_below == manifest.num_prepared else manifest.knn_below
    return EdgeRecipe(
        stated_edges(columns), manifest.derived or EdgeRule(mention_type=None), names, manifest.knn, below
    )


def stated_edges(columns: Columns) -> Edges | None:
    """Map the explicit edges of a corpus that also has derived edges.

    Args:
        columns: Columns of the corpus.

    Returns:
        Pairs ``[M, 2]``, weights ``[M]`` and types ``[M]`` of the edges. None if the corpus has no derived edges.
    """
    if "stated.pairs" not in columns:
        return None
    pairs = columns.tensor("stated.pairs", "<i8", (2,))
    weight = columns.tensor("stated.weight", "<f4")
    types = columns.tensor("stated.type", "<i8")
    return pairs, weight, types


def read_columns(folder: Path, *, thorough: bool = False) -> tuple[CorpusManifest, Columns]:
    """Read the manifest of a corpus folder and check its columns.

    If another process compacts the folder at the same time, the manifest is read again.

    Args:
        folder: Corpus folder.
        thorough: Whether to check all files as a whole (:func:`open_corpus`).

    Returns:
        Manifest and columns.

    Raises:
        ValueError: If the manifest or a column is missing or damaged.
    """
    while True:
        manifest = read_corpus_manifest(folder)
        try:
            return manifest, Columns(folder / manifest.columns_folder, manifest.columns, thorough=thorough)
        except ValueError:
            if read_corpus_manifest(folder).columns_folder == manifest.columns_folder:
                raise


def read_corpus_manifest(folder: Path) -> CorpusManifest:
    """Read the manifest of a corpus folder.

    Args:
        folder: Corpus folder.

    Returns:
        The manifest.

    Raises:
        ValueError: If the manifest is missing, damaged, or of another format version.
    """
    path = folder / CORPUS_MANIFEST
    again = f"prepare it again: graphrerank prepare {folder} data=... encoder=..."
    try:
        os.close(open_plain(path))
        content = read_json(path)
        version = content.get("format") if isinstance(content, dict) else content
        if version != FORMAT:
            raise UserError(f"{path}: expected a corpus folder of format {FORMAT}, got {str(version)[:80]!r}; {again}")
        return CorpusManifest.model_validate(content)
    except FileNotFoundError:
        raise UserError(
            f"{folder}: expected {CORPUS_MANIFEST}, which `graphrerank prepare DIR` writes last; got no such file"
        ) from None
    except (ValidationError, KeyError) as error:
        reason = str(error).partition("\n  For further")[0].replace("\n", " ")
        raise UserError(f"{path} is damaged ({reason}); {again}") from error


def map_graph(columns: Columns, manifest: CorpusManifest) -> CorpusGraph:
    """Map the graph of a corpus folder. Updates since the preparation are applied in the memory of this process.

    Args:
        columns: Columns of the corpus.
        manifest: Manifest of the corpus.

    Returns:
        Corpus graph whose large arrays are mapped from the folder.

    Raises:
        ValueError: If a column is missing or inconsistent with the others.
    """
    node_ids = columns.strings("node_ids")
    removed_nodes = columns.array("removed", "<i8")
    removed = None
    if len(removed_nodes):
        removed = torch.zeros(len(node_ids), dtype=torch.bool)
        removed[torch.from_numpy(removed_nodes.copy())] = True
    passages = Passages(
        node_ids,
        columns.strings("texts"),
        title_lengths=columns.tensor("title_lengths", "<i4") if "title_lengths" in columns else None,
        language=language_of(manifest.language).name,
        words=WordIndex(
            tokens=_tokens(columns, manifest.num_tokens, removed),
            stems=_stems(columns, manifest.num_stems, removed_nodes),
        ),
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
    """Map the judgements of a split, without those of removed passages."""
    query = columns.tensor(f"split{number}.query", "<i8")
    node = columns.tensor(f"split{number}.node", "<i8")
    gain = columns.tensor(f"split{number}.gain", "<f4")
    remains = slice(None) if removed is None else ~removed[node]
    return Qrels(query[remains], node[remains], gain[remains])


def _rows_of_edges(columns: Columns) -> tuple[Tensor, Tensor | None]:
    """Map the start of each row of edges and, if rows have moved, the end of each row."""
    name, count = "edges.indptr", len(columns.array("edges.indices", "<i8"))
    num_nodes = len(columns.strings("node_ids"))
    for column, expected in ((name, num_nodes + 1), ("edges.weight", count), ("edges.weight_by_type", count)):
        if column in columns and (num_rows := columns.entries[column].shape[0]) != expected:
            raise UserError(
                f"{columns.folder / column} must have {expected:,} rows, got {num_rows:,}; prepare the corpus again"
            )
    moved = columns.array("edges.moved", "<i8", (3,))
    if not len(moved):
        start = columns.array(name, "<i8")
        columns.check_rows(name, start, count)
        return columns.tensor(name, "<i8"), None
    start, stop = (columns.array(name, "<i8", private=True) for _ in range(2))
    start[moved[:, 0]] = moved[:, 1]  # The last move of a row counts.
    stop[1:][moved[:, 0]] = moved[:, 2]
    columns.check_rows(name, start[:-1], count, stop[1:])
    return torch.from_numpy(start), torch.from_numpy(stop[1:])


def _vectors(columns: Columns) -> NodeVectors:
    """Map vectors and their index. The content hash of a corpus that has grown is unknown."""
    dtype = "<f2" if columns.entries["vectors"].dtype == "<f2" else "<f4"
    index = next((columns.folder / name for name in VECTOR_INDEXES.values() if name in columns), None)
    pieces = [columns.entries[name].pieces for name in CONTENT_COLUMNS]
    content = combined_hash(*(entry[0][1] for entry in pieces)) if all(len(entry) == 1 for entry in pieces) else None
    return NodeVectors(columns.tensor("vectors", dtype, columns.entries["vectors"].shape[1:]), index, content)


def _metadata(columns: Columns, num_prepared: int) -> Metadata:
    """Map metadata and the index that was written at preparation. The index of added passages is built on demand."""
    entries = Entries(
        columns.strings("metadata.terms"),
        columns.array("metadata.ptr", "<i8"),
        columns.array("metadata.holders", "<i4"),
    )
    return Metadata(columns.strings("metadata"), entries, num_prepared)


def _guarded(columns: Columns) -> GuardedEdges:
    return GuardedEdges(
        columns.tensor("guarded.pairs", "<i8", (2,)),
        columns.tensor("guarded.weight", "<f4"),
        columns.tensor("guarded.types", "<i8"),
        columns.tensor("guarded.group", "<i8"),
        columns.strings("guarded.groups")[:],
    )


def _entities(columns: Columns, num_nodes: int, removed: Tensor | None) -> EntityIncidence | None:
    """Map the entities of each passage. Added and removed passages have none."""
    if "entities.sizes" not in columns:
        return None
    names = ("indptr", "indices", "sizes", "holder_ptr", "holders")
    indptr, indices, sizes, start, holder = (columns.tensor(f"entities.{name}", "<i8") for name in names)
    incidence = EntityIncidence(columns.strings("entities.names"), indptr, indices, sizes, (start, holder))
    return incidence if removed is None and num_nodes == len(sizes) else incidence.resized(num_nodes, removed)


def _tokens(columns: Columns, num_tokens: int, removed: Tensor | None) -> Postings:
    postings = columns.array("token.postings", "<i4", (2,))
    ptr, added = (columns.array(name, "<i8") for name in ("token.ptr", "added.ptr"))
    lengths, tokens, counts = (columns.array(name, "<i4") for name in ("token.lengths", "added.tokens", "added.counts"))
    return Postings(
        words=Vocabulary(columns.strings("token.words"), len(ptr) - 1),
        ptr=ptr,
        texts=postings[:, 0],
        counts=postings[:, 1],
        lengths=lengths,
        num_tokens=num_tokens,
        added=AddedTokens(len(lengths) - len(added) + 1, added, tokens, counts) if len(added) > 1 else None,
        numbers=None if removed is None else np.where(removed.numpy(), -1, np.arange(len(removed))).astype(np.int32),
    )


def _stems(columns: Columns, num_prepared: int, removed: npt.NDArray[np.int64]) -> TextStems:
    ptr, stems = columns.array("stem.ptr", "<i8"), columns.array("stem.stems", "<i4")
    num_added = len(columns.array("added.ptr", "<i8")) - 1
    texts_with = columns.array("stem.texts_with", "<i8", private=bool(num_added or len(removed)))
    if num_added:
        np.add.at(texts_with, stems[int(ptr[-1 - num_added]) :], 1)
    for node in removed.tolist():
        texts_with[stems[int(ptr[node]) : int(ptr[node + 1])]] -= 1  # Each stem is listed once per text.
    return TextStems(
        words=Vocabulary(columns.strings("stem.words"), num_prepared),
        ptr=ptr,
        stems=stems,
        in_lead=columns.array("stem.in_lead", "|b1"),
        texts_with=texts_with,
        num_texts=len(ptr) - 1 - len(removed),
    )
