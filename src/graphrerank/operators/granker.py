"""GRanker: a cross-encoder's vectors, smoothed over the edges among the retrieved nodes before its head scores them."""

import torch
from torch import Tensor

from graphrerank.core.graph_algebra import row_normalize


def neighbour_context(vectors: Tensor, edge_index: Tensor, degree: Tensor) -> Tensor:
    r"""Average each node's retrieved neighbours, giving those with few neighbours in the corpus more weight.

    .. math:: P H, \qquad P = \mathrm{diag}(W 1)^{-1} W, \qquad W = A D^{-1}, \qquad W_{ij} = A_{ij} / \deg(j)

    Source: FastInsight, Algorithm 2 (GRanker), lines 2 to 5 and the product of line 6. *Where we differ:* a node
    without a retrieved neighbour, whose row of :math:`P` the paper would divide by zero, keeps its vector.
    Scriptable; a packed batch of graphs is one call.

    ``vectors`` ``[N, h]`` are :math:`H`, ``edge_index [2, E]`` the unique corpus edges among the nodes, whatever their
    weights, and ``degree`` ``[N]`` the nodes' neighbours in the whole corpus; 0, of a directed graph, counts as 1.
    """
    source, target = edge_index[0], edge_index[1]
    weight = 1.0 / degree.clamp(min=1).to(vectors.dtype)[source]
    weight = row_normalize(edge_index, weight, vectors.shape[0])
    context = torch.zeros_like(vectors).index_add_(0, target, vectors[source] * weight.unsqueeze(1))
    is_isolated = torch.ones_like(degree, dtype=torch.bool)
    is_isolated[target] = False
    return torch.where(is_isolated.unsqueeze(1), vectors, context)


def smooth_vectors(vectors: Tensor, edge_index: Tensor, degree: Tensor, smoothing: float = 0.2) -> Tensor:
    r"""Move each node's vector towards its retrieved neighbours'.

    .. math:: H' = (1 - \alpha) H + \alpha P H

    Source: FastInsight, Algorithm 2 (GRanker), line 6; line 7 is ``encoder.head(smooth_vectors(...))``. Arguments are
    those of :func:`neighbour_context`, and :math:`\alpha` in [0, 1]; 0 keeps the vectors to the last bit. Scriptable.
    """
    return torch.lerp(vectors, neighbour_context(vectors, edge_index, degree), smoothing)
