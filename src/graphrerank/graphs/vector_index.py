"""Indexes of FAISS for approximate search: built in memory, mapped from disk, and extended on disk."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.extras import optional
from graphrerank.files import atomic_path, write_bytes

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StoredIndex:
    """Two indexes: of the vectors that were prepared, and of those that were added since.

    The second one has the cells and codes of the first, if it is an IVF index, so that both together hold what one
    index holds to which all vectors were added. Its size, and the time to write it, grow with what was added.

    Attributes:
        path: The first index; its suffix is its kind, ``.ivf`` or ``.hnsw``.
        added: The second one; None if nothing was added.
    """

    path: Path
    added: Path | None = None

    @property
    def kind(self) -> str:
        """``ivf`` or ``hnsw``."""
        return self.path.suffix[1:]

    def open(self) -> list[Any]:
        """Map the indexes; the vectors of the second one follow those of the first."""
        return [map_vector_index(path) for path in (self.path, self.added) if path is not None]

    def write_added(self, path: Path, embedding: Tensor) -> None:
        """Write an index of added vectors that has those that the present ones lack.

        Args:
            path: The new file.
            embedding: ``[N, d]``, all vectors; those that are indexed are not read.

        Raises:
            MissingExtraError: If FAISS is not installed.
        """
        faiss = optional("faiss", "adding to a corpus with an index")
        first = map_vector_index(self.path)
        start = int(first.ntotal)
        added = _without_vectors(first, self.kind) if self.added is None else _read(self.added, start)
        fill_vector_index(added, embedding[start + added.ntotal :])
        write_bytes(path, faiss.serialize_index(added).data)


class IndexSearch:
    """Search in indexes of FAISS whose vectors are numbered one index after the other.

    Args:
        indexes: The indexes.
        kind: Theirs.
        num_probes: IVF: cells that a search visits.
        ef_search: HNSW: nodes kept open in a search.
        removed: ``[N]`` bool, vectors that are not found; None for none.
    """

    def __init__(
        self,
        indexes: Sequence[Any],
        kind: str,
        *,
        num_probes: int,
        ef_search: int,
        removed: Tensor | None = None,
    ) -> None:
        self._starts = np.cumsum([0, *(index.ntotal for index in indexes)]).tolist()
        self._searched = []
        for index, start in zip(indexes, self._starts, strict=False):
            if kind == "ivf":
                index.nprobe = num_probes
            else:
                index.hnsw.efSearch = ef_search
            gone = None if removed is None else removed[start : start + index.ntotal].nonzero().flatten().cpu().numpy()
            self._searched.append((index, start, _kept(gone, kind, num_probes, ef_search)))

    @property
    def num_vectors(self) -> int:
        """How many vectors are indexed."""
        return int(self._starts[-1])

    def propose(self, vectors: Tensor, depth: int) -> Numbers:
        """Ask each index for the ``depth`` nearest vectors of each query ``[n, d]``: ``[n, M]``, -1 for none."""
        queries = vectors.float().cpu().contiguous().numpy()
        found = []
        for index, start, parameters in self._searched:
            nearest: Numbers = index.search(queries, depth, params=parameters)[1]
            found.append(np.where(nearest < 0, -1, nearest + start))
        return np.concatenate(found, axis=1)


def _kept(gone: Numbers | None, kind: str, num_probes: int, ef_search: int) -> Any:
    """Return what keeps FAISS from finding removed vectors; None if there are none."""
    if gone is None or not len(gone):
        return None
    import faiss

    module: Any = faiss  # whose types lack keyword arguments
    kept = module.IDSelectorNot(module.IDSelectorBatch(gone))
    if kind == "hnsw":
        return module.SearchParametersHNSW(sel=kept, efSearch=ef_search)
    return module.SearchParametersIVF(sel=kept, nprobe=num_probes)


def _without_vectors(index: Any, kind: str) -> Any:
    """Make an index like another one without its vectors: with its cells and codes, if it is an IVF index."""
    import faiss

    if kind == "hnsw":
        half = isinstance(index, faiss.IndexHNSWSQ)
        return new_vector_index(index.d, kind, 0, links=index.hnsw.nb_neighbors(1), num_cells=None, half=half)
    lists: Any = faiss.ArrayInvertedLists(index.nlist, index.code_size)
    index.replace_invlists(lists, True)
    lists.this.disown()  # the index frees them
    index.ntotal = 0
    return index


def _read(path: Path, start: int) -> Any:
    """Read an index to which vectors are added."""
    import faiss

    module: Any = faiss
    index = module.read_index(str(path))
    if hasattr(index, "hnsw"):  # else each vector added alone would be in as many layers as the first one
        index.hnsw.rng = module.RandomGenerator(start + index.ntotal)
    return index


EF_CONSTRUCTION = 200
TRAINED_VECTORS = 64  # per cell of an IVF index, more than FAISS's minimum of 39
BLOCK_VECTORS = 1 << 14  # converted and added at once


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
