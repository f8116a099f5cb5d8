"""Indexes of FAISS for approximate search: built in memory, written, and mapped from disk."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.files import atomic_path

EF_CONSTRUCTION = 200
TRAINED_VECTORS = 64  # per cell of an IVF index, more than FAISS's minimum of 39
BLOCK_VECTORS = 1 << 14  # converted and added at once


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

    def propose(self, vectors: Tensor, depth: int) -> npt.NDArray[np.int64]:
        """Find the ``depth`` nearest vectors of each query ``[n, d]``: ``[n, depth]``, -1 for none."""
        queries = vectors.float().cpu().contiguous().numpy()
        nearest: npt.NDArray[np.int64] = self._index.search(queries, depth, params=self._parameters)[1]
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


def map_vector_index(path: Path) -> Any:
    """Open a FAISS index, whose vectors stay on disk if it is an IVF index."""
    import faiss

    return faiss.read_index(str(path), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
