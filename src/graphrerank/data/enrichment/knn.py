"""Semantic edges: each passage joined with its nearest neighbours by vectors."""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.checks import UserError, check_counts
from graphrerank.data.engines.local import LOCAL, Block, Engine
from graphrerank.graphs import top_k_by_node_order

BLOCK_SCORES = 1 << 24  # similarities held at once: 64 MiB of float32


def nearest_neighbor_edges(
    vectors: Tensor, *, k: int, nodes: Tensor | None = None, engine: Engine = LOCAL
) -> tuple[Tensor, Tensor]:
    """Join each passage with the ``k`` passages of the largest dot product, in blocks; ties break by passage number.

    Exact: time grows with the square of the corpus, memory linearly. ``vectors`` are ``[N, d]``, finite; ``nodes [S]``
    the passages to join, all when None.

    Returns:
        ``[M, 2]`` int64, each pair once with the smaller number first, ascending; ``[M]`` float32 dot products, of
        which those of 0 or below are left out: an edge weight must be positive.

    Example:
        >>> nearest_neighbor_edges(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]]), k=1)
        (tensor([[0, 2], [1, 2]]), tensor([0.8000, 0.9600]))
    """
    if vectors.dim() != 2 or not torch.isfinite(vectors).all():
        raise UserError(f"`vectors` must be a finite [N, d] matrix, got {list(vectors.shape)}")
    check_counts(k=k)
    num_nodes = len(vectors)
    wanted = torch.arange(num_nodes) if nodes is None else nodes
    rows = max(1, BLOCK_SCORES // max(1, num_nodes))
    blocks = ({"nodes": block.numpy()} for block in torch.split(wanted, rows) if len(block))
    found = list(engine.map(_Nearest(vectors.cpu().numpy(), k), blocks))
    if not found:
        return torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0)
    source, target, weights = (
        torch.from_numpy(np.concatenate([block[name] for block in found])) for name in ("source", "target", "weight")
    )
    pair = torch.minimum(source, target) * num_nodes + torch.maximum(source, target)
    key, inverse = torch.unique(pair, return_inverse=True)
    weight = torch.zeros(len(key)).scatter_reduce_(0, inverse, weights, "amax")
    first = torch.div(key, num_nodes, rounding_mode="floor")
    return torch.stack([first, key - first * num_nodes], dim=1), weight


class _Nearest:
    """Finds the nearest of all vectors for a block of them."""

    def __init__(self, vectors: npt.NDArray[Any], k: int) -> None:
        self.vectors = vectors  # an array: workers on one machine share its pages
        self.k = k

    def __call__(self, block: Block) -> Block:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            vectors = torch.from_numpy(self.vectors)
        nodes = torch.from_numpy(np.asarray(block["nodes"]))
        scores = (vectors[nodes] @ vectors.T).float()
        scores[torch.arange(len(nodes)), nodes] = -torch.inf  # not its own neighbour
        near, nearest = top_k_by_node_order(scores, min(self.k, len(vectors)))
        row, column = torch.nonzero(nearest > 0, as_tuple=True)
        return {
            "source": nodes[row].numpy(),
            "target": near[row, column].numpy(),
            "weight": nearest[row, column].numpy(),
        }
