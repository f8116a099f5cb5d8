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

from graphrerank.files import hash_files, write_chunks
from graphrerank.graphs import PackedStrings

Array = npt.NDArray[Any]
DTYPES = ("<i8", "<i4", "<f4", "<f2", "|u1", "|b1")
END_BYTES = 1 << 16  # at a file's start and end, which are compared whenever the folder is opened


@dataclass(frozen=True)
class Column:
    """One file of numbers.

    Attributes:
        dtype: Of :data:`DTYPES`: byte order, kind and bytes.
        shape: Of the array.
        sha256: Of the whole file.
        ends: SHA-256 of its first and last 64 KiB.
    """

    dtype: str
    shape: tuple[int, ...]
    sha256: str
    ends: str

    @property
    def num_bytes(self) -> int:
        """Size of the file."""
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

    sha256 = write_chunks(folder / name, chunks())
    return Column(dtype, (count, *row_shape), sha256, _hash_ends(folder / name))


def file_column(path: Path) -> Column:
    """Describe a file that something else wrote, as bytes."""
    return Column("|u1", (path.stat().st_size,), hash_files([path]), _hash_ends(path))


class Columns:
    """The columns of a manifest, mapped from disk.

    Args:
        folder: Their folder.
        entries: What the manifest says of each, by name.
        thorough: Whether to read all files and compare their hashes, not only sizes and ends.

    Raises:
        ValueError: If an entry is malformed, or a file is missing, of another size, damaged or another corpus's; the
            message names it.
    """

    def __init__(self, folder: Path, entries: Mapping[str, Any], *, thorough: bool = False) -> None:
        self.folder = folder
        self._columns = {name: _parsed(folder, name, entry) for name, entry in entries.items()}
        for name, column in self._columns.items():
            _check_file(folder / name, column, thorough=thorough)

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def entry(self, name: str) -> Column:
        """Return what the manifest says of a column that it has."""
        return self._columns[name]

    def array(self, name: str, dtype: str, row_shape: tuple[int, ...] = ()) -> Array:
        """Map a column of some type.

        Raises:
            ValueError: If it is missing or of another type or shape.
        """
        column = self._columns.get(name)
        if column is None or column.dtype != dtype or column.shape[1:] != row_shape:
            raise ValueError(f"{self.folder}: needed a column {name!r} of type {dtype}, found {column}")
        if not column.num_bytes:
            return np.zeros(column.shape, dtype=dtype)
        return np.asarray(np.memmap(self.folder / name, dtype=dtype, mode="r", shape=column.shape))

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
        column = Column(entry["dtype"], tuple(map(int, entry["shape"])), str(entry["sha256"]), str(entry["ends"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{folder}: the manifest's column {name!r} must have dtype, shape and hashes: {entry}"
        ) from error
    if column.dtype not in DTYPES or Path(name).name != name or min(column.shape, default=0) < 0:
        raise ValueError(f"{folder}: the manifest's column {name!r} must be a file of one of {DTYPES}, got {entry}")
    return column


def _check_file(path: Path, column: Column, *, thorough: bool) -> None:
    remedy = "prepare the corpus again"
    if not path.is_file():
        raise ValueError(f"{path}: is missing; {remedy}")
    if (size := path.stat().st_size) != column.num_bytes:
        raise ValueError(f"{path}: must have {column.num_bytes:,} bytes, has {size:,}; {remedy}")
    if _hash_ends(path) != column.ends or (thorough and hash_files([path]) != column.sha256):
        raise ValueError(f"{path}: is damaged or another corpus's (its hash is not the manifest's); {remedy}")


def _hash_ends(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(END_BYTES)
        file.seek(max(0, path.stat().st_size - END_BYTES))
        return hashlib.sha256(start + file.read(END_BYTES)).hexdigest()
