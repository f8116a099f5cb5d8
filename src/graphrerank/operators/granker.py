"""GRanker: a cross-encoder's vectors, smoothed over the edges among the retrieved nodes before its head scores them."""

import torch
from torch import Tensor

from graphrerank.checks import UserError
from graphrerank.graphs.algebra import row_normalize


def neighbour_context(vectors: Tensor, edge_index: Tensor, degree: Tensor) -> Tensor:
    r"""Average each node's retrieved neighbours, giving those with few neighbours in the corpus more weight.

    .. math:: P H, \qquad P = \mathrm{diag}(W 1)^{-1} W, \qquad W = A D^{-1}, \qquad W_{ij} = A_{ij} / \deg(j)

    Source: FastInsight, Algorithm 2 (GRanker), lines 2 to 5 and the product of line 6. *Where we differ:* a node
    without a retrieved neighbour, whose row of :math:`P` the paper would divide by zero, keeps its vector.
    Scriptable; a packed batch of graphs is one call, as no edge crosses graphs.

    Args:
        vectors: ``[N, h]`` one vector per retrieved node, ``H``.
        edge_index: ``[2, E]`` unique corpus edges among the retrieved nodes, in any order; :math:`A_{ij}` is 1 for the
            edge ``j -> i``, whatever its weight.
        degree: ``[N]`` number of neighbours of each node in the whole corpus graph. 0 counts as 1: in a directed graph
            a neighbour may have none.

    Example:
        >>> edges = torch.tensor([[1, 2], [0, 0]])
        >>> neighbour_context(torch.tensor([[9.0], [1.0], [4.0]]), edges, torch.tensor([2, 1, 2]))
        tensor([[2.],
                [1.],
                [4.]])
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

    Source: FastInsight, Algorithm 2 (GRanker), line 6. Its line 7 is the cross-encoder's head on the result:
    ``encoder.head(smooth_vectors(...))``. Arguments are those of :func:`neighbour_context`, and the paper's
    :math:`\alpha` in [0, 1]; 0, like no retrieved neighbour, keeps the vectors to the last bit. Scriptable.

    Example:
        >>> edges = torch.tensor([[1, 2], [0, 0]])
        >>> smooth_vectors(torch.tensor([[9.0], [1.0], [4.0]]), edges, torch.tensor([2, 1, 2]), 0.5)
        tensor([[5.5000],
                [1.0000],
                [4.0000]])
    """
    if not 0.0 <= smoothing <= 1.0:  # not `check_share`: TorchScript compiles this function
        raise UserError(f"`smoothing` must lie in [0, 1], got {smoothing}")
    return torch.lerp(vectors, neighbour_context(vectors, edge_index, degree), smoothing)
