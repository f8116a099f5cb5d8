"""A score for what a candidate is worth together with its best partner."""

import torch.nn.functional as F
from torch import Tensor, nn

from graphrerank.graphs.algebra import scatter_max


class PairHead(nn.Module):
    r"""Score the pairs that edges join, and give each node the best of its pairs.

    .. math:: p_i = \max_{j \to i} a^\top \mathrm{ReLU}(\Theta_s h_j + \Theta_t h_i + \Theta_e e_{ij})

    Ours: attention averages over neighbours, while a question of two steps needs one partner, whatever the others are.
    Zero at the start, and for a node without an edge.

    Args:
        channels: Width of the nodes' states, and of the layer.
        edge_dim: Width of what is read of an edge; 0 for nothing.
    """

    def __init__(self, channels: int, edge_dim: int) -> None:
        super().__init__()
        self.lin_source = nn.Linear(channels, channels)
        self.lin_target = nn.Linear(channels, channels)
        self.lin_edge = nn.Linear(edge_dim, channels, bias=False) if edge_dim else None
        self.lin_out = nn.Linear(channels, 1, bias=False)
        nn.init.zeros_(self.lin_out.weight)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Score every node: ``[N]``.

        Args:
            x: ``[N, channels]``.
            edge_index: ``[2, E]``.
            edge_attr: ``[E, edge_dim]``.
        """
        of_source = self.lin_source(x).index_select(0, edge_index[0])
        of_target = self.lin_target(x).index_select(0, edge_index[1])
        hidden = of_source + of_target
        if self.lin_edge is not None:
            hidden = hidden + self.lin_edge(edge_attr)
        pairs = self.lin_out(F.relu(hidden)).squeeze(1)
        return scatter_max(pairs, edge_index[1], x.shape[0])
