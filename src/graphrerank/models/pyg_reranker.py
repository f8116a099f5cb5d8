"""The reranker with any convolution of PyTorch Geometric instead of GATv2 layers."""

import inspect
from collections.abc import Mapping
from typing import Any, Final

from torch import Tensor, nn

from graphrerank.checks import UserError
from graphrerank.extras import optional
from graphrerank.models.gatv2 import GATv2Block
from graphrerank.models.gatv2_reranker import GATv2Reranker

PACKAGE = "torch_geometric.nn"


class PyGReranker(GATv2Reranker):
    """Score candidates as :class:`GATv2Reranker` does, with layers of PyTorch Geometric.

    Its inputs, features, residuals and head are the same. A layer reads the attributes of edges (``edge_features``,
    types, words of pairs) if the convolution's constructor takes ``edge_dim``, and their weights if its ``forward``
    takes ``edge_weight`` and ``edge_features`` is set. The edges have no self-loops; a convolution may add them.

    ``conv`` is a convolution of ``torch_geometric.nn`` that reads one graph of nodes of one type, with or without the
    package's name; ``conv_arguments`` are for its constructor, without widths. ``heads`` is 4 unless given, and a
    layer's width is shared among them unless ``concat`` is false. A convolution with a network (``GINConv``) gets two
    linear layers. ``arguments`` are those of :class:`GATv2Reranker`.
    """

    def __init__(self, *, conv: str, conv_arguments: Mapping[str, Any] | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        reads_weight = self.edge_features
        for block in self.blocks:
            assert isinstance(block, GATv2Block)
            if block.message_passing:
                channels, edge_dim = block.norm.normalized_shape[0], block.edge_dim
                block.layer = PyGLayer(conv, channels, edge_dim, dict(conv_arguments or {}), reads_weight=reads_weight)

    def layer_edges(self, edge_index: Tensor, edge_attr: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the edges as they are."""
        return edge_index, edge_attr, edge_index.new_zeros([0])


class PyGLayer(nn.Module):
    """A convolution of PyTorch Geometric with the signature of :class:`~graphrerank.models.gatv2.GATv2Layer`."""

    reads_attr: Final[bool]  # constants, so that TorchScript leaves out the calls that this convolution does not take
    reads_weight: Final[bool]

    def __init__(
        self, conv: str, channels: int, edge_dim: int, arguments: Mapping[str, Any], *, reads_weight: bool
    ) -> None:
        super().__init__()
        convolution = convolution_of(conv)
        takes = inspect.signature(convolution).parameters
        given = dict(arguments)
        if "heads" in takes:
            given = {"heads": 4, **given}
        width = channels // given["heads"] if given.get("heads") and given.get("concat", True) else channels
        self.reads_attr = edge_dim > 0 and "edge_dim" in takes
        if self.reads_attr:
            given["edge_dim"] = edge_dim
        self.reads_weight = (
            reads_weight and not self.reads_attr and "edge_weight" in inspect.signature(convolution.forward).parameters
        )
        widths: dict[str, Any] = {"in_channels": channels, "out_channels": width}
        if "nn" in takes:
            widths = {"nn": nn.Sequential(nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, channels))}
        try:
            self.conv = convolution(**{**widths, **given})
        except (TypeError, ValueError, AssertionError) as error:
            raise UserError(f"`conv_arguments` do not suit {conv}: {error}") from error
        self.name = conv
        self.channels = channels

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, rowptr: Tensor) -> Tensor:
        """Convolve ``x [N, channels]`` along ``edge_index [2, E]`` with ``edge_attr [E, edge_dim]``."""
        if self.reads_attr:
            out: Tensor = self.conv(x, edge_index, edge_attr=edge_attr)
        elif self.reads_weight:
            out = self.conv(x, edge_index, edge_weight=edge_attr[:, 0])
        else:
            out = self.conv(x, edge_index)
        if out.shape != x.shape:
            raise UserError(
                f"`conv` must keep the width ({self.channels}), {self.name} gave {out.shape[1]}; see `conv_arguments`"
            )
        return out


def convolution_of(name: str) -> Any:
    """Return a convolution of PyTorch Geometric by name, and nothing else, as checkpoints may be untrusted."""
    package = optional(PACKAGE, "model=pyg_reranker")
    short = str(name).removeprefix(f"{PACKAGE}.")
    known = [each for each in package.conv.__all__ if each.endswith("Conv")]
    if short not in known:
        raise UserError(f"`conv` must be a convolution of {PACKAGE}, such as TransformerConv or SAGEConv, got {name!r}")
    return getattr(package.conv, short)
