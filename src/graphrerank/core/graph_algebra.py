"""Sparse message-passing operations on packed graphs, in plain tensors so that every function can be scripted.

Edges follow PyTorch Geometric: ``edge_index [2, E]`` contains sources in ``edge_index[0]`` and targets in
``edge_index[1]``, and messages flow from source to target. A packed batch is one disconnected graph. Its boundaries
``ptr [B + 1]`` are int64 and start with 0, and the nodes of graph ``g`` are ``ptr[g]:ptr[g + 1]``.
"""

import torch
from torch import Tensor


def scatter_sum(src: Tensor, index: Tensor, num_nodes: int) -> Tensor:
    """Sum the rows that share an index.

    Args:
        src: Rows ``[E, ...]``.
        index: Index of each row, ``[E]`` int64.
        num_nodes: Number of rows of the result.

    Returns:
        Sums ``[num_nodes, ...]``, 0 for indices without rows.
    """
    out = torch.zeros([num_nodes] + list(src.shape[1:]), dtype=src.dtype, device=src.device)  # noqa: RUF005 (TorchScript)
    return out.index_add_(0, index, src)


def scatter_max(src: Tensor, index: Tensor, num_nodes: int) -> Tensor:
    """Return the maximum of the rows that share an index.

    Args:
        src: Rows ``[E]`` or ``[E, C]``.
        index: Index of each row, ``[E]`` int64.
        num_nodes: Number of rows of the result.

    Returns:
        Maxima ``[num_nodes]`` or ``[num_nodes, C]``, 0 for indices without rows.
    """
    out = torch.zeros([num_nodes] + list(src.shape[1:]), dtype=src.dtype, device=src.device)  # noqa: RUF005 (TorchScript)
    expanded = index if src.dim() == 1 else index.unsqueeze(1).expand_as(src)
    return out.scatter_reduce_(0, expanded, src, "amax", include_self=False)


def graph_of_nodes(ptr: Tensor, num_nodes: int) -> Tensor:
    """Return the index of the graph of each node.

    The shape of the result does not depend on data, as ``torch.export`` requires.

    Args:
        ptr: Boundaries of the graphs, ``[B + 1]``.
        num_nodes: Number of nodes, ``ptr[-1]``.

    Returns:
        Indices ``[num_nodes]``, int64.
    """
    ends = torch.zeros([num_nodes + 1], dtype=torch.int64, device=ptr.device)
    return ends.index_add_(0, ptr[1:], torch.ones_like(ptr[1:])).cumsum(0)[:num_nodes]


def row_normalize(edge_index: Tensor, edge_weight: Tensor, num_nodes: int) -> Tensor:
    r"""Divide each edge weight by the sum over the edges into its target: :math:`W_{ij} = A_{ij} / \sum_k A_{ik}`.

    The edge ``j -> i`` has the weight :math:`A_{ij}`, so a row of :math:`A` contains the edges into one node.

    Args:
        edge_index: Edges ``[2, E]``.
        edge_weight: Non-negative weights ``[E]``.
        num_nodes: Number of nodes.

    Returns:
        Normalised weights ``[E]``, 0 if all weights of a row are 0.

    Example:
        >>> row_normalize(torch.tensor([[0, 1, 1], [2, 2, 0]]), torch.tensor([1.0, 3.0, 5.0]), 3)
        tensor([0.2500, 0.7500, 1.0000])
    """
    return _normalize(edge_weight, edge_index[1], num_nodes)


def column_normalize(edge_index: Tensor, edge_weight: Tensor, num_nodes: int) -> Tensor:
    r"""Divide each edge weight by the sum over the edges out of its source: :math:`P_{ij} = A_{ij} / \sum_k A_{kj}`.

    Args:
        edge_index: Edges ``[2, E]``.
        edge_weight: Non-negative weights ``[E]``.
        num_nodes: Number of nodes.

    Returns:
        Normalised weights ``[E]``, 0 if all weights of a column are 0.
    """
    return _normalize(edge_weight, edge_index[0], num_nodes)


def _normalize(edge_weight: Tensor, index: Tensor, num_nodes: int) -> Tensor:
    total = scatter_sum(edge_weight, index, num_nodes).index_select(0, index)
    return torch.where(total > 0, edge_weight / torch.where(total > 0, total, torch.ones_like(total)), 0.0)


def propagate(scores: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
    """Multiply the weighted adjacency matrix by node scores: ``out[i]`` is the sum of ``weight[j -> i] * scores[j]``.

    Args:
        scores: Node scores ``[N]``.
        edge_index: Edges ``[2, E]``.
        edge_weight: Weights ``[E]``.

    Returns:
        Scores ``[N]``.
    """
    return torch.zeros_like(scores).index_add_(0, edge_index[1], scores.index_select(0, edge_index[0]) * edge_weight)


def with_self_loops(edge_index: Tensor, edge_attr: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Replace self-loops by one per node with the mean attribute of the edges into it, and sort the edges by target.

    The order within a target is preserved and the self-loop comes last. Sums over the edges of a node therefore equal
    those after ``remove_self_loops`` and ``add_self_loops(fill_value="mean")`` of PyTorch Geometric to the last bit.

    Args:
        edge_index: Edges ``[2, E]``.
        edge_attr: Edge attributes ``[E, D]``. ``D`` may be 0.
        num_nodes: Number of nodes.

    Returns:
        Edges and edge attributes, sorted by target.
    """
    is_proper = edge_index[0] != edge_index[1]
    edge_index, edge_attr = edge_index[:, is_proper], edge_attr[is_proper]
    loops = torch.arange(num_nodes, device=edge_index.device)
    count = scatter_sum(torch.ones_like(edge_index[1], dtype=edge_attr.dtype), edge_index[1], num_nodes)
    mean = scatter_sum(edge_attr, edge_index[1], num_nodes) / count.clamp(min=1).unsqueeze(1)
    target = torch.cat([edge_index[1], loops])
    order = torch.argsort(target, stable=True)
    source = torch.cat([edge_index[0], loops])[order]
    return torch.stack([source, target[order]]), torch.cat([edge_attr, mean])[order]
