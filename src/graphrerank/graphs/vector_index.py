"""Indexes of FAISS for approximate search: built in memory, written, and mapped from disk."""

import struct
import tempfile
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.files import atomic_path, write_chunks

EF_CONSTRUCTION = 200
TRAINED_VECTORS = 64  # per cell of an IVF index, more than FAISS's minimum of 39
BLOCK_VECTORS = 1 << 14  # converted and added at once
PART_CODES = 1 << 18  # vectors of an IVF index on disk that are sorted by cell at once
BLOCK_CODES = 1 << 18  # about so many read for cells that are written together
NO_LISTS = struct.Struct("<4sQQ4sQ")  # how FAISS writes lists that are all empty

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


class IndexSearch:
    """Search in an index of FAISS.

    Args:
        index: The index.
        kind: ``ivf`` or ``hnsw``.
        num_probes: IVF: cells that a search visits.
        ef_search: HNSW: nodes kept open in a search.
        removed: ``[N]`` bool, vectors that are not found; None for none. Those behind the index's are ignored.
    """

    def __init__(
        self, index: Any, kind: str, *, num_probes: int, ef_search: int, removed: Tensor | None = None
    ) -> None:
        self._index = index
        self.num_vectors = int(index.ntotal)
        if kind == "ivf":
            index.nprobe = num_probes
        else:
            index.hnsw.efSearch = ef_search
        self._parameters: Any = None
        if removed is not None and len(gone := removed[: self.num_vectors].nonzero().flatten().cpu().numpy()):
            import faiss

            module: Any = faiss  # whose types lack keyword arguments
            kept = module.IDSelectorNot(module.IDSelectorBatch(gone))
            self._parameters = (
                module.SearchParametersHNSW(sel=kept, efSearch=ef_search)
                if kind == "hnsw"
                else module.SearchParametersIVF(sel=kept, nprobe=num_probes)
            )

    def propose(self, vectors: Tensor, depth: int) -> Integers:
        """Find the ``depth`` nearest vectors of each query ``[n, d]``: ``[n, depth]``, -1 for none."""
        queries = vectors.float().cpu().contiguous().numpy()
        nearest: Integers = self._index.search(queries, depth, params=self._parameters)[1]
        return nearest


def new_vector_index(dim: int, kind: str, num_nodes: int, *, links: int, num_cells: int | None, half: bool) -> Any:
    """Make an empty FAISS index for dot products.

    Args:
        dim: Length of the vectors.
        kind: ``hnsw`` or ``ivf``.
        num_nodes: How many vectors there will be.
        links: HNSW: neighbours of a node in its layers.
        num_cells: IVF: cells of the corpus; about ``4 sqrt(N)``, at most one per 64 nodes, when None.
        half: Whether it keeps float16 vectors.

    Raises:
        ValueError: If there are more cells than nodes.
    """
    import faiss  # heavy: only when something is searched

    product: Any = faiss.METRIC_INNER_PRODUCT
    float16: Any = faiss.ScalarQuantizer.QT_fp16
    index: Any
    if kind == "hnsw":
        index = faiss.IndexHNSWSQ(dim, float16, links, product) if half else faiss.IndexHNSWFlat(dim, links, product)
        index.hnsw.efConstruction = EF_CONSTRUCTION
    else:
        cells = num_cells or max(1, min(int(4 * num_nodes**0.5), num_nodes // TRAINED_VECTORS))
        if cells > num_nodes:
            raise ValueError(f"`num_cells` must be at most the {num_nodes} nodes, got {cells}")
        coarse = faiss.IndexFlatIP(dim)
        index = (
            faiss.IndexIVFScalarQuantizer(coarse, dim, cells, float16, product, False)
            if half
            else faiss.IndexIVFFlat(coarse, dim, cells, product)
        )
        index.cp.min_points_per_centroid = 1  # no warning for a small corpus
    return index


def fill_vector_index(index: Any, embedding: Tensor) -> None:
    """Train an index if it needs it, and add all node vectors ``[N, d]``, in blocks if they are float16."""
    if not index.is_trained:
        index.train(embedding.float().cpu().contiguous().numpy())
    size = len(embedding) if embedding.dtype == torch.float32 else BLOCK_VECTORS
    for block in torch.split(embedding, max(1, size)):
        index.add(block.float().cpu().contiguous().numpy())


def write_vector_index(path: Path, index: Any) -> None:
    """Write a FAISS index, atomically."""
    import faiss

    with atomic_path(path) as temporary:
        faiss.write_index(index, str(temporary))


def write_stored_index(path: Path, embedding: Tensor) -> None:
    """Index vectors ``[N, d]``, which may be mapped, in a file whose suffix is the kind."""
    kind, (num_nodes, dim) = path.suffix[1:], embedding.shape
    if kind == "ivf" and num_nodes:
        cells = max(1, min(int(num_nodes**0.5), num_nodes // TRAINED_VECTORS))
        sample = embedding[:: max(1, num_nodes // (TRAINED_VECTORS * cells))].float().contiguous().numpy()
        blocks = (block.float().numpy() for block in torch.split(embedding, BLOCK_VECTORS))
        write_ivf_file(path, blocks, sample=sample, num_cells=cells)
        return
    index = new_vector_index(dim, kind, num_nodes, links=32, num_cells=None, half=embedding.dtype == torch.float16)
    fill_vector_index(index, embedding)
    write_vector_index(path, index)


def map_vector_index(path: Path) -> Any:
    """Open a FAISS index, whose vectors stay on disk if it is an IVF index."""
    import faiss

    return faiss.read_index(str(path), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)


def write_ivf_file(path: Path, blocks: Iterable[Floats], *, sample: Floats, num_cells: int) -> str:
    """Write an IVF index of 8 bits a number, which FAISS maps as one that it has written; return the file's SHA-256.

    Vectors are assigned to cells and coded block by block; the codes go to a temporary file, sorted by cell within each
    part, and from there, cell by cell, to the index: the codes of one part, and four bytes a vector, are in memory.

    Args:
        path: The file.
        blocks: All vectors ``[n, d]`` in the order of their numbers.
        sample: ``[m, d]`` vectors to train on.
        num_cells: Cells, at most ``m``.
    """
    import faiss

    dim = sample.shape[1]
    coarse, product = faiss.IndexFlatIP(dim), faiss.METRIC_INNER_PRODUCT
    index: Any = faiss.IndexIVFScalarQuantizer(coarse, dim, num_cells, faiss.ScalarQuantizer.QT_8bit, product, False)
    index.cp.min_points_per_centroid = 1  # no warning for a small corpus
    index.train(sample)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path.parent) as codes:
        ids, starts = _sort_parts(index, _joined(blocks, PART_CODES), codes)
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
