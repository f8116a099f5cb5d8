"""Vectors of the nodes of a corpus graph, and an index over them."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor


@dataclass(frozen=True)
class NodeVectors:
    """One vector per node.

    Attributes:
        embedding: ``[N, d]`` float32, or float16 on disk. A node without a vector has zeros: its likeness to every
            query is 0, and it is found by its words and its neighbours like any other.
        index: File of an index of FAISS over the first of the vectors, whose suffix is its kind, ``.ivf`` or ``.hnsw``.
        content: Hash of ids, texts and vectors (:func:`~graphrerank.graphs.content_hash.content_hash`), if known.
    """

    embedding: Tensor
    index: Path | None = None
    content: str | None = None

    def to(self, device: str | torch.device) -> "NodeVectors":
        """Return the same vectors on a device."""
        return replace(self, embedding=self.embedding.to(device))
