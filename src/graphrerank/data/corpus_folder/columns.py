"""The columns of a corpus folder: one file of plain numbers each, with its size and hashes in the folder's manifest."""

import hashlib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.files import append_bytes, hash_files, write_chunks
from graphrerank.graphs import PackedStrings
from graphrerank.graphs.mapped_pages import MappedPages

Array = npt.NDArray[Any]
DTYPES = ("<i8", "<i4", "<f4", "<f2", "|u1", "|b1")
HASH_BYTES = 1 << 20  # read at once
END_BYTES = 1 << 16  # at a file's start and end, which are compared whenever the folder is opened


@dataclass(frozen=True)
class Column:
    """One file of numbers.

    Attributes:
        dtype: Of :data:`DTYPES`: byte order, kind and bytes.
        shape: Of the array.
        pieces: Bytes and SHA-256 of each piece of the file: what was written first, and what was appended.
        ends: SHA-256 of its first and last 64 KiB.
    """

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[tuple[int, str], ...]
    ends: str

    @property
    def num_bytes(self) -> int:
        """Size of the file, which may have more behind: of somebody who is writing, or was stopped."""
        return int(np.dtype(self.dtype).itemsize * np.prod(self.shape, dtype=np.int64))

    def to_json(self) -> dict[str, Any]:
        """Return what the manifest says."""
        return asdict(self)


def write_column(folder: Path, name: str, dtype: str, row_shape: tuple[int, ...], blocks: Iterable[Array]) -> Column:
    """Write the rows of an array block by block, atomically.

    Args:
        folder: The columns' folder.
        name: The file's name.
        dtype: Of :data:`DTYPES`; blocks are converted to it.
        row_shape: Shape of one row; ``()`` for numbers.
        blocks: Arrays ``[n, *row_shape]``.
    """
    count = 0

    def chunks() -> Iterable[memoryview]:
        nonlocal count
        for block in blocks:
            assert block.shape[1:] == row_shape, (name, block.shape, row_shape)
            count += len(block)
            yield np.ascontiguousarray(block, dtype=dtype).data.cast("B") if block.size else memoryview(b"")

    path = folder / name
    sha256 = write_chunks(path, chunks())
    size = path.stat().st_size
    return Column(dtype, (count, *row_shape), ((size, sha256),), _hash_ends(path, size))


def append_rows(folder: Path, name: str, column: Column, rows: Array) -> Column:
    """Append rows to an array on disk, and return its new description; who has the old one reads the old rows.

    Pieces that are not longer than what follows are joined, so that their number grows with the logarithm of what was
    appended, and so does the number of times that a byte is hashed again; the first piece stays.
    """
    if not len(rows):
        return column
    path, content = folder / name, np.ascontiguousarray(rows, dtype=column.dtype).data.cast("B")
    append_bytes(path, column.num_bytes, content)
    pieces = [*column.pieces, (len(content), hashlib.sha256(content).hexdigest())]
    size = column.num_bytes + len(content)
    while len(pieces) > 2 and pieces[-2][0] <= pieces[-1][0]:
        joined = pieces[-2][0] + pieces[-1][0]
        pieces[-2:] = [(joined, _hash_range(path, size - joined, size))]
    return Column(column.dtype, (column.shape[0] + len(rows), *column.shape[1:]), tuple(pieces), _hash_ends(path, size))


def file_column(path: Path) -> Column:
    """Describe a file that something else wrote, as bytes."""
    size = path.stat().st_size
    return Column("|u1", (size,), ((size, hash_files([path])),), _hash_ends(path, size))


class Columns:
    """The columns of a manifest, mapped from disk.

    Args:
        folder: Their folder.
        entries: What the manifest says of each, by name.
        thorough: Whether to read all files and compare their hashes, not only sizes and ends.

    Raises:
        ValueError: If an entry is malformed, or a file is missing, of another size, damaged or another corpus's; the
            message names it.

    Attributes:
        folder: Their folder.
        pages: The pages of those that were mapped to be read.
    """

    def __init__(self, folder: Path, entries: Mapping[str, Any], *, thorough: bool = False) -> None:
        self.folder = folder
        self.pages = MappedPages()
        self._columns = {name: _parsed(folder, name, entry) for name, entry in entries.items()}
        for name, column in self._columns.items():
            _check_file(folder / name, column, thorough=thorough)

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def entry(self, name: str) -> Column:
        """Return what the manifest says of a column that it has."""
        return self._columns[name]

    def array(self, name: str, dtype: str, row_shape: tuple[int, ...] = (), *, private: bool = False) -> Array:
        """Map a column of some type.

        Args:
            name: The file's name.
            dtype: Its type.
            row_shape: Shape of one row.
            private: Whether it may be written to, which the file and other processes do not see: pages that are
                written to are copied.

        Raises:
            ValueError: If it is missing or of another type or shape.
        """
        column = self._columns.get(name)
        if column is None or column.dtype != dtype or column.shape[1:] != row_shape:
            raise ValueError(f"{self.folder}: needed a column {name!r} of type {dtype}, found {column}")
        if not column.num_bytes:
            return np.zeros(column.shape, dtype=dtype)
        if private:
            return np.asarray(np.memmap(self.folder / name, dtype=dtype, mode="c", shape=column.shape))
        return self.pages.map(self.folder / name, dtype, column.shape)

    def tensor(self, name: str, dtype: str, row_shape: tuple[int, ...] = ()) -> Tensor:
        """Map a column as a tensor, which must not be written to."""
        array = self.array(name, dtype, row_shape)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            return torch.from_numpy(array)

    def strings(self, name: str) -> PackedStrings:
        """Map a column of strings.

        Raises:
            ValueError: As :meth:`array`.
        """
        return PackedStrings(self.array(f"{name}.offsets", "<i8"), self.array(f"{name}.content", "|u1"))


def _parsed(folder: Path, name: str, entry: Any) -> Column:
    try:
        pieces = tuple((int(size), str(sha256)) for size, sha256 in entry["pieces"])
        column = Column(entry["dtype"], tuple(map(int, entry["shape"])), pieces, str(entry["ends"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{folder}: the manifest's column {name!r} must have dtype, shape and hashes: {entry}"
        ) from error
    known = column.dtype in DTYPES and Path(name).name == name and min(column.shape, default=0) >= 0
    if not known or sum(size for size, _ in column.pieces) != column.num_bytes:
        raise ValueError(f"{folder}: the manifest's column {name!r} must be a file of one of {DTYPES}, got {entry}")
    return column


def _check_file(path: Path, column: Column, *, thorough: bool) -> None:
    remedy = "prepare the corpus again"
    if not path.is_file():
        raise ValueError(f"{path}: is missing; {remedy}")
    if (size := path.stat().st_size) < column.num_bytes:
        raise ValueError(f"{path}: must have {column.num_bytes:,} bytes, has {size:,}; {remedy}")
    if _hash_ends(path, column.num_bytes) != column.ends or (thorough and not _is_whole(path, column)):
        raise ValueError(f"{path}: is damaged or another corpus's (its hash is not the manifest's); {remedy}")


def _is_whole(path: Path, column: Column) -> bool:
    stops = np.cumsum([size for size, _ in column.pieces]).tolist()
    return all(
        _hash_range(path, stop - size, stop) == sha256
        for stop, (size, sha256) in zip(stops, column.pieces, strict=True)
    )


def _hash_ends(path: Path, size: int) -> str:
    with path.open("rb") as file:
        start = file.read(min(size, END_BYTES))
        file.seek(max(0, size - END_BYTES))
        return hashlib.sha256(start + file.read(min(size, END_BYTES))).hexdigest()


def _hash_range(path: Path, start: int, stop: int) -> str:
    sha = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(start)
        while start < stop and (block := file.read(min(HASH_BYTES, stop - start))):
            sha.update(block)
            start += len(block)
    return sha.hexdigest()
