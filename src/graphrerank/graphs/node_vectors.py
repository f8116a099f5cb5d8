"""Vectors of the nodes of a corpus graph, and an index over them."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphrerank.graphs.vector_index import StoredIndex


@dataclass(frozen=True)
class NodeVectors:
    """One vector per node.

    Attributes:
        embedding: ``[N, d]`` float32, or float16 on disk. A node without a vector has zeros: its likeness to every
            query is 0, and it is found by its words and its neighbours like any other.
        index: A stored index of FAISS over the vectors, or None.
        content: Hash of ids, texts and vectors (:func:`~graphrerank.graphs.content_hash.content_hash`), if known.
    """

    embedding: Tensor
    index: StoredIndex | None = None
    content: str | None = None

    def to(self, device: str | torch.device) -> "NodeVectors":
        """Return the same vectors on a device."""
        return replace(self, embedding=self.embedding.to(device))
