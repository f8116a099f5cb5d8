"""Conceptual edges of a bounded number: each passage joined with those that share its most specific entities."""

import math

import numpy as np
import torch
from torch import Tensor

from graphrerank.checks import check_counts
from graphrerank.data.engines import LOCAL, Block, Engine
from graphrerank.graphs import EntityIncidence
from graphrerank.graphs.sparse_rows import positions_in_rows

BLOCK_NODES = 1 << 12  # passages looked at at once


def shared_entity_edges(
    incidence: EntityIncidence, *, max_neighbours: int = 5, engine: Engine = LOCAL
) -> tuple[Tensor, Tensor]:
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
        engine: Works on the blocks.

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
    blocks = ({"nodes": nodes.numpy()} for nodes in torch.split(torch.arange(num_nodes), BLOCK_NODES) if len(nodes))
    keys, sums = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, dtype=torch.float64)]
    for chosen in engine.map(_Chosen(incidence, max_neighbours), blocks):
        keys.append(torch.from_numpy(np.asarray(chosen["key"])))
        sums.append(torch.from_numpy(np.asarray(chosen["sum"])))
    key, inverse = torch.unique(torch.cat(keys), return_inverse=True)
    total = torch.zeros(len(key), dtype=torch.float64).scatter_reduce_(0, inverse, torch.cat(sums), "amax")
    first = torch.div(key, max(num_nodes, 1), rounding_mode="floor")
    weight = total / (total + math.log1p(num_nodes / 2))
    return torch.stack([first, key - first * num_nodes], dim=1), weight.float()


class _Chosen:
    """Chooses the neighbours of a block of passages: ``key``, both ends' numbers in one, and ``sum``."""

    def __init__(self, incidence: EntityIncidence, max_neighbours: int) -> None:
        self.incidence = incidence
        self.max_neighbours = max_neighbours

    def __call__(self, block: Block) -> Block:
        nodes, num_nodes = torch.from_numpy(np.asarray(block["nodes"])), self.incidence.num_nodes
        specificity = torch.log1p(num_nodes / self.incidence.num_holders.double())
        origin, partner, entity = self.incidence.shared(nodes)
        key, inverse = torch.unique(nodes[origin] * num_nodes + partner, return_inverse=True)
        total = torch.zeros(len(key), dtype=torch.float64).index_add_(0, inverse, specificity[entity])
        order = torch.argsort(total, descending=True, stable=True)
        order = order[torch.argsort(torch.div(key[order], num_nodes, rounding_mode="floor"), stable=True)]
        row = torch.div(key[order], num_nodes, rounding_mode="floor")
        kept = order[positions_in_rows(row) < self.max_neighbours]
        row, partner = torch.div(key[kept], num_nodes, rounding_mode="floor"), key[kept] % num_nodes
        pair = torch.minimum(row, partner) * num_nodes + torch.maximum(row, partner)
        return {"key": pair.numpy(), "sum": total[kept].numpy()}
