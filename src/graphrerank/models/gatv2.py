"""GATv2 attention layers on an edge list.

- With the same weights, the layers are equal to ``GATv2Conv`` of PyTorch Geometric to the last bit. Unlike
  ``GATv2Conv``, they can be scripted.
- Self-loops, the order by target and the row pointers are computed once for a stack of layers, not once per layer.
- Without gradients, the layers work in place and are two to three times as fast (``benchmarks/gatv2_layers.py``).
- Under ``torch.export``, all shapes follow from the shapes of the inputs (see :func:`static_edges`). Self-loops are
  masked instead of removed, and sums use indices instead of row pointers, for which ONNX has no operator. The sums are
  then computed in a different order.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._jit_internal import is_scripting  # mypy does not find it in torch.jit

from graphrerank.core.graph_algebra import scatter_sum, with_self_loops
from graphrerank.core.row_linear import RowLinear


class GATv2Layer(nn.Module):
    r"""Multi-head GATv2 layer with self-loops and concatenated heads.

    .. math::
        x'_i = \sum_{j \in N(i) \cup \{i\}} \alpha_{ij} \Theta_s x_j + b, \quad
        \alpha_{ij} = \mathrm{softmax}_j\, a^\top \mathrm{LeakyReLU}(\Theta_s x_j + \Theta_t x_i + \Theta_e e_{ij})

    Source: Brody, Alon and Yahav, *How Attentive are Graph Attention Networks?*, 2022, Eq. (7).

    Args:
        in_channels: Width of the input.
        out_channels: Width of the output per head.
        heads: Number of attention heads.
        edge_dim: Width of the edge attributes. 0 for no edge attributes.
        dropout: Probability of dropping an attention weight in training, in [0, 1].

    Example:
        >>> layer = GATv2Layer(8, 4, heads=2)
        >>> edges = attention_edges(torch.tensor([[0, 1], [1, 2]]), torch.zeros(2, 0), num_nodes=3)
        >>> layer(torch.zeros(3, 8), *edges).shape
        torch.Size([3, 8])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        heads: int = 1,
        edge_dim: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.out_channels = out_channels
        self.edge_dim = edge_dim
        self.dropout = dropout
        self.lin_source = RowLinear(in_channels, heads * out_channels)
        self.lin_target = RowLinear(in_channels, heads * out_channels)
        self.lin_edge = RowLinear(edge_dim, heads * out_channels, bias=False) if edge_dim else nn.Identity()
        self.attention = nn.Parameter(torch.empty(1, heads, out_channels))
        self.bias = nn.Parameter(torch.zeros(heads * out_channels))
        # initialised like GATv2Conv: Glorot-uniform weights and zero biases
        for linear in (self.lin_source, self.lin_target, self.lin_edge):
            if isinstance(linear, nn.Linear):
                nn.init.xavier_uniform_(linear.weight)
                if linear.bias is not None:
                    nn.init.zeros_(linear.bias)
        bound = math.sqrt(6.0 / (heads + out_channels))
        nn.init.uniform_(self.attention, -bound, bound)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, rowptr: Tensor) -> Tensor:
        """Attend over the incoming edges of each node.

        Args:
            x: Node features ``[N, in_channels]``.
            edge_index: Edges of :func:`attention_edges`, ``[2, E]``.
            edge_attr: Edge attributes of :func:`attention_edges`, ``[E, edge_dim]``.
            rowptr: Row pointers of :func:`attention_edges`, ``[N + 1]``. The edges into node i are
                ``rowptr[i]:rowptr[i + 1]``.

        Returns:
            Node features ``[N, heads * out_channels]``.
        """
        # Nested because TorchScript skips the body of the first test, but not a test joined with `and`.
        if not is_scripting():  # noqa: SIM102
            if torch.compiler.is_exporting():
                return self._static_forward(x, edge_index, edge_attr, rowptr)
        source, target = edge_index[0], edge_index[1]
        x_source = self.lin_source(x)
        logits = self._logits(x_source, self.lin_target(x), edge_index, edge_attr)
        highest = torch.segment_reduce(logits.detach(), "max", offsets=rowptr, axis=0, unsafe=True)
        weight = (logits - highest.index_select(0, target)).exp()
        total = _sum_by_target(weight, target, rowptr)  # at least 1, because the highest logit adds exp(0)
        weight = F.dropout(weight / total.index_select(0, target), self.dropout, self.training)
        messages = _scale(self._by_head(x_source.index_select(0, source)), weight.unsqueeze(-1))
        return _sum_by_target(messages.flatten(1), target, rowptr) + self.bias

    def _logits(self, x_source: Tensor, x_target: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        hidden = x_source.index_select(0, edge_index[0]).add_(x_target.index_select(0, edge_index[1]))
        if self.edge_dim > 0:
            hidden = hidden + self.lin_edge(edge_attr)
        hidden = F.leaky_relu(hidden, 0.2, inplace=True)
        return _scale(self._by_head(hidden), self.attention).sum(-1)  # [E, heads]

    @torch.jit.unused
    def _static_forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, counts: Tensor) -> Tensor:
        """Compute :meth:`forward` for the edges of :func:`static_edges`."""
        target, num_nodes = edge_index[1], x.shape[0]
        sent = self.lin_source(x).index_select(0, edge_index[0])
        hidden = sent + self.lin_target(x).index_select(0, target)
        if self.edge_dim > 0:
            hidden = hidden + self.lin_edge(edge_attr)
        logits = (self._by_head(F.leaky_relu(hidden, 0.2)) * self.attention).sum(-1)
        logits = logits.masked_fill(~counts.unsqueeze(1), -torch.inf)
        lowest = torch.full([num_nodes, self.heads], -torch.inf, dtype=logits.dtype, device=logits.device)
        highest = lowest.scatter_reduce(0, target.unsqueeze(1).expand_as(logits), logits, "amax", include_self=True)
        weight = (logits - highest.index_select(0, target)).exp()
        weight = weight / scatter_sum(weight, target, num_nodes).index_select(0, target)
        messages = (self._by_head(sent) * weight.unsqueeze(-1)).flatten(1)
        return scatter_sum(messages, target, num_nodes) + self.bias

    def _by_head(self, rows: Tensor) -> Tensor:
        return rows.view(-1, self.heads, self.out_channels)


# The next two functions process one row per edge. Without gradients they write less memory, which limits the speed.


def _scale(rows: Tensor, factor: Tensor) -> Tensor:
    return rows * factor if torch.is_grad_enabled() else rows.mul_(factor)


def _sum_by_target(rows: Tensor, target: Tensor, rowptr: Tensor) -> Tensor:
    if torch.is_grad_enabled():
        out = torch.zeros([rowptr.shape[0] - 1, rows.shape[1]], dtype=rows.dtype, device=rows.device)
        return out.scatter_add_(0, target.unsqueeze(1).expand_as(rows), rows)
    every_row = torch.arange(rows.shape[0], device=rows.device)
    return F.embedding_bag(every_row, rows, rowptr, mode="sum", include_last_offset=True)


def attention_edges(edge_index: Tensor, edge_attr: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Prepare edges for a stack of :class:`GATv2Layer`: replace self-loops and sort by target.

    Args:
        edge_index: Edges ``[2, E]`` in any order.
        edge_attr: Edge attributes ``[E, D]``.
        num_nodes: Number of nodes of the batch.

    Returns:
        ``edge_index`` and ``edge_attr`` with one self-loop per node, sorted by target, and row pointers
        ``[num_nodes + 1]``. Under ``torch.export``, the result of :func:`static_edges`.
    """
    if not is_scripting():  # noqa: SIM102
        if torch.compiler.is_exporting():
            return static_edges(edge_index, edge_attr, num_nodes)
    edge_index, edge_attr = with_self_loops(edge_index, edge_attr, num_nodes)
    rowptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=edge_index.device)
    rowptr[1:] = torch.bincount(edge_index[1], minlength=num_nodes).cumsum(0)
    return edge_index, edge_attr, rowptr


def static_edges(edge_index: Tensor, edge_attr: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Append one self-loop per node, and return a mask of the valid edges instead of removing other self-loops.

    The attribute of a self-loop is the mean attribute of the edges into its node.

    Args:
        edge_index: Edges ``[2, E]`` in any order.
        edge_attr: Edge attributes ``[E, D]``.
        num_nodes: Number of nodes of the batch.

    Returns:
        Edges ``[2, E + N]``, their attributes, and a boolean mask ``[E + N]`` that is False for original self-loops.
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


class PerNodeLayer(nn.Module):
    """Linear layer with the signature of :class:`GATv2Layer`. It equals GATv2 on a graph that has only self-loops.

    Args:
        channels: Width of the input and of the output.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lin = RowLinear(channels, channels)
        nn.init.xavier_uniform_(self.lin.weight)
        nn.init.zeros_(self.lin.bias)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, rowptr: Tensor) -> Tensor:
        """Transform each node on its own.

        Args:
            x: Node features ``[N, channels]``.
            edge_index: Ignored.
            edge_attr: Ignored.
            rowptr: Ignored.

        Returns:
            Node features ``[N, channels]``.
        """
        out: Tensor = self.lin(x)
        return out


class GATv2Block(nn.Module):
    r"""Add normalisation, dropout and a residual connection to a message-passing layer.

    .. math:: x' = x + \mathrm{dropout}(\mathrm{ReLU}(\mathrm{layer}(\mathrm{norm}(x))))

    The input is normalised before the layer, so that gradients reach every layer of a deep stack.

    Args:
        channels: Width of the input and of the output.
        layer: Module with the signature of :meth:`GATv2Layer.forward` that maps ``[N, channels]`` to the same shape,
            such as :class:`GATv2Layer` or :class:`PerNodeLayer`.
        dropout: Probability of dropping an activation in training, in [0, 1].
        residual: Whether to add the input to the output.
    """

    def __init__(self, channels: int, layer: nn.Module, dropout: float, *, residual: bool) -> None:
        super().__init__()
        self.residual = residual
        self.norm = nn.LayerNorm(channels)
        self.layer = layer
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, rowptr: Tensor) -> Tensor:
        """Transform the node features.

        Args:
            x: Node features ``[N, channels]``.
            edge_index: Edges ``[2, E]`` in the form that the layer expects, for GATv2 those of :func:`attention_edges`.
            edge_attr: Edge attributes ``[E, D]``.
            rowptr: Row pointers ``[N + 1]`` of :func:`attention_edges`. Layers that do not need them ignore them.

        Returns:
            Node features ``[N, channels]``.
        """
        hidden = self.dropout(F.relu(self.layer(self.norm(x), edge_index, edge_attr, rowptr)))
        return x + hidden if self.residual else hidden
