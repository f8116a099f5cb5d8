"""Approximate FAISS indexes: build them in memory, write them to disk, and memory-map them."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.utils.checks import UserError
from graphrerank.utils.files import atomic_path

#: Size of the candidate queue while an HNSW index is built.
EF_CONSTRUCTION = 200
#: Number of training vectors per cell of an IVF index. FAISS recommends at least 39.
TRAINED_VECTORS = 64
#: Number of vectors that are converted to float32 and added at once.
BLOCK_VECTORS = 1 << 14


def new_vector_index(
    embedding: Tensor, kind: str, *, links: int = 32, num_cells: int | None = None, quantizer: int | None = None
) -> Any:
    """Create an empty FAISS index for dot products. It stores vectors with the precision of the embedding.

    Args:
        embedding: Node vectors ``[N, d]`` that the index is for, float32 or float16.
        kind: ``hnsw`` or ``ivf``.
        links: Number of neighbours of a node in each layer of an HNSW index.
        num_cells: Number of cells of an IVF index, at most ``N``. If None, about ``4 sqrt(N)``, but at most one per 64
            nodes.
        quantizer: Type of a FAISS scalar quantizer for the vectors of an IVF index. If None, the precision of the
            embedding is used.

    Returns:
        Empty FAISS index.

    Raises:
        UserError: If ``num_cells`` is larger than the number of nodes.
    """
    import faiss  # heavy import, so only when it is needed

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
        raise UserError(f"`num_cells` must be at most the number of nodes, {num_nodes}, got {cells}")
    coarse = faiss.IndexFlatIP(dim)
    if half or quantizer is not None:
        stored: Any = float16 if quantizer is None else quantizer
        index = faiss.IndexIVFScalarQuantizer(coarse, dim, cells, stored, product, False)
    else:
        index = faiss.IndexIVFFlat(coarse, dim, cells, product)
    index.cp.min_points_per_centroid = 1  # avoid a warning for small corpora
    return index


def fill_vector_index(index: Any, embedding: Tensor) -> None:
    """Train a FAISS index if necessary, and add all node vectors.

    Args:
        index: FAISS index without vectors.
        embedding: Node vectors ``[N, d]``.
    """
    if not index.is_trained:
        index.train(embedding.float().cpu().contiguous().numpy())
    size = len(embedding) if embedding.dtype == torch.float32 else BLOCK_VECTORS
    for block in torch.split(embedding, max(1, size)):
        index.add(block.float().cpu().contiguous().numpy())


def map_vector_index(path: Path) -> Any:
    """Open a stored FAISS index. The vectors of an IVF index are memory-mapped.

    Args:
        path: Path of the index file.

    Returns:
        FAISS index, read-only.
    """
    import faiss

    return faiss.read_index(str(path), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)


def write_stored_index(path: Path, embedding: Tensor) -> None:
    """Build a FAISS index and write it to a file. An IVF index stores 8 bits per dimension.

    Args:
        path: Path of the file. Its suffix, ``.hnsw`` or ``.ivf``, is the kind of index.
        embedding: Node vectors ``[N, d]``, which may be memory-mapped.
    """
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
