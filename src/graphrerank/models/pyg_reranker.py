"""Reranker whose layers are any convolution of PyTorch Geometric; ``pip install graphrerank[train]``.

- Features, GCS residual and output head are those of :class:`~graphrerank.models.gatv2_reranker.GATv2Reranker`, so a
  comparison of two convolutions changes nothing else. Training begins at GCS here too.
- A convolution is named, never imported: a checkpoint's manifest may be untrusted, and can name only a class that
  ``torch_geometric.nn.conv`` lists.
- A convolution that cannot be a layer here is refused when the model is built, with the reason (:data:`UNSUITABLE`).
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from graphrerank.installation.extras import optional
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.utils.checks import UserError, check_choice
from graphrerank.utils.safe_loading import MAX_MODEL_LAYERS, MAX_SIZE

CONVOLUTIONS_MODULE = "torch_geometric.nn"
_POINTS = "it reads positions of points in space, which passages do not have"
_NODE_TYPES = "it reads graphs with several types of nodes, and passages are of one type"
_WRAPPER = "it wraps another convolution object, which settings cannot name"
_FIRST_LAYER = "it also reads the features of the first layer, which a stack of residual layers does not pass on"
_CUGRAPH = "it needs the package pylibcugraphops and its own form of graphs"
#: Convolutions of ``torch_geometric.nn`` that cannot be layers of a reranker, with the reason that the error gives.
UNSUITABLE: Mapping[str, str] = {
    "CuGraphGATConv": _CUGRAPH,
    "CuGraphRGCNConv": _CUGRAPH,
    "CuGraphSAGEConv": _CUGRAPH,
    "DNAConv": "it reads the outputs of all earlier layers at once",
    "DirGNNConv": _WRAPPER,
    "DynamicEdgeConv": "it computes its own edges and ignores those of the corpus",
    "FAConv": _FIRST_LAYER,
    "FusedGATConv": "it needs the package dgNN and its own form of graphs",
    "GCN2Conv": _FIRST_LAYER,
    "GPSConv": _WRAPPER,
    "GravNetConv": "it computes its own edges and ignores those of the corpus",
    "HANConv": _NODE_TYPES,
    "HEATConv": _NODE_TYPES,
    "HGTConv": _NODE_TYPES,
    "HeteroConv": _NODE_TYPES,
    "HypergraphConv": "it reads hyperedges, and an edge of a corpus joins two passages",
    "MeshCNNConv": "it reads meshes, in which each edge has exactly four neighbours",
    "MessagePassing": "it is the base class of all convolutions and computes no messages",
    "PANConv": "it needs the package torch-sparse and returns no plain features",
    "PPFConv": _POINTS,
    "PointGNNConv": _POINTS,
    "PointNetConv": _POINTS,
    "PointTransformerConv": _POINTS,
    "SignedConv": "it reads positive and negative edges separately",
    "SplineConv": "it reads coordinates of edges and needs the package pyg-lib",
    "WLConv": "it hashes integer labels of nodes and has no gradient",
    "XConv": _POINTS,
}
_NEED_ATTRIBUTES = ("GINEConv", "GMMConv", "NNConv", "PDNConv")  # of edges
_NEED_TYPES = ("FastRGCNConv", "RGATConv", "RGCNConv")  # of edges
# how a constructor calls the width of edge attributes, where it is not `edge_dim`
_EDGE_WIDTHS = {"CGConv": "dim", "GMMConv": "dim", "GeneralConv": "in_edge_channels"}
# input and output widths of the network that a constructor's `nn` expects, by channels and width of edge attributes
_NETWORKS: Mapping[str, Callable[[int, int], tuple[int, int]]] = {
    "EdgeConv": lambda channels, edge_dim: (2 * channels, channels),
    "GINConv": lambda channels, edge_dim: (channels, channels),
    "GINEConv": lambda channels, edge_dim: (channels, channels),
    "NNConv": lambda channels, edge_dim: (edge_dim, channels * channels),
}


class PyGReranker(GATv2Reranker):
    """Score candidates as :class:`~graphrerank.models.gatv2_reranker.GATv2Reranker`, with layers of PyTorch Geometric.

    Only the layers differ. A layer reads

    - attributes of edges (the weight with ``edge_features``, one-hot types with ``num_edge_types``, coverage of the
      query's words) if the convolution takes ``edge_attr``,
    - the weights alone if it takes ``edge_weight`` instead, and ``edge_features`` is set,
    - numbers of types if it takes ``edge_type``, and ``num_edge_types`` is set.

    A convolution that takes none of them reads which passages are joined. Self-loops are the convolution's business.

    Args:
        conv: Name of a convolution of ``torch_geometric.nn``, such as ``SAGEConv``, with or without the package's name.
        conv_arguments: Further plain arguments of its constructor, such as ``{"aggr": "max"}``. Widths, ``heads``,
            ``dropout``, ``edge_dim`` and networks (``nn``) come from the other arguments unless set here. ``deg`` of
            ``PNAConv`` is a list. None for no arguments.
        arguments: Arguments of :class:`~graphrerank.models.gatv2_reranker.GATv2Reranker`. ``heads`` and ``dropout``
            reach convolutions whose constructors take them.

    Raises:
        UserError: If ``conv`` cannot be a layer of a reranker, or ``conv_arguments`` do not fit it. The message gives
            the reason.

    Example:
        >>> model = PyGReranker(conv="SAGEConv", conv_arguments={"aggr": "max"}, num_layers=1)
        >>> type(model.blocks[0].layer.conv).__name__
        'SAGEConv'
        >>> PyGReranker(conv="HGTConv")
        Traceback (most recent call last):
        graphrerank.utils.checks.UserError: `conv` cannot be HGTConv: it reads graphs with several types of nodes, and \
passages are of one type
    """

    def __init__(self, *, conv: str, conv_arguments: Mapping[str, Any] | None = None, **arguments: Any) -> None:
        self.conv = conv  # before the layers are built, which read both
        self.conv_arguments = dict(conv_arguments or {})
        super().__init__(**arguments)

    def build_layer(self, channels: int, heads: int, edge_dim: int, dropout: float) -> nn.Module:
        """Build a layer with the named convolution; arguments as of :meth:`GATv2Reranker.build_layer`.

        Returns:
            A :class:`PyGLayer`.

        Raises:
            UserError: If the convolution cannot be built, or does not map ``[N, channels]`` to the same shape.
        """
        return PyGLayer(
            self.conv,
            channels,
            edge_dim,
            {"heads": heads, "dropout": dropout},
            self.conv_arguments,
            reads_weight=self.edge_features,
            num_edge_types=self.num_edge_types,
        )

    def layer_edges(self, edge_index: Tensor, edge_attr: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the edges unchanged, and empty row pointers, which no convolution reads."""
        return edge_index, edge_attr, edge_index.new_zeros([0])


class PyGLayer(nn.Module):
    """Give a convolution of PyTorch Geometric the signature of :class:`~graphrerank.models.gatv2.GATv2Layer`.

    Args:
        name: Name of the convolution, as ``conv`` of :class:`PyGReranker`.
        channels: Width of the input and of the output.
        edge_dim: Width of the edge attributes. The weight comes first if ``reads_weight``, then the one-hot types.
        usual: Arguments that the constructor gets if it takes them.
        arguments: Arguments of the constructor, which take precedence.
        reads_weight: Whether the first edge attribute is the weight.
        num_edge_types: Number of one-hot columns that follow, 0 for none.

    Raises:
        UserError: If the convolution cannot be a layer, or the arguments do not fit it.
    """

    # constants, so that TorchScript leaves out the calls that this convolution does not take
    reads_attr: Final[bool]
    reads_weight: Final[bool]
    reads_type: Final[bool]
    first_type: Final[int]
    num_types: Final[int]

    def __init__(
        self,
        name: str,
        channels: int,
        edge_dim: int,
        usual: Mapping[str, Any],
        arguments: Mapping[str, Any],
        *,
        reads_weight: bool,
        num_edge_types: int,
    ) -> None:
        super().__init__()
        kind = find_convolution(name)
        takes = inspect.signature(kind.forward).parameters
        self.first_type, self.num_types = int(reads_weight), num_edge_types
        self.reads_attr = edge_dim > 0 and "edge_attr" in takes
        self.reads_type = num_edge_types > 0 and "edge_type" in takes
        self.reads_weight = reads_weight and not self.reads_attr and "edge_weight" in takes
        settings = _constructor_arguments(kind, channels, edge_dim, num_edge_types, usual, arguments)
        try:
            self.conv = kind(**settings)
        except Exception as error:  # constructors share no class of errors
            raise UserError(f"`conv_arguments` do not fit {kind.__name__}: {_first_line(error)}") from error
        _check_layer(self, kind.__name__, channels, edge_dim)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, rowptr: Tensor) -> Tensor:
        """Convolve node features along the edges.

        Args:
            x: Node features ``[N, channels]``.
            edge_index: Edges ``[2, E]`` in any order.
            edge_attr: Edge attributes ``[E, edge_dim]``.
            rowptr: Ignored.

        Returns:
            Node features ``[N, channels]``.
        """
        if self.reads_type:
            edge_type = edge_attr[:, self.first_type : self.first_type + self.num_types].argmax(1)
            if self.reads_attr:
                out: Tensor = self.conv(x, edge_index, edge_type=edge_type, edge_attr=edge_attr)
            else:
                out = self.conv(x, edge_index, edge_type=edge_type)
        elif self.reads_attr:
            out = self.conv(x, edge_index, edge_attr=edge_attr)
        elif self.reads_weight:
            out = self.conv(x, edge_index, edge_weight=edge_attr[:, 0])
        else:
            out = self.conv(x, edge_index)
        return out


def convolution_names() -> list[str]:
    """List the convolutions of PyTorch Geometric that can be layers of a reranker, by name.

    Returns:
        Names for ``conv`` of :class:`PyGReranker`, sorted.

    Raises:
        MissingExtraError: If PyTorch Geometric is not installed.

    Example:
        >>> {"GINConv", "SAGEConv", "TransformerConv"} <= set(convolution_names())
        True
    """
    return sorted(set(optional(CONVOLUTIONS_MODULE, "model=pyg").conv.__all__).difference(UNSUITABLE))


def find_convolution(name: str) -> Any:
    """Return a convolution class of PyTorch Geometric by its name, and nothing else.

    Args:
        name: ``SAGEConv`` or ``torch_geometric.nn.SAGEConv``.

    Returns:
        The class.

    Raises:
        UserError: If there is no convolution with that name, or it cannot be a layer of a reranker.
        MissingExtraError: If PyTorch Geometric is not installed.
    """
    short = str(name).removeprefix(f"{CONVOLUTIONS_MODULE}.")
    if short in UNSUITABLE:
        raise UserError(f"`conv` cannot be {short}: {UNSUITABLE[short]}")
    check_choice(convolution_names(), conv=short)
    return getattr(optional(CONVOLUTIONS_MODULE, "model=pyg").conv, short)


def _constructor_arguments(
    kind: Any,
    channels: int,
    edge_dim: int,
    num_edge_types: int,
    usual: Mapping[str, Any],
    arguments: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a convolution's arguments: the widths that its constructor takes, then the user's."""
    name, takes = kind.__name__, inspect.signature(kind).parameters
    _check_arguments(name, arguments)
    for names, is_known, needed in (
        (_NEED_TYPES, num_edge_types > 0, "types of edges, as with features=scores_match_typed"),
        (_NEED_ATTRIBUTES, edge_dim > 0, "attributes of edges, as with model.edge_features=true"),
    ):
        if name in names and not is_known:
            raise UserError(f"`conv` cannot be {name} with these features: it needs {needed}")
    settings = {key: value for key, value in {**usual, **arguments}.items() if key in arguments or key in takes}
    is_shared = "concat" in takes and settings.get("concat", True) is True
    heads = settings.get("heads", 1) if is_shared else 1
    if not isinstance(heads, int) or heads < 1 or channels % heads:
        raise UserError(f"`hidden_channels` ({channels}) must be a multiple of `heads`, got {heads}")
    widths: dict[str, Any] = {"in_channels": channels, "channels": channels, "out_channels": channels // heads}
    if edge_dim:
        widths[_EDGE_WIDTHS.get(name, "edge_dim")] = edge_dim
    if num_edge_types:
        widths["num_relations"] = num_edge_types
    if name in _NETWORKS:
        width, out = _NETWORKS[name](channels, edge_dim)
        widths["nn"] = nn.Sequential(nn.Linear(width, channels), nn.ReLU(), nn.Linear(channels, out))
    settings = {key: value for key, value in widths.items() if key in takes} | settings
    if isinstance(settings.get("deg"), list | tuple):  # of PNAConv
        settings["deg"] = torch.tensor(settings["deg"], device="cpu")
    required = [key for key, parameter in takes.items() if parameter.default is parameter.empty]
    if missing := [key for key in required if key not in (*settings, "args", "kwargs")]:
        raise UserError(f"`conv_arguments` of {name} must have {', '.join(missing)}, got {sorted(arguments)}")
    return settings


def _check_arguments(name: str, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that would be wrong or too large here; a manifest may be untrusted."""
    if arguments.get("cached"):
        raise UserError(f"`conv_arguments` of {name} must not set `cached`, as each batch has other edges")
    for key, value in arguments.items():
        largest = MAX_SIZE if key.endswith(("channels", "dim")) else MAX_MODEL_LAYERS
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) > largest:
            raise UserError(f"`conv_arguments` of {name} must have {key} of at most {largest}, got {value}")


def _check_layer(layer: PyGLayer, name: str, channels: int, edge_dim: int) -> None:
    """Run a new layer on three nodes; on the meta device there is nothing to run."""
    x = torch.zeros(3, channels)
    if x.device.type == "meta":
        return
    edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    edge_attr = torch.ones(3, edge_dim)
    layer.eval()
    try:
        with torch.no_grad():
            out = layer(x, edge_index, edge_attr, edge_index.new_zeros([0]))
    except Exception as error:  # of any class, deep within a convolution
        raise UserError(f"`conv` cannot be {name} with these `conv_arguments`: {_first_line(error)}") from error
    finally:
        layer.train()
    if not isinstance(out, Tensor) or out.shape != x.shape:
        width = out.shape[-1] if isinstance(out, Tensor) else type(out).__name__
        raise UserError(
            f"`conv` must keep the width of its input ({channels}), {name} returned {width}; see `conv_arguments`"
        )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
