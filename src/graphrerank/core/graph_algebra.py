"""Sparse message-passing algebra on packed graphs, in plain tensors so that every function scripts.

Edges follow PyTorch Geometric: ``edge_index [2, E]`` holds sources in ``edge_index[0]``, targets in ``edge_index[1]``;
messages flow from source to target. A packed batch is one disconnected graph: ``ptr[g]:ptr[g + 1]`` are the nodes of
graph ``g``, ``ptr`` is ``[B + 1]`` int64 and begins with 0.
"""

import torch
from torch import Tensor


def scatter_sum(src: Tensor, index: Tensor, num_nodes: int) -> Tensor:
    """Sum the rows of ``src [E, ...]`` that share an ``index [E]``: ``[num_nodes, ...]``, 0 for an empty row."""
    out = torch.zeros([num_nodes] + list(src.shape[1:]), dtype=src.dtype, device=src.device)  # noqa: RUF005 (TorchScript)
    return out.index_add_(0, index, src)


def scatter_max(src: Tensor, index: Tensor, num_nodes: int) -> Tensor:
    """Take the largest of the rows of ``src``, ``[E]`` or ``[E, C]``, that share an ``index``; 0 for an empty row."""
    out = torch.zeros([num_nodes] + list(src.shape[1:]), dtype=src.dtype, device=src.device)  # noqa: RUF005 (TorchScript)
    expanded = index if src.dim() == 1 else index.unsqueeze(1).expand_as(src)
    return out.scatter_reduce_(0, expanded, src, "amax", include_self=False)


def graph_of_nodes(ptr: Tensor, num_nodes: int) -> Tensor:
    """Give each of ``ptr[-1]`` nodes the number of its graph; the shape depends on no data: for ``torch.export``."""
    ends = torch.zeros([num_nodes + 1], dtype=torch.int64, device=ptr.device)
    return ends.index_add_(0, ptr[1:], torch.ones_like(ptr[1:])).cumsum(0)[:num_nodes]


def row_normalize(edge_index: Tensor, edge_weight: Tensor, num_nodes: int) -> Tensor:
    r"""Divide each edge weight by the sum over the edges into its target: :math:`W_{ij} = A_{ij} / \sum_k A_{ik}`.

    The edge ``j -> i`` carries :math:`A_{ij}`, not negative, so a row of :math:`A` is what flows into one node. Rows of
    zeros stay 0.

    Example:
        >>> row_normalize(torch.tensor([[0, 1, 1], [2, 2, 0]]), torch.tensor([1.0, 3.0, 5.0]), 3)
        tensor([0.2500, 0.7500, 1.0000])
    """
    return _normalize(edge_weight, edge_index[1], num_nodes)


def column_normalize(edge_index: Tensor, edge_weight: Tensor, num_nodes: int) -> Tensor:
    r"""Divide each edge weight by the sum over the edges out of its source: :math:`P_{ij} = A_{ij} / \sum_k A_{kj}`."""
    return _normalize(edge_weight, edge_index[0], num_nodes)


def _normalize(edge_weight: Tensor, index: Tensor, num_nodes: int) -> Tensor:
    total = scatter_sum(edge_weight, index, num_nodes).index_select(0, index)
    return torch.where(total > 0, edge_weight / torch.where(total > 0, total, torch.ones_like(total)), 0.0)


def propagate(scores: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
    """Multiply the weighted adjacency with node scores ``[N]``: ``out[i] = sum of weight[j -> i] * scores[j]``."""
    return torch.zeros_like(scores).index_add_(0, edge_index[1], scores.index_select(0, edge_index[0]) * edge_weight)


def with_self_loops(edge_index: Tensor, edge_attr: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Replace self-loops by one per node, with the mean attribute of the edges into it, and sort edges by target.

    The order within a target is kept and the loop comes last, so that sums over a node's edges run in the same order,
    to the last bit, as in PyTorch Geometric's ``remove_self_loops`` and ``add_self_loops(fill_value="mean")``.
    ``edge_attr`` is ``[E, D]``; ``D`` may be 0.
    """
    kept = edge_index[0] != edge_index[1]
    edge_index, edge_attr = edge_index[:, kept], edge_attr[kept]
    loops = torch.arange(num_nodes, device=edge_index.device)
    count = scatter_sum(torch.ones_like(edge_index[1], dtype=edge_attr.dtype), edge_index[1], num_nodes)
    mean = scatter_sum(edge_attr, edge_index[1], num_nodes) / count.clamp(min=1).unsqueeze(1)
    target = torch.cat([edge_index[1], loops])
    order = torch.argsort(target, stable=True)
    source = torch.cat([edge_index[0], loops])[order]
    return torch.stack([source, target[order]]), torch.cat([edge_attr, mean])[order]
