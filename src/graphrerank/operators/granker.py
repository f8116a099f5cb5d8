"""GRanker: smooth the pair vectors of a cross-encoder over edges among retrieved nodes before its head scores them."""

import torch
from torch import Tensor

from graphrerank.core.graph_algebra import row_normalize


def neighbour_context(vectors: Tensor, edge_index: Tensor, degree: Tensor) -> Tensor:
    r"""Return the weighted mean vector of each node's retrieved neighbours.

    .. math:: P H, \qquad P = \mathrm{diag}(W 1)^{-1} W, \qquad W = A D^{-1}, \qquad W_{ij} = A_{ij} / \deg(j)

    A neighbour with a small degree in the corpus graph has a large weight. The function can be scripted and accepts a
    packed batch of graphs.

    Source: FastInsight, Algorithm 2 (GRanker), lines 2 to 5, and the product in line 6. *Differences from the paper:* a
    node without retrieved neighbours keeps its vector. The paper would divide its row of :math:`P` by zero.

    Args:
        vectors: Node vectors :math:`H`, ``[N, h]``.
        edge_index: Unique corpus edges among the nodes, ``[2, E]``, from source to target. Edge weights are not used.
        degree: Number of neighbours of each node in the whole corpus graph, ``[N]``. A degree of 0, which occurs in
            directed graphs, is treated as 1.

    Returns:
        Mean vectors :math:`P H`, ``[N, h]``.

    Example:
        >>> vectors, edges = torch.tensor([[1.0], [2.0], [6.0]]), torch.tensor([[1, 2], [0, 0]])
        >>> neighbour_context(vectors, edges, torch.tensor([2, 1, 3])).flatten()
        tensor([3., 2., 6.])
    """
    source, target = edge_index[0], edge_index[1]
    weight = 1.0 / degree.clamp(min=1).to(vectors.dtype)[source]
    weight = row_normalize(edge_index, weight, vectors.shape[0])
    context = torch.zeros_like(vectors).index_add_(0, target, vectors[source] * weight.unsqueeze(1))
    is_isolated = torch.ones_like(degree, dtype=torch.bool)
    is_isolated[target] = False
    return torch.where(is_isolated.unsqueeze(1), vectors, context)


def smooth_vectors(vectors: Tensor, edge_index: Tensor, degree: Tensor, smoothing: float = 0.2) -> Tensor:
    r"""Move the vector of each node towards those of its retrieved neighbours.

    .. math:: H' = (1 - \alpha) H + \alpha P H

    The function can be scripted and accepts a packed batch of graphs.

    Source: FastInsight, Algorithm 2 (GRanker), line 6. Line 7 is ``encoder.head(smooth_vectors(...))``.

    Args:
        vectors: Node vectors :math:`H`, ``[N, h]``.
        edge_index: Unique corpus edges among the nodes, ``[2, E]``, from source to target.
        degree: Number of neighbours of each node in the whole corpus graph, ``[N]``.
        smoothing: Weight :math:`\alpha` of the neighbours, in [0, 1]. With 0, the vectors are returned unchanged.

    Returns:
        Smoothed vectors :math:`H'`, ``[N, h]``.

    Example:
        >>> vectors, edges = torch.tensor([[1.0], [2.0], [6.0]]), torch.tensor([[1, 2], [0, 0]])
        >>> smooth_vectors(vectors, edges, torch.tensor([2, 1, 3]), smoothing=0.5).flatten()
        tensor([2., 2., 6.])
    """
    return torch.lerp(vectors, neighbour_context(vectors, edge_index, degree), smoothing)
