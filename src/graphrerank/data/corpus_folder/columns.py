"""The columns of a corpus folder: one file of plain numbers each, with its size and hashes in the folder's manifest.

A column is written once, or appended to: rows that the manifest counts never change, so that processes that have
mapped the file go on. Rows beyond them are left over from a growth that was stopped.
"""

import hashlib
import math
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeInt, model_validator
from torch import Tensor

from graphrerank.files import append_bytes, hash_files, open_plain, write_chunks
from graphrerank.graphs import PackedStrings
from graphrerank.graphs.mapped_pages import MappedPages
from graphrerank.untrusted import plain_name

Array = npt.NDArray[Any]
PlainName = Annotated[str, AfterValidator(plain_name)]  # of a file or folder: no path
HASH_BYTES = 1 << 20  # read at once
BLOCK_ROWS = 1 << 20  # of a tensor, written at once
END_BYTES = 1 << 16  # at a file's start and end, which are compared whenever the folder is opened


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
            raise ValueError(f"pieces must have {self.num_bytes:,} bytes together, as `shape` says")
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
        count = 0

        def chunks() -> Iterable[memoryview]:
            nonlocal count
            for block in blocks:
                assert block.shape[1:] == row_shape, (name, block.shape, row_shape)
                count += len(block)
                yield np.ascontiguousarray(block, dtype=dtype).data.cast("B") if block.size else memoryview(b"")

        sha256 = write_chunks(self.folder / name, chunks())
        self._note(name, dtype, (count, *row_shape), sha256)

    def write_tensor(self, name: str, tensor: Tensor) -> None:
        """Write a tensor, in its type."""
        blocks = (tensor[start : start + BLOCK_ROWS].cpu().numpy() for start in range(0, len(tensor), BLOCK_ROWS))
        self.write(name, tensor[:0].cpu().numpy().dtype.str, blocks, tuple(tensor.shape[1:]))

    def write_strings(self, name: str, strings: PackedStrings) -> None:
        """Write the two columns of a list of strings."""
        self.write(f"{name}.offsets", "<i8", [strings.offsets])
        self.write(f"{name}.content", "|u1", [strings.content])

    def note_file(self, name: str) -> None:
        """Describe a file that something else wrote, as bytes."""
        path = self.folder / name
        self._note(name, "|u1", (path.stat().st_size,), hash_files([path]))

    def append(self, name: str, rows: Array) -> None:
        """Append rows to a column.

        Pieces that are not longer than what follows are joined, so that their number grows with its logarithm.
        """
        if not len(rows):
            return
        column, path = self.entries[name], self.folder / name
        content = np.ascontiguousarray(rows, dtype=column.dtype).data.cast("B")
        append_bytes(path, column.num_bytes, content)
        pieces = [*column.pieces, (len(content), hashlib.sha256(content).hexdigest())]
        size = column.num_bytes + len(content)
        while len(pieces) > 2 and pieces[-2][0] <= pieces[-1][0]:
            joined = pieces[-2][0] + pieces[-1][0]
            pieces[-2:] = [(joined, _hash(path, (size - joined, size)))]
        self._note(name, column.dtype, (column.shape[0] + len(rows), *column.shape[1:]), pieces)

    def append_strings(self, name: str, strings: PackedStrings) -> None:
        """Append strings to the two columns of a list of them."""
        self.append(f"{name}.offsets", strings.offsets[1:] + self.entries[f"{name}.content"].shape[0])
        self.append(f"{name}.content", strings.content)

    def _note(self, name: str, dtype: Any, shape: tuple[int, ...], hashed: str | list[tuple[int, str]]) -> None:
        size = np.dtype(dtype).itemsize * math.prod(shape)
        pieces = [(size, hashed)] if isinstance(hashed, str) else hashed
        ends = _hash(self.folder / name, *_ends(size))
        self.entries[name] = Column(dtype=dtype, shape=shape, pieces=tuple(pieces), ends=ends)


class Columns:
    """The columns of a manifest, mapped from disk; ``pages`` are those that were mapped to be read.

    Sizes and ends of files are compared with the entries, with ``thorough`` all hashes. A ValueError names what is
    missing, truncated, damaged, another corpus's or a symbolic link.
    """

    def __init__(self, folder: Path, entries: Mapping[str, Column], *, thorough: bool = False) -> None:
        self.folder, self.entries, self.pages = folder, entries, MappedPages()
        if folder.exists() or folder.is_symlink():  # else each file is missing
            os.close(open_plain(folder, getattr(os, "O_DIRECTORY", 0)))
        for name, column in entries.items():
            _check_file(folder / name, column, thorough=thorough)

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def array(self, name: str, dtype: str, row_shape: tuple[int, ...] = (), *, private: bool = False) -> Array:
        """Map a column of some type; a ``private`` one may be written to, which no other process sees."""
        column = self.entries.get(name)
        if column is None or column.dtype != dtype or column.shape[1:] != row_shape:
            raise ValueError(f"{self.folder}: needed a column {name!r} of type {dtype}, found {column}")
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
    remedy = "prepare the corpus again"
    try:
        with os.fdopen(open_plain(path), "rb") as file:
            size = file.seek(0, os.SEEK_END)
    except FileNotFoundError:
        raise ValueError(f"{path}: is missing; {remedy}") from None
    if size < column.num_bytes:
        raise ValueError(f"{path}: must have {column.num_bytes:,} bytes, has {size:,}; {remedy}")
    stops = np.cumsum([size for size, _ in column.pieces]).tolist()
    is_same = _hash(path, *_ends(column.num_bytes)) == column.ends and (
        not thorough
        or all(
            _hash(path, (stop - size, stop)) == sha256
            for stop, (size, sha256) in zip(stops, column.pieces, strict=True)
        )
    )
    if not is_same:
        raise ValueError(f"{path}: is damaged or another corpus's (its hash is not the manifest's); {remedy}")


def _ends(size: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (0, min(size, END_BYTES)), (max(0, size - END_BYTES), size)


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
