"""Reranker with any convolution of PyTorch Geometric as its layers. Requires ``pip install graphrerank[train]``.

- Features, GCS residual and output head are those of :class:`~graphrerank.models.gatv2_reranker.GATv2Reranker`. Only
  the convolution changes, so convolutions can be compared fairly. Training also starts at GCS.
- A convolution is selected by name and never imported by path. An untrusted manifest can therefore only name a class
  that ``torch_geometric.nn.conv`` lists.
- A convolution that cannot be a layer is rejected when the model is built, with the reason (:data:`UNSUITABLE`).
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
_POINTS = "it needs positions of points in space, which passages do not have"
_NODE_TYPES = "it needs graphs with several node types, and all passages have the same type"
_WRAPPER = "it wraps another convolution object, which cannot be specified in the settings"
_FIRST_LAYER = "it needs the input of the first layer, which a stack of residual layers does not pass on"
_CUGRAPH = "it needs the package pylibcugraphops and a special graph format"
#: Convolutions of ``torch_geometric.nn`` that cannot be layers of a reranker, with the reason that the error gives.
UNSUITABLE: Mapping[str, str] = {
    "CuGraphGATConv": _CUGRAPH,
    "CuGraphRGCNConv": _CUGRAPH,
    "CuGraphSAGEConv": _CUGRAPH,
    "DNAConv": "it needs the outputs of all earlier layers at once",
    "DirGNNConv": _WRAPPER,
    "DynamicEdgeConv": "it computes its own edges and ignores those of the corpus",
    "FAConv": _FIRST_LAYER,
    "FusedGATConv": "it needs the package dgNN and a special graph format",
    "GCN2Conv": _FIRST_LAYER,
    "GPSConv": _WRAPPER,
    "GravNetConv": "it computes its own edges and ignores those of the corpus",
    "HANConv": _NODE_TYPES,
    "HEATConv": _NODE_TYPES,
    "HGTConv": _NODE_TYPES,
    "HeteroConv": _NODE_TYPES,
    "HypergraphConv": "it needs hyperedges, and an edge of a corpus connects two passages",
    "MeshCNNConv": "it needs meshes, in which each edge has exactly four neighbours",
    "MessagePassing": "it is the base class of all convolutions and computes no messages",
    "PANConv": "it needs the package torch-sparse and returns no plain features",
    "PPFConv": _POINTS,
    "PointGNNConv": _POINTS,
    "PointNetConv": _POINTS,
    "PointTransformerConv": _POINTS,
    "SignedConv": "it needs separate positive and negative edges",
    "SplineConv": "it needs coordinates of edges and the package pyg-lib",
    "WLConv": "it hashes integer labels of nodes and has no gradient",
    "XConv": _POINTS,
}
#: Convolutions that require edge attributes.
_NEED_ATTRIBUTES = ("GINEConv", "GMMConv", "NNConv", "PDNConv")
#: Convolutions that require edge types.
_NEED_TYPES = ("FastRGCNConv", "RGATConv", "RGCNConv")
#: Name of the constructor argument for the width of edge attributes, if it is not `edge_dim`.
_EDGE_WIDTHS = {"CGConv": "dim", "GMMConv": "dim", "GeneralConv": "in_edge_channels"}
#: Input and output width of the network that the constructor argument `nn` expects.
_NETWORKS: Mapping[str, Callable[[int, int], tuple[int, int]]] = {
    "EdgeConv": lambda channels, edge_dim: (2 * channels, channels),
    "GINConv": lambda channels, edge_dim: (channels, channels),
    "GINEConv": lambda channels, edge_dim: (channels, channels),
    "NNConv": lambda channels, edge_dim: (edge_dim, channels * channels),
}


class PyGReranker(GATv2Reranker):
    """Score candidates with layers of any PyTorch Geometric convolution.

    Except for the layers, the model equals :class:`~graphrerank.models.gatv2_reranker.GATv2Reranker`. The arguments of
    the convolution's ``forward`` decide what a layer uses of the edges:

    - ``edge_attr``: all edge attributes (the weight with ``edge_features``, one-hot types with ``num_edge_types``, and
      the coverage of query words with ``pair_evidence``),
    - ``edge_weight`` without ``edge_attr``: the weight, if ``edge_features`` is set,
    - ``edge_type``: the index of the type, if ``num_edge_types`` is set.

    A convolution with none of these arguments only uses which passages are connected. Self-loops are left to the
    convolution.

    Args:
        conv: Name of a convolution of ``torch_geometric.nn``, such as ``SAGEConv``, with or without the package name.
        conv_arguments: Further plain arguments of its constructor, such as ``{"aggr": "max"}``. By default, widths,
            ``heads``, ``dropout``, ``edge_dim`` and networks (``nn``) follow from the other arguments. ``deg`` of
            ``PNAConv`` is a list. If None, there are no further arguments.
        arguments: Arguments of :class:`~graphrerank.models.gatv2_reranker.GATv2Reranker`. ``heads`` and ``dropout`` are
            passed to convolutions whose constructors accept them.

    Raises:
        UserError: If ``conv`` cannot be a layer of a reranker, or if ``conv_arguments`` do not fit it. The message
            gives the reason.

    Example:
        >>> model = PyGReranker(conv="SAGEConv", conv_arguments={"aggr": "max"}, num_layers=1)
        >>> type(model.blocks[0].layer.conv).__name__
        'SAGEConv'
        >>> PyGReranker(conv="DNAConv")
        Traceback (most recent call last):
        graphrerank.utils.checks.UserError: `conv` cannot be DNAConv: it needs the outputs of all earlier layers at once
    """

    def __init__(self, *, conv: str, conv_arguments: Mapping[str, Any] | None = None, **arguments: Any) -> None:
        self.conv = conv  # the constructor of the base class calls build_layer, which needs these two
        self.conv_arguments = dict(conv_arguments or {})
        super().__init__(**arguments)

    def build_layer(self, channels: int, heads: int, edge_dim: int, dropout: float) -> nn.Module:
        """Build one layer with the named convolution.

        Args:
            channels: Width of the input and of the output of the layer.
            heads: Number of attention heads, passed to convolutions that have heads.
            edge_dim: Width of the edge attributes, 0 if there are none.
            dropout: Probability of dropping an attention weight in training, passed to convolutions that accept it.

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
        """Return the edges unchanged, and empty row pointers, which convolutions do not need.

        Args:
            edge_index: Edges ``[2, E]`` in any order.
            edge_attr: Edge attributes ``[E, edge_dim]``.
            num_nodes: Number of nodes of the batch.
        """
        return edge_index, edge_attr, edge_index.new_zeros([0])


class PyGLayer(nn.Module):
    """Wrap a PyTorch Geometric convolution in the signature of :class:`~graphrerank.models.gatv2.GATv2Layer`.

    Args:
        name: Name of the convolution. See ``conv`` of :class:`PyGReranker`.
        channels: Width of the input and of the output.
        edge_dim: Width of the edge attributes. They begin with the weight if ``reads_weight`` is set, followed by the
            one-hot types.
        usual: Arguments for the constructor that are only passed if it accepts them.
        arguments: Arguments for the constructor that are always passed, and that override the others.
        reads_weight: Whether the first edge attribute is the weight.
        num_edge_types: Number of one-hot columns of edge types, 0 for none.

    Raises:
        UserError: If the convolution cannot be a layer, or if the arguments do not fit it.
    """

    # Constants, so that TorchScript does not compile the calls that do not fit this convolution.
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
        except Exception as error:  # constructors raise exceptions of many classes
            raise UserError(f"`conv_arguments` do not fit {kind.__name__}: {_first_line(error)}") from error
        _check_layer(self, kind.__name__, channels, edge_dim)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, rowptr: Tensor) -> Tensor:
        """Apply the convolution.

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
    """Return the names of the PyTorch Geometric convolutions that can be layers of a reranker.

    Returns:
        Sorted names for ``conv`` of :class:`PyGReranker`.

    Raises:
        MissingExtraError: If PyTorch Geometric is not installed.

    Example:
        >>> {"GINConv", "SAGEConv", "TransformerConv"} <= set(convolution_names())
        True
    """
    return sorted(set(optional(CONVOLUTIONS_MODULE, "model=pyg").conv.__all__).difference(UNSUITABLE))


def find_convolution(name: str) -> Any:
    """Return the PyTorch Geometric convolution class with the given name. Other classes cannot be reached.

    Args:
        name: Name such as ``SAGEConv`` or ``torch_geometric.nn.SAGEConv``.

    Returns:
        Class of the convolution.

    Raises:
        UserError: If there is no such convolution, or if it cannot be a layer of a reranker.
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
    """Return the arguments for a convolution: the widths that its constructor accepts, then those of the user."""
    name, takes = kind.__name__, inspect.signature(kind).parameters
    _check_arguments(name, arguments)
    for names, is_known, needed in (
        (_NEED_TYPES, num_edge_types > 0, "edge types, for example features=scores_match_typed"),
        (_NEED_ATTRIBUTES, edge_dim > 0, "edge attributes, for example model.edge_features=true"),
    ):
        if name in names and not is_known:
            raise UserError(f"`conv` cannot be {name} without {needed}")
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
    if isinstance(settings.get("deg"), list | tuple):  # argument of PNAConv
        settings["deg"] = torch.tensor(settings["deg"], device="cpu")
    required = [key for key, parameter in takes.items() if parameter.default is parameter.empty]
    if missing := [key for key in required if key not in (*settings, "args", "kwargs")]:
        raise UserError(f"`conv_arguments` of {name} must have {', '.join(missing)}, got {sorted(arguments)}")
    return settings


def _check_arguments(name: str, arguments: Mapping[str, Any]) -> None:
    """Reject arguments that would be wrong or too large. The arguments may come from an untrusted manifest."""
    if arguments.get("cached"):
        raise UserError(f"`conv_arguments` of {name} must not set `cached`, because each batch has different edges")
    for key, value in arguments.items():
        largest = MAX_SIZE if key.endswith(("channels", "dim")) else MAX_MODEL_LAYERS
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) > largest:
            raise UserError(f"`conv_arguments` of {name} must have {key} of at most {largest}, got {value}")


def _check_layer(layer: PyGLayer, name: str, channels: int, edge_dim: int) -> None:
    """Run a new layer on three nodes to check that it works. Skip layers on the meta device, which cannot be run."""
    x = torch.zeros(3, channels)
    if x.device.type == "meta":
        return
    edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    edge_attr = torch.ones(3, edge_dim)
    layer.eval()
    try:
        with torch.no_grad():
            out = layer(x, edge_index, edge_attr, edge_index.new_zeros([0]))
    except Exception as error:  # convolutions raise exceptions of many classes
        raise UserError(f"`conv` cannot be {name} with these `conv_arguments`: {_first_line(error)}") from error
    finally:
        layer.train()
    if not isinstance(out, Tensor) or out.shape != x.shape:
        width = out.shape[-1] if isinstance(out, Tensor) else type(out).__name__
        raise UserError(
            f"`conv` must return features of the width of its input, {channels}, but {name} returned {width}. Adjust "
            "`conv_arguments`"
        )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
