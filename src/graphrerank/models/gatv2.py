"""GATv2 attention layers on an edge list.

Notable about them:

- Equal to PyTorch Geometric's ``GATv2Conv`` to the last bit with the same weights, and scriptable, unlike that layer.
- Self-loops, the sort by target and the row pointers are made once for a stack of layers, not once per layer.
- Without gradients it works in place, two to three times as fast (``benchmarks/gatv2_layers.py``).
- Under ``torch.export`` shapes follow from those of the inputs (:func:`static_edges`): self-loops are masked, not
  removed, and sums go by index, not by row pointers, for which ONNX has no operator. The same sums in another order.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._jit_internal import is_scripting  # where torch.jit has it from, and mypy sees it

from graphrerank.core.graph_algebra import scatter_sum, with_self_loops


class GATv2Layer(nn.Module):
    r"""One multi-head GATv2 layer with self-loops, its heads concatenated.

    .. math::
        x'_i = \sum_{j \in N(i) \cup \{i\}} \alpha_{ij} \Theta_s x_j + b, \quad
        \alpha_{ij} = \mathrm{softmax}_j\, a^\top \mathrm{LeakyReLU}(\Theta_s x_j + \Theta_t x_i + \Theta_e e_{ij})

    Source: Brody, Alon and Yahav, *How Attentive are Graph Attention Networks?*, 2022, Eq. (7).
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
        self.lin_source = nn.Linear(in_channels, heads * out_channels)
        self.lin_target = nn.Linear(in_channels, heads * out_channels)
        self.lin_edge = nn.Linear(edge_dim, heads * out_channels, bias=False) if edge_dim else nn.Identity()
        self.attention = nn.Parameter(torch.empty(1, heads, out_channels))
        self.bias = nn.Parameter(torch.zeros(heads * out_channels))
        # as GATv2Conv does: Glorot-uniform weights, zero biases
        for linear in (self.lin_source, self.lin_target, self.lin_edge):
            if isinstance(linear, nn.Linear):
                nn.init.xavier_uniform_(linear.weight)
                if linear.bias is not None:
                    nn.init.zeros_(linear.bias)
        bound = math.sqrt(6.0 / (heads + out_channels))
        nn.init.uniform_(self.attention, -bound, bound)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, rowptr: Tensor) -> Tensor:
        """Attend over each node's incoming edges: ``[N, heads * out_channels]``.

        ``edge_index``, ``edge_attr`` and ``rowptr`` are those of :func:`attention_edges`; the edges into node i are
        ``rowptr[i]:rowptr[i + 1]``.
        """
        # nested: TorchScript skips the body of the first test, but not a test joined by `and`
        if not is_scripting():  # noqa: SIM102
            if torch.compiler.is_exporting():
                return self._static_forward(x, edge_index, edge_attr, rowptr)
        source, target = edge_index[0], edge_index[1]
        x_source = self.lin_source(x)
        logits = self._logits(x_source, self.lin_target(x), edge_index, edge_attr)
        highest = torch.segment_reduce(logits.detach(), "max", offsets=rowptr, axis=0, unsafe=True)
        weight = (logits - highest.index_select(0, target)).exp()
        total = _sum_by_target(weight, target, rowptr)  # at least 1: the highest logit adds exp(0)
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
        """Attend as :meth:`forward`; the edges are those of :func:`static_edges`."""
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


# Two steps that touch a row per edge. Without gradients they write less memory, a layer's bottleneck.


def _scale(rows: Tensor, factor: Tensor) -> Tensor:
    return rows * factor if torch.is_grad_enabled() else rows.mul_(factor)


def _sum_by_target(rows: Tensor, target: Tensor, rowptr: Tensor) -> Tensor:
    if torch.is_grad_enabled():
        out = torch.zeros([rowptr.shape[0] - 1, rows.shape[1]], dtype=rows.dtype, device=rows.device)
        return out.scatter_add_(0, target.unsqueeze(1).expand_as(rows), rows)
    every_row = torch.arange(rows.shape[0], device=rows.device)
    return F.embedding_bag(every_row, rows, rowptr, mode="sum", include_last_offset=True)


def attention_edges(edge_index: Tensor, edge_attr: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Prepare edges ``[2, E]`` in any order for a stack of :class:`GATv2Layer`; self-loops are replaced.

    Returns ``edge_index`` and ``edge_attr`` with one self-loop per node, sorted by target, and ``rowptr [num_nodes +
    1]``; under ``torch.export`` the result of :func:`static_edges`.
    """
    if not is_scripting():  # noqa: SIM102
        if torch.compiler.is_exporting():
            return static_edges(edge_index, edge_attr, num_nodes)
    edge_index, edge_attr = with_self_loops(edge_index, edge_attr, num_nodes)
    rowptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=edge_index.device)
    rowptr[1:] = torch.bincount(edge_index[1], minlength=num_nodes).cumsum(0)
    return edge_index, edge_attr, rowptr


def static_edges(edge_index: Tensor, edge_attr: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Append one self-loop per node, with the mean attribute of the edges into it, and mark which edges count."""
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
    """A linear map with the signature of :class:`GATv2Layer`: GATv2 on a graph of self-loops alone."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(channels, channels)
        nn.init.xavier_uniform_(self.lin.weight)
        nn.init.zeros_(self.lin.bias)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, rowptr: Tensor) -> Tensor:
        """Map ``x [N, channels]`` to the same shape; the edges are not read."""
        out: Tensor = self.lin(x)
        return out


class GATv2Block(nn.Module):
    """Wrap a layer of messages with normalisation, dropout and a residual connection.

    Computes ``x + dropout(relu(layer(norm(x))))``. The input is normalised before the layer, so that gradients reach
    every layer of a deep stack.

    Args:
        channels: Width of the input and of the output.
        layer: Module with the signature of :meth:`GATv2Layer.forward` that maps ``[N, channels]`` to the same shape,
            such as :class:`GATv2Layer` or :class:`PerNodeLayer`.
        dropout: Probability of dropping an activation in training, in [0, 1].
        residual: Whether the input is added to the output.
    """

    def __init__(self, channels: int, layer: nn.Module, dropout: float, *, residual: bool) -> None:
        super().__init__()
        self.residual = residual
        self.norm = nn.LayerNorm(channels)
        self.layer = layer
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, rowptr: Tensor) -> Tensor:
        """Map node features to new ones.

        Args:
            x: Node features ``[N, channels]``.
            edge_index: Edges ``[2, E]`` as the layer expects them; for GATv2 those of :func:`attention_edges`.
            edge_attr: Edge attributes ``[E, D]``.
            rowptr: Row pointers ``[N + 1]`` of :func:`attention_edges`; ignored by layers that do not read them.

        Returns:
            Node features ``[N, channels]``.
        """
        hidden = self.dropout(F.relu(self.layer(self.norm(x), edge_index, edge_attr, rowptr)))
        return x + hidden if self.residual else hidden
