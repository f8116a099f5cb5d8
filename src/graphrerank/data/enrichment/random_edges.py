"""Random edges: noise, with which a model is trained or held to account."""

import torch
from torch import Tensor

from graphrerank.checks import check_not_negative


def random_edges(joined: Tensor, count: int, *, num_nodes: int, seed: int = 0) -> Tensor:
    """Draw pairs of different nodes that are not joined, each with the same probability: ``[count, 2]`` int64.

    Each pair comes once, the smaller node first; all that there are, if they are fewer. ``joined [M, 2]`` are in any
    order.

    Example:
        >>> random_edges(torch.tensor([[1, 0]]), 9, num_nodes=3).sort(dim=0).values
        tensor([[0, 2],
                [1, 2]])
    """
    check_not_negative(count=count)
    ends = joined.sort(dim=1).values
    taken = torch.unique((ends[:, 0] * num_nodes + ends[:, 1])[ends[:, 0] != ends[:, 1]])
    count = min(count, num_nodes * (num_nodes - 1) // 2 - len(taken))
    generator, drawn = torch.Generator().manual_seed(seed), taken[:0]
    while len(drawn) < count:
        ends = torch.randint(num_nodes, (2 * count, 2), generator=generator).sort(dim=1).values
        keys = (ends[:, 0] * num_nodes + ends[:, 1])[ends[:, 0] != ends[:, 1]]
        drawn = torch.unique(torch.cat([drawn, keys[~torch.isin(keys, taken)]]))
    drawn = drawn[torch.randperm(len(drawn), generator=generator)[:count]]
    return torch.stack([torch.div(drawn, num_nodes, rounding_mode="floor"), drawn % num_nodes], dim=1)
