"""An IVF index of FAISS, written list by list: only the codes of one part, and four bytes a vector, are in memory."""

import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from graphrerank.files import write_chunks

PART_CODES = 1 << 18  # vectors sorted by cell at once
BLOCK_CODES = 1 << 18  # about so many read for cells that are written together
NO_LISTS = struct.Struct("<4sQQ4sQ")  # how FAISS writes lists that are all empty

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


def write_ivf_file(path: Path, blocks: Callable[[], Iterable[Floats]], *, sample: Floats, num_cells: int) -> str:
    """Write an index for dot products of 8 bits a number, which FAISS maps as one that it has written itself.

    Vectors are assigned to cells and coded block by block; the codes go to a temporary file, sorted by cell
    within each part, and from there, cell by cell, to the index.

    Args:
        path: The file.
        blocks: Yields all vectors ``[n, d]`` in the order of their numbers.
        sample: ``[m, d]`` vectors to train on.
        num_cells: Cells, at most ``m``.

    Returns:
        The file's SHA-256.
    """
    import faiss  # heavy: only when an index is built

    dim = sample.shape[1]
    coarse, product = faiss.IndexFlatIP(dim), faiss.METRIC_INNER_PRODUCT
    index: Any = faiss.IndexIVFScalarQuantizer(coarse, dim, num_cells, faiss.ScalarQuantizer.QT_8bit, product, False)
    index.cp.min_points_per_centroid = 1  # no warning for a small corpus
    index.train(sample)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path.parent) as codes:
        ids, starts = _sort_parts(index, _joined(blocks(), PART_CODES), codes)
        index.ntotal = sum(map(len, ids))
        return write_chunks(path, _chunks(index, ids, starts, codes))


def _sort_parts(index: Any, parts: Iterable[Floats], codes: BinaryIO) -> tuple[list[npt.NDArray[np.int32]], Integers]:
    """Code vectors part by part, each sorted by cell: numbers of each part's vectors, and ``[P, cells + 1]`` starts."""
    ids, starts, first = [], [], 0
    for part in parts:
        cell = index.quantizer.search(part, 1)[1][:, 0]
        order = np.argsort(cell, kind="stable")
        codes.write(np.ascontiguousarray(index.sq.compute_codes(part)[order]).data)
        starts.append(np.searchsorted(cell[order], np.arange(index.nlist + 1)))
        ids.append((order + first).astype(np.int32))
        first += len(part)
    return ids, np.stack(starts)


def _chunks(
    index: Any, ids: list[npt.NDArray[np.int32]], starts: Integers, codes: BinaryIO
) -> Iterator[bytes | memoryview]:
    """Yield the file: what FAISS writes before the lists, their sizes, and for each its codes and its numbers."""
    import faiss

    head, width = faiss.serialize_index(index).tobytes(), index.code_size
    empty = NO_LISTS.pack(b"ilar", index.nlist, width, b"sprs", 0)
    assert head.endswith(empty), "FAISS writes empty lists in another way"
    sizes = np.diff(starts, axis=1).sum(0)
    yield head[: -len(empty)]
    yield struct.pack("<4sQQ4sQ", b"ilar", index.nlist, width, b"full", index.nlist)
    yield sizes.astype("<u8").data
    begin = np.cumsum([0, *map(len, ids)])
    stop = np.concatenate([[0], np.cumsum(sizes)])
    limits = np.searchsorted(stop, np.arange(0, stop[-1] + BLOCK_CODES, BLOCK_CODES)).clip(max=index.nlist)
    bounds = np.unique(np.append(limits, [0, index.nlist])).tolist()
    for low, high in pairwise(bounds):
        held, numbers, cells = [], [], []
        for part, own in enumerate(ids):
            start, end = int(starts[part, low]), int(starts[part, high])
            codes.seek((int(begin[part]) + start) * width)
            held.append(np.frombuffer(codes.read((end - start) * width), dtype=np.uint8).reshape(-1, width))
            numbers.append(own[start:end])
            cells.append(np.repeat(np.arange(low, high), np.diff(starts[part, low : high + 1])))
        order = np.argsort(np.concatenate(cells), kind="stable")
        code, number = np.concatenate(held)[order], np.concatenate(numbers)[order].astype("<i8")
        for start, end in zip(stop[low:high] - stop[low], stop[low + 1 : high + 1] - stop[low], strict=True):
            yield code[start:end].tobytes()
            yield number[start:end].tobytes()


def _joined(blocks: Iterable[Floats], size: int) -> Iterator[Floats]:
    """Put blocks together to arrays of ``size`` rows or a little more."""
    held: list[Floats] = []
    for block in blocks:
        held.append(block)
        if sum(map(len, held)) >= size:
            yield np.concatenate(held)
            held = []
    if held:
        yield np.concatenate(held)
