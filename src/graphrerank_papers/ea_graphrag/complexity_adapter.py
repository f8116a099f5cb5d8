"""EA-GraphRAG's complexity adapter: predict from a query's syntax whether graph retrieval is the better path.

Implementation choices:

- The model maps raw features to a probability. The indices of the selected features, their means and standard
  deviations, and the temperature are buffers, so the scripted model is self-contained.
- The paper adds residual connections "where dimensions match". At the paper's widths (85 features, then 256, 128 and
  64) no two adjacent widths match, so there are none. There are some with ``hidden_channels`` such as (64, 64).
- Both attentions start with equal weights, so training starts from a plain MLP.
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
from graphrerank.models.manifest import Entry, Manifest, NameTuple
from graphrerank.utils.checks import UserError

#: Bound of the z-scores. Without it, the counts of a 2,000-token query lie hundreds of standard deviations from the
#: mean.
MAX_Z = 5.0


class SyntaxEntry(Entry):
    """Manifest entry that describes the extractor of syntax features.

    Attributes:
        name: Source of the syntactic units, as in
            :class:`~graphrerank_papers.ea_graphrag.syntax.features.SyntaxFeatures`.
        fingerprint: Fingerprint that changes whenever the extracted features would change.
        feature_names: Names of the raw features, in order.
    """

    name: str
    fingerprint: str
    feature_names: NameTuple


class ThresholdsEntry(Entry):
    """Routing thresholds. Queries with scores between them take both paths, whose rankings are fused."""

    #: Queries with a score of at most ``low`` take the dense path.
    low: float
    #: Queries with a score of at least ``high`` take the graph path. Must be greater than ``low``.
    high: float

    @check_model(mode="after")
    def _check(self) -> "ThresholdsEntry":
        if not self.low < self.high or math.isinf(self.low) or math.isinf(self.high):
            raise UserError(f"`low` must be less than `high`, and both must be finite, got {self.low} and {self.high}")
        return self


class AdapterManifest(Manifest):
    """Manifest of a complexity adapter. The entry ``calibration`` describes the temperature in the weights.

    Attributes:
        syntax: Extractor of the syntax features.
        thresholds: Thresholds for routing with fusion, or None if training did not finish.
        without_fusion: Thresholds for routing without fusion, or None if unknown.
        paths: Pipeline name (``choice``) and ``settings`` of each path that the adapter was trained on, by path.
        questions: Keys of the training and validation questions, by data set.
    """

    syntax: SyntaxEntry
    thresholds: ThresholdsEntry | None = None
    without_fusion: ThresholdsEntry | None = None
    paths: dict[str, dict[str, Any]] = Field(default_factory=dict)
    questions: dict[str, NameTuple] = Field(default_factory=dict)

    @property
    def num_features(self) -> int:
        """Number of raw features of a query."""
        return len(self.syntax.feature_names)

    @property
    def input_shapes(self) -> Mapping[str, str]:
        """Shapes of the model's inputs for ``n`` queries; see :attr:`Manifest.input_shapes`."""
        return {"features": f"[n, {self.num_features}]"}


class ChannelAttention(nn.Module):
    r"""Scale the channels of each row by attention weights. The weights have mean 1 and are initialised to 1.

    .. math:: x' = x \odot d\,\mathrm{softmax}(W x + b)

    where :math:`d` is the number of channels.

    Args:
        channels: Number of channels.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(channels, channels)
        nn.init.zeros_(self.lin.weight)
        nn.init.zeros_(self.lin.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows with scaled channels.

        Args:
            x: Input ``[n, channels]``.
        """
        return x * (x.shape[1] * torch.softmax(self.lin(x), dim=1))


class HiddenLayer(nn.Module):
    """Linear layer, layer norm, ReLU and dropout, with a residual connection if the widths match.

    Args:
        in_channels: Width of the input.
        out_channels: Width of the output.
        dropout: Dropout probability, in [0, 1).
    """

    def __init__(self, in_channels: int, out_channels: int, *, dropout: float) -> None:
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels)
        self.norm = nn.LayerNorm(out_channels)
        self.dropout = dropout
        self.residual = in_channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        """Return the hidden activations ``[n, out_channels]``.

        Args:
            x: Input ``[n, in_channels]``.
        """
        hidden = F.dropout(F.relu(self.norm(self.lin(x))), self.dropout, self.training)
        return x + hidden if self.residual else hidden


class ComplexityAdapter(CheckpointModel):
    r"""Predict from the syntax of a query whether it needs graph retrieval.

    .. math:: s(q) = \sigma(\ell_\theta(\tilde x) / T), \qquad \tilde x = (x - \mu) \oslash \sigma

    Source: Dong et al., "Use Graph When It Needs" (EA-GraphRAG), 2026, sections 3.2.5 and 3.3, Eq. (1). The paper names
    feature attention; hidden layers of 256, 128 and 64 units; residual connections where widths match; output
    attention; and one logit. It does not specify the attention or the contents of a hidden layer. Here, both attentions
    are a softmax over channels, and each hidden layer has layer norm, ReLU and dropout.

    *Differences from the paper:* z-scores are clipped to [-5, 5], and the logit is divided by a temperature that is
    fitted after training.

    Args:
        num_features: Number of raw features of a query.
        num_selected: Number of these features that the model uses; see :meth:`standardize`.
        hidden_channels: Widths of the hidden layers.
        dropout: Dropout probability of the hidden layers, in [0, 1).

    Raises:
        ValueError: If an argument is out of range.

    Example:
        >>> model = ComplexityAdapter(num_features=3, num_selected=2, hidden_channels=(4,)).eval()
        >>> model(torch.zeros(5, 3)).shape
        torch.Size([5])
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
            raise UserError(f"`num_selected` must be between 1 and `num_features` ({num_features}), got {num_selected}")
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
        """Set the selected features and their standardisation.

        Args:
            selected: Column indices of the selected features ``[num_selected]``.
            mean: Mean of each selected feature ``[num_selected]``.
            std: Standard deviation of each selected feature ``[num_selected]``. Must be positive.
        """
        self.selected.copy_(selected)
        self.mean.copy_(mean)
        self.std.copy_(std)

    @torch.jit.export
    def logits(self, features: Tensor) -> Tensor:
        """Return the logits ``[n]`` before temperature scaling. Training uses these logits.

        Args:
            features: Raw, finite features ``[n, num_features]``, as in :meth:`forward`.
        """
        if features.dim() != 2 or features.shape[1] != self.num_features:
            raise UserError(f"`features` must have shape [n, {self.num_features}], got {list(features.shape)}")
        x = (features.index_select(1, self.selected) - self.mean) / self.std
        x = self.feature_attention(x.clamp(-self.max_z, self.max_z))
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.lin_out(self.output_attention(x)).squeeze(1)
        return logits

    def forward(self, features: Tensor) -> Tensor:
        """Score queries by their syntax.

        Args:
            features: Raw, finite features ``[n, num_features]``, in the same order as in training.

        Returns:
            Scores s(q) ``[n]`` in [0, 1]: the probability that graph retrieval is right, given that exactly one of the
            two paths is right.
        """
        return torch.sigmoid(self.logits(features) / self.temperature)
