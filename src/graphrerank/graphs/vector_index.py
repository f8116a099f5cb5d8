"""Indexes of FAISS for approximate search: built in memory, written, and mapped from disk."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphrerank.checks import UserError
from graphrerank.files import atomic_path, write_chunks

EF_CONSTRUCTION = 200
TRAINED_VECTORS = 64  # per cell of an IVF index, more than FAISS's minimum of 39
BLOCK_VECTORS = 1 << 14  # converted and added at once
LISTS = struct.Struct("<4sQQ4sQ")  # the start of an index's lists: format, number, bytes of a code, kind, number


def new_vector_index(embedding: Tensor, kind: str, *, links: int = 32, num_cells: int | None = None) -> Any:
    """Create an empty index of FAISS, ``hnsw`` or ``ivf``, for dot products, in the precision of vectors ``[N, d]``.

    ``links`` are the neighbours of a node in HNSW's layers; ``num_cells`` the cells of IVF, at most N: about
    ``4 sqrt(N)``, at most one per 64 nodes, when None.
    """
    import faiss  # heavy: only when something is searched

    num_nodes, dim = embedding.shape
    product: Any = faiss.METRIC_INNER_PRODUCT
    float16: Any = faiss.ScalarQuantizer.QT_fp16
    half = embedding.dtype == torch.float16
    index: Any
    if kind == "hnsw":
        index = faiss.IndexHNSWSQ(dim, float16, links, product) if half else faiss.IndexHNSWFlat(dim, links, product)
        index.hnsw.efConstruction = EF_CONSTRUCTION
        return index
    cells = num_cells or max(1, min(int(4 * num_nodes**0.5), num_nodes // TRAINED_VECTORS))
    if cells > num_nodes:
        raise UserError(f"`num_cells` must be at most the {num_nodes} nodes, got {cells}")
    coarse = faiss.IndexFlatIP(dim)
    if half:
        index = faiss.IndexIVFScalarQuantizer(coarse, dim, cells, float16, product, False)
    else:
        index = faiss.IndexIVFFlat(coarse, dim, cells, product)
    index.cp.min_points_per_centroid = 1  # no warning for a small corpus
    return index


def fill_vector_index(index: Any, embedding: Tensor) -> None:
    """Train an index if it needs it, and add all node vectors ``[N, d]``, in blocks if they are float16."""
    if not index.is_trained:
        index.train(embedding.float().cpu().contiguous().numpy())
    size = len(embedding) if embedding.dtype == torch.float32 else BLOCK_VECTORS
    for block in torch.split(embedding, max(1, size)):
        index.add(block.float().cpu().contiguous().numpy())


def map_vector_index(path: Path) -> Any:
    """Open an index of FAISS, whose vectors stay on disk if it is an IVF index."""
    import faiss

    return faiss.read_index(str(path), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)


def write_stored_index(path: Path, embedding: Tensor) -> None:
    """Index vectors ``[N, d]``, which may be mapped, in a file whose suffix is the kind.

    An IVF index has 8 bits a number; its codes are written cell by cell, so that memory does not grow with them.
    """
    import faiss

    kind, (num_nodes, dim) = path.suffix[1:], embedding.shape
    if kind == "hnsw" or not num_nodes:
        index = new_vector_index(embedding, kind)
        fill_vector_index(index, embedding)
        with atomic_path(path) as temporary:
            faiss.write_index(index, str(temporary))
        return
    cells = max(1, min(int(num_nodes**0.5), num_nodes // TRAINED_VECTORS))
    sample = embedding[:: max(1, num_nodes // (TRAINED_VECTORS * cells))].float().contiguous().numpy()
    coarse, product = faiss.IndexFlatIP(dim), faiss.METRIC_INNER_PRODUCT
    ivf: Any = faiss.IndexIVFScalarQuantizer(coarse, dim, cells, faiss.ScalarQuantizer.QT_8bit, product, False)
    ivf.cp.min_points_per_centroid = 1  # no warning for a small corpus
    ivf.train(sample)
    ivf.ntotal = num_nodes
    write_chunks(path, _ivf_chunks(ivf, embedding))


def _ivf_chunks(index: Any, embedding: Tensor) -> Iterator[bytes | memoryview]:
    """Yield the file as FAISS writes it: what comes before the lists, their sizes, each list's codes and numbers."""
    import faiss

    blocks = torch.split(embedding, BLOCK_VECTORS)
    cell = np.concatenate([index.quantizer.search(block.float().numpy(), 1)[1][:, 0] for block in blocks])
    sizes = np.bincount(cell, minlength=index.nlist)
    by_cell = np.split(np.argsort(cell, kind="stable"), np.cumsum(sizes)[:-1])
    head, width = faiss.serialize_index(index).tobytes(), index.code_size
    empty = LISTS.pack(b"ilar", index.nlist, width, b"sprs", 0)
    assert head.endswith(empty), "FAISS writes empty lists in another way"
    yield head[: -len(empty)]
    yield LISTS.pack(b"ilar", index.nlist, width, b"full", index.nlist)
    yield sizes.astype("<u8").data
    for nodes in by_cell:
        yield index.sq.compute_codes(embedding[torch.from_numpy(nodes)].float().numpy()).tobytes()
        yield nodes.astype("<i8").tobytes()
