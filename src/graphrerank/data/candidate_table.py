"""Candidates of queries in files that are mapped instead of loaded, for training sets that do not fit into memory."""

import math
import os
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.core import Encoder, Queries, Ranking, Retriever, RetrieverFactory
from graphrerank.core.adapters import query_encoder
from graphrerank.corpus.mapped_pages import MappedPages
from graphrerank.data.candidates import (
    CANDIDATE_TENSORS,
    PreparedDataset,
    keyed_retriever,
    retrieve,
    with_vectors,
)
from graphrerank.data.dataset import Dataset
from graphrerank.utils.caching import hash_texts, short_hash, warn_damaged
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import check_writable, read_checked_json, write_checked_json
from graphrerank.utils.progress import advance_to, progress_bar, step

TABLE_FORMAT = 1  # Version of the files. Increase it whenever the same arguments give other rows.
BLOCK_QUERIES = 1024  # Number of queries that are in memory at once while the files are written.
RESIDENT_BYTES = 1 << 26  # Number of resident bytes of mapped files above which their pages are released: 64 MiB.
QUERY_VECTORS = "query_vectors"  # Column of the vectors of the queries, which is missing without an encoder.
STATE = "table.json"  # File with the types of the columns and the checksums of the complete blocks.

#: Function that adds the features of a model to the candidates of some queries.
AddFeatures = Callable[[PreparedDataset], PreparedDataset]


@dataclass
class CandidateTable:
    """Table in a folder, with one file per column, that grows by blocks of rows.

    A block counts only once ``table.json`` lists it with its checksum, so that an interrupted run continues after its
    last complete block.

    Attributes:
        folder: Folder of the files.
        feature_names: Names of the features. Empty before the first block.
        dtypes: NumPy type of each column.
        row_shapes: Shape of a row of each column.
        blocks: Number of rows and checksum of each complete block.
    """

    folder: Path
    feature_names: tuple[str, ...] = ()
    dtypes: dict[str, str] = field(default_factory=dict)
    row_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    blocks: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def open(cls, folder: Path) -> "CandidateTable":
        """Open the table in a folder, and compare the checksums of its blocks.

        Args:
            folder: Folder of a table, or of none.

        Returns:
            The table, up to its first damaged block. A damaged block issues a warning. Empty if there is no table.
        """
        path = folder / STATE
        if not path.is_file():
            return cls(folder)
        try:
            state: dict[str, Any] = read_checked_json(path)
        except UserError as error:
            warn_damaged(str(error).rpartition(";")[0])
            return cls(folder)
        shapes = {name: tuple(shape) for name, shape in state["row_shapes"].items()}
        blocks = [(rows, crc) for rows, crc in state["blocks"]]
        table = cls(folder, tuple(state["feature_names"]), state["dtypes"], shapes, blocks)
        table.blocks = table._intact_blocks()
        return table

    @property
    def num_rows(self) -> int:
        """Number of rows of all complete blocks."""
        return sum(rows for rows, _ in self.blocks)

    def append(self, rows: Mapping[str, Tensor], feature_names: Sequence[str]) -> None:
        """Write a block of rows.

        Args:
            rows: Rows of each column, equally many.
            feature_names: Names of the features.

        Raises:
            UserError: If the features, or the type or shape of a column, differ from those of the first block.
        """
        arrays = {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in rows.items()}
        dtypes = {name: array.dtype.str for name, array in arrays.items()}
        shapes = {name: array.shape[1:] for name, array in arrays.items()}
        columns, names = (dtypes, shapes), tuple(feature_names)
        if not self.blocks:
            (self.dtypes, self.row_shapes), self.feature_names = columns, names
        if (columns, names) != ((self.dtypes, self.row_shapes), self.feature_names):
            raise UserError(
                f"all queries must have the same features and number of candidates, got {names} and {shapes} after "
                f"{self.feature_names} and {self.row_shapes}"
            )
        start, crc = self.num_rows, 0
        for name, array in sorted(arrays.items()):
            content = array.reshape(-1).view(np.uint8).data
            crc = zlib.crc32(content, crc)
            handle = os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o644)
            with os.fdopen(handle, "r+b") as file:
                file.seek(start * self._row_bytes(name))
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        self.blocks.append((len(next(iter(arrays.values()))), crc))
        self._write_state()

    def map(self, pages: MappedPages) -> dict[str, Tensor]:
        """Map all columns.

        Args:
            pages: Object that maps the files and can release their pages.

        Returns:
            Tensors ``[num_rows, ...]`` by column, which must not be written to.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            return {name: torch.from_numpy(self._map_column(name, pages)) for name in self.dtypes}

    def _map_column(self, name: str, pages: MappedPages) -> npt.NDArray[Any]:
        shape = (self.num_rows, *self.row_shapes[name])
        if not math.prod(shape):
            return np.zeros(shape, dtype=self.dtypes[name])
        return pages.map(self.folder / name, self.dtypes[name], shape)

    def _row_bytes(self, name: str) -> int:
        return np.dtype(self.dtypes[name]).itemsize * math.prod(self.row_shapes[name])

    def _write_state(self) -> None:
        state = {
            "feature_names": self.feature_names,
            "dtypes": self.dtypes,
            "row_shapes": self.row_shapes,
            "blocks": self.blocks,
        }
        write_checked_json(self.folder / STATE, state)

    def _intact_blocks(self) -> list[tuple[int, int]]:
        """Return the blocks up to the first one whose checksum differs, which issues a warning."""
        start = 0
        for number, (rows, crc) in enumerate(self.blocks):
            if self._checksum(start, rows) != crc:
                warn_damaged(f"{self.folder}: damaged cache (block {number})")
                return self.blocks[:number]
            start += rows
        return self.blocks

    def _checksum(self, start: int, rows: int) -> int:
        crc = 0
        for name in sorted(self.dtypes):
            size, path = self._row_bytes(name), self.folder / name
            if not path.is_file():
                return -1
            with path.open("rb") as file:
                file.seek(start * size)
                crc = zlib.crc32(file.read(rows * size), crc)
        return crc


def prepare_on_disk(
    dataset: Dataset,
    *,
    encoder: Encoder | None,
    build_retriever: RetrieverFactory,
    cache: str | Path,
    add_features: AddFeatures = lambda prepared: prepared,
    features: str = "",
    block_size: int = BLOCK_QUERIES,
) -> PreparedDataset:
    """Encode a data set and retrieve candidates for every query, block by block, into files that are mapped.

    The result has the same candidates and features as that of :func:`~graphrerank.data.candidates.prepare` and
    ``add_features``. Only the candidates of one block are in memory at a time. An interrupted run continues after its
    last complete block.

    Args:
        dataset: Data set to prepare.
        encoder: Text encoder. None if neither the retriever nor the model needs vectors.
        build_retriever: ``functools.partial`` of a retriever class with keyword arguments.
        cache: Folder of candidate lists and edges. Damaged blocks are computed again with a warning.
        add_features: Function that adds features to the candidates of a block of queries.
        features: Description of ``add_features`` for the key of the cache.
        block_size: Number of queries per block.

    Returns:
        Data set whose ``ranking`` and ``query_vectors`` are mapped from files. Its ``pages`` release them.

    Raises:
        UserError: If there is no encoder, and the retriever or ``knn`` edges need vectors.
    """
    dataset = with_vectors(dataset, encoder, Path(cache))
    retriever, decisive = keyed_retriever(dataset, encoder, build_retriever)
    key = short_hash(hash_texts([str(TABLE_FORMAT), *decisive, features, str(block_size)]))
    folder = Path(cache) / f"{dataset.name}-{key}"
    check_writable(folder)
    table = CandidateTable.open(folder)
    with progress_bar(f"preparing queries of {dataset.name}", len(dataset.query_ids), announce=True):
        advance_to(table.num_rows)
        for queries in _blocks(table.num_rows, len(dataset.query_ids), block_size):
            with step(len(queries)):
                ranked = add_features(_ranked(dataset, queries, encoder, retriever))
                table.append(_rows(ranked), ranked.feature_names)
    pages = MappedPages(RESIDENT_BYTES)
    columns = table.map(pages)
    return PreparedDataset(
        dataset,
        columns.get(QUERY_VECTORS),
        Ranking(**{name: columns[name] for name in CANDIDATE_TENSORS}),
        table.feature_names,
        None if encoder is None else encoder.name,
        None if encoder is None else encoder.fingerprint or None,
        pages=pages,
    )


def _blocks(start: int, stop: int, size: int) -> Iterator[Tensor]:
    """Yield the query numbers from ``start`` to ``stop``, or one empty block if there is no query at all."""
    for first in range(start, max(stop, 1 if stop == 0 else 0), size):
        yield torch.arange(first, min(first + size, stop))


def _ranked(dataset: Dataset, queries: Tensor, encoder: Encoder | None, retriever: Retriever) -> PreparedDataset:
    """Return the candidates of a block of queries, which are numbered from 0."""
    block = dataset.with_queries(queries)
    vectors = None if encoder is None else query_encoder(encoder).encode(block.query_texts)
    ranking = retrieve(retriever, Queries(block.query_ids, block.query_texts, vectors))
    return PreparedDataset(block, vectors, ranking, retriever.feature_names)


def _rows(prepared: PreparedDataset) -> dict[str, Tensor]:
    columns = {name: getattr(prepared.ranking, name) for name in CANDIDATE_TENSORS}
    return columns if prepared.query_vectors is None else {**columns, QUERY_VECTORS: prepared.query_vectors.cpu()}
