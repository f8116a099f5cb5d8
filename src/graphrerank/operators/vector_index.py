"""Indexes of FAISS for approximate search: built in memory, written, and mapped from disk."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.utils.checks import UserError
from graphrerank.utils.files import atomic_path

EF_CONSTRUCTION = 200
TRAINED_VECTORS = 64  # per cell of an IVF index, more than FAISS's minimum of 39
BLOCK_VECTORS = 1 << 14  # converted and added at once


def new_vector_index(
    embedding: Tensor, kind: str, *, links: int = 32, num_cells: int | None = None, quantizer: int | None = None
) -> Any:
    """Create an empty index of FAISS, ``hnsw`` or ``ivf``, for dot products, in the precision of vectors ``[N, d]``.

    ``links`` are the neighbours of a node in HNSW's layers; ``num_cells`` the cells of IVF, at most N: about
    ``4 sqrt(N)``, at most one per 64 nodes, when None. IVF may store another ``quantizer`` of FAISS.
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
    if half or quantizer is not None:
        stored: Any = float16 if quantizer is None else quantizer
        index = faiss.IndexIVFScalarQuantizer(coarse, dim, cells, stored, product, False)
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
    """Index vectors ``[N, d]``, which may be mapped, in a file whose suffix is the kind; IVF has 8 bits a number."""
    import faiss

    kind, num_nodes = path.suffix[1:], len(embedding)
    if kind == "hnsw" or not num_nodes:
        index = new_vector_index(embedding, kind)
    else:
        cells = max(1, min(int(num_nodes**0.5), num_nodes // TRAINED_VECTORS))
        index = new_vector_index(embedding, kind, num_cells=cells, quantizer=faiss.ScalarQuantizer.QT_8bit)
        index.train(embedding[:: max(1, num_nodes // (TRAINED_VECTORS * cells))].float().contiguous().numpy())
    fill_vector_index(index, embedding)
    with atomic_path(path) as temporary:
        faiss.write_index(index, str(temporary))
