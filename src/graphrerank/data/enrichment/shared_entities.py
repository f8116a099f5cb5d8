"""Conceptual edges of a bounded number: each passage joined with those that share its most specific entities."""

import math

import torch
from torch import Tensor

from graphrerank.checks import check_counts
from graphrerank.graphs import EntityIncidence
from graphrerank.graphs.sparse_rows import positions_in_rows

BLOCK_NODES = 1 << 12  # passages looked at at once


def shared_entity_edges(incidence: EntityIncidence, *, max_neighbours: int = 5) -> tuple[Tensor, Tensor]:
    r"""Join each passage with the ``max_neighbours`` passages whose shared entities are the most specific together.

    .. math::
        s_{ij} = \sum_{e \in E_i \cap E_j} \ln(1 + N / n_e), \qquad w_{ij} = \frac{s_{ij}}{s_{ij} + \ln(1 + N / 2)}

    with :math:`n_e` the passages that hold entity :math:`e`, of :math:`N`: one entity that no third passage holds
    weighs 1/2. Source: ours. On the training questions of 2WikiMultihopQA, :math:`s` separates edges between two
    relevant passages from others better (area under the curve 0.83) than its ratios to all that both or either hold
    (0.70 to 0.72). Of the pairs of relevant passages that share an entity, 5 neighbours join 97% there, by 64% of the
    edges, and 92% on HotpotQA, by 38%.

    Args:
        incidence: The entities of ``N`` passages.
        max_neighbours: Neighbours that each passage chooses, at least 1, ties by passage number; it may be chosen by
            more.

    Returns:
        ``[M, 2]`` int64, each pair once with the smaller number first, ascending; ``[M]`` float32 weights in (0, 1).

    Raises:
        ValueError: If ``max_neighbours`` is below 1.

    Example:
        >>> incidence = EntityIncidence.from_names([["rome", "nero"], ["rome"], ["nero", "rome"], ["oslo"]])
        >>> shared_entity_edges(incidence, max_neighbours=1)
        (tensor([[0, 1],
                [0, 2]]), tensor([0.4354, 0.6392]))
    """
    check_counts(max_neighbours=max_neighbours)
    num_nodes = incidence.num_nodes
    specificity = torch.log1p(num_nodes / incidence.num_holders.double())
    keys, sums = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, dtype=torch.float64)]
    for nodes in torch.split(torch.arange(num_nodes), BLOCK_NODES):
        origin, partner, entity = incidence.shared(nodes)
        key, inverse = torch.unique(nodes[origin] * num_nodes + partner, return_inverse=True)
        total = torch.zeros(len(key), dtype=torch.float64).index_add_(0, inverse, specificity[entity])
        order = torch.argsort(total, descending=True, stable=True)
        order = order[torch.argsort(torch.div(key[order], num_nodes, rounding_mode="floor"), stable=True)]
        row = torch.div(key[order], num_nodes, rounding_mode="floor")
        kept = order[positions_in_rows(row) < max_neighbours]
        row, partner = torch.div(key[kept], num_nodes, rounding_mode="floor"), key[kept] % num_nodes
        keys.append(torch.minimum(row, partner) * num_nodes + torch.maximum(row, partner))
        sums.append(total[kept])
    key, inverse = torch.unique(torch.cat(keys), return_inverse=True)
    total = torch.zeros(len(key), dtype=torch.float64).scatter_reduce_(0, inverse, torch.cat(sums), "amax")
    first = torch.div(key, max(num_nodes, 1), rounding_mode="floor")
    weight = total / (total + math.log1p(num_nodes / 2))
    return torch.stack([first, key - first * num_nodes], dim=1), weight.float()
