"""EA-GraphRAG's complexity adapter: a query's syntax in, the probability that graph retrieval is the better path out.

Notable about it:

- Raw features in, a probability out: which features are read, their means and deviations, and the temperature are
  buffers, so that the scripted model needs nothing else.
- At the paper's widths (85 features, 256-128-64) no two layers have one width: its residual connections, "where
  dimensions match", never occur. They do with ``hidden_channels`` such as (64, 64).
- Both attentions start with equal weights, so that training begins at a plain MLP.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic import model_validator as check_model
from torch import Tensor, nn

from graphrerank.core import CheckpointModel
from graphrerank.core.model_inputs import QUERIES
from graphrerank.models.manifest import Entry, Manifest, Names
from graphrerank.utils.checks import UserError

MAX_Z = 5.0  # a query of 2,000 tokens must not be read as 500 deviations of each count


class SyntaxEntry(Entry):
    """The extractor of the queries' features."""

    name: str  # as in `SyntaxFeatures`
    fingerprint: str  # changes whenever the features would
    feature_names: Names  # in order


class ThresholdsEntry(Entry):
    """Up to the score ``low`` a query takes the dense path, from ``high`` on the graph path."""

    low: float
    high: float

    @check_model(mode="after")
    def _check(self) -> "ThresholdsEntry":
        if not self.low < self.high or math.isinf(self.low) or math.isinf(self.high):
            raise UserError(f"`low` must be below `high`, both finite, got {self.low} and {self.high}")
        return self


class AdapterManifest(Manifest):
    """The manifest of a complexity adapter. Its entry ``calibration`` describes the temperature in the weights."""

    syntax: SyntaxEntry
    thresholds: ThresholdsEntry | None = None  # chosen with fusion; None if the training did not finish
    without_fusion: ThresholdsEntry | None = None  # chosen without; None if unknown
    # choice and settings of each path that the adapter was trained to choose between, by the path's name
    paths: dict[str, dict[str, Any]] = Field(default_factory=dict)
    questions: dict[str, Names] = Field(default_factory=dict)  # keys of training and validation, by data set

    @property
    def num_features(self) -> int:
        """Number of raw features of a query."""
        return len(self.syntax.feature_names)

    @property
    def input_shapes(self) -> Mapping[str, str]:
        """As :attr:`Manifest.input_shapes`: ``n`` queries."""
        return {"features": f"[n, {self.num_features}]"}


class ChannelAttention(nn.Module):
    r"""Weigh the channels of each row against each other; the weights have mean 1, and are all 1 at the start.

    .. math:: x' = x \odot d\,\mathrm{softmax}(W x + b)
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(channels, channels)
        nn.init.zeros_(self.lin.weight)
        nn.init.zeros_(self.lin.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Weigh ``[n, channels]``."""
        return x * (x.shape[1] * torch.softmax(self.lin(x), dim=1))


class HiddenLayer(nn.Module):
    """Linear, layer norm, ReLU, dropout; the input is added where the widths match."""

    def __init__(self, in_channels: int, out_channels: int, *, dropout: float) -> None:
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels)
        self.norm = nn.LayerNorm(out_channels)
        self.dropout = dropout
        self.residual = in_channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[n, in_channels]`` to ``[n, out_channels]``."""
        hidden = F.dropout(F.relu(self.norm(self.lin(x))), self.dropout, self.training)
        return x + hidden if self.residual else hidden


class ComplexityAdapter(CheckpointModel):
    r"""Score how much a query needs the graph.

    .. math:: s(q) = \sigma(\ell_\theta(\tilde x) / T), \qquad \tilde x = (x - \mu) \oslash \sigma

    Source: Dong et al., Use Graph When It Needs (EA-GraphRAG), sections 3.2.5 and 3.3, Eq. (1). The paper names feature
    attention, hidden layers of 256, 128 and 64, residuals where widths match, output attention and one logit. *Our
    choices:* both attentions are a softmax over channels; layer norm, ReLU and dropout in each hidden layer. *Where we
    differ:* z-scores are clipped to [-5, 5], and the logit is divided by a temperature that is fitted after training.

    Of the ``num_features`` raw features of a query ``num_selected`` are read; ``dropout`` is the probability of
    dropping a hidden activation in training, in [0, 1).
    """

    features = "syntax"
    inputs = QUERIES
    manifest_class = AdapterManifest
    trained_by = "experiment=complexity_adapter"
    selected: Tensor
    mean: Tensor
    std: Tensor
    temperature: Tensor

    def __init__(
        self,
        *,
        num_features: int = 130,
        num_selected: int = 85,
        hidden_channels: Sequence[int] = (256, 128, 64),
        dropout: float = 0.3,
    ) -> None:
        super().__init__()
        if not 1 <= num_selected <= num_features:
            raise UserError(f"`num_selected` must lie in 1 to `num_features` ({num_features}), got {num_selected}")
        if not hidden_channels or min(hidden_channels) < 1:
            raise UserError(f"`hidden_channels` must be one or more positive widths, got {list(hidden_channels)}")
        if not 0 <= dropout < 1:
            raise UserError(f"`dropout` must lie in [0, 1), got {dropout}")
        self.num_features = num_features
        self.max_z = MAX_Z
        self.register_buffer("selected", torch.arange(num_selected))
        self.register_buffer("mean", torch.zeros(num_selected))
        self.register_buffer("std", torch.ones(num_selected))
        self.register_buffer("temperature", torch.ones(()))
        widths = [num_selected, *hidden_channels]
        self.feature_attention = ChannelAttention(num_selected)
        self.layers = nn.ModuleList(HiddenLayer(before, after, dropout=dropout) for before, after in pairwise(widths))
        self.output_attention = ChannelAttention(widths[-1])
        self.lin_out = nn.Linear(widths[-1], 1)

    @torch.jit.unused
    def standardize(self, selected: Tensor, mean: Tensor, std: Tensor) -> None:
        """Set the columns that are read, their means and their positive deviations, ``[num_selected]`` each."""
        self.selected.copy_(selected)
        self.mean.copy_(mean)
        self.std.copy_(std)

    @torch.jit.export
    def logits(self, features: Tensor) -> Tensor:
        """Return the logits before temperature, ``[n]``: what is trained; arguments as :meth:`forward`."""
        if features.dim() != 2 or features.shape[1] != self.num_features:
            raise UserError(f"`features` must have shape [n, {self.num_features}], got {list(features.shape)}")
        x = (features.index_select(1, self.selected) - self.mean) / self.std
        x = self.feature_attention(x.clamp(-self.max_z, self.max_z))
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.lin_out(self.output_attention(x)).squeeze(1)
        return logits

    def forward(self, features: Tensor) -> Tensor:
        """Score queries by raw, finite features ``[n, num_features]`` in the order of the training.

        Returns:
            ``[n]``, s(q) in [0, 1]: the probability that graph retrieval is right where one of both paths is.
        """
        return torch.sigmoid(self.logits(features) / self.temperature)
