"""GATv2's attention in steps whose shapes follow from those of the inputs, which is what ``torch.export`` traces.

The sorted form of :mod:`graphrerank.models.gatv2` removes self-loops, so that its number of edges depends on the data,
and reads row pointers, for which ONNX has no operator. This form masks self-loops and adds up by index: the same sums
in another order.
"""

import torch
from torch import Tensor

from graphrerank.graphs.algebra import scatter_sum


def static_edges(edge_index: Tensor, edge_attr: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Append one self-loop per node, with the mean attribute of the edges into it, and mark which edges count.

    Example:
        >>> static_edges(torch.tensor([[1, 0], [0, 0]]), torch.tensor([[3.0], [9.0]]), 2)[1:]
        (tensor([[3.],
                [9.],
                [3.],
                [0.]]), tensor([ True, False,  True,  True]))
    """
    loops = torch.arange(num_nodes, device=edge_index.device)
    counts = edge_index[0] != edge_index[1]
    if edge_attr.shape[1]:
        kept = counts.to(edge_attr.dtype).unsqueeze(1)
        total = scatter_sum(edge_attr * kept, edge_index[1], num_nodes)
        mean = total / scatter_sum(kept, edge_index[1], num_nodes).clamp(min=1)
        edge_attr = torch.cat([edge_attr, mean])
    edge_index = torch.cat([edge_index, torch.stack([loops, loops])], dim=1)
    return edge_index, edge_attr, torch.cat([counts, torch.ones_like(loops, dtype=torch.bool)])


def static_attention(logits: Tensor, messages: Tensor, target: Tensor, counts: Tensor, num_nodes: int) -> Tensor:
    """Sum the messages ``[E, H, C]`` into each target, weighted by the softmax of their logits: ``[N, H * C]``."""
    logits = logits.masked_fill(~counts.unsqueeze(1), -torch.inf)
    lowest = torch.full([num_nodes, logits.shape[1]], -torch.inf, dtype=logits.dtype, device=logits.device)
    highest = lowest.scatter_reduce(0, target.unsqueeze(1).expand_as(logits), logits, "amax", include_self=True)
    weight = (logits - highest.index_select(0, target)).exp()
    weight = weight / scatter_sum(weight, target, num_nodes).index_select(0, target)
    return scatter_sum((messages * weight.unsqueeze(-1)).flatten(1), target, num_nodes)
