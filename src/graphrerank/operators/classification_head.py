"""The head of a cross-encoder: from the vector of a pair to its score."""

import torch.nn.functional as F
from torch import Tensor, nn

from graphrerank.checks import check_choice, check_counts

ACTIVATIONS = ("tanh", "gelu", "relu", "silu")


class ClassificationHead(nn.Module):
    r"""Score pair vectors as the classification heads of BERT, RoBERTa, XLM-R and ModernBERT do.

    .. math:: s = w^\top \mathrm{norm}(f(W h + b)) + c

    with the activation ``f`` = tanh and no norm in BERT (where :math:`W` is called the pooler) and RoBERTa. In
    inference these heads are the same map; ModernBERT's has no :math:`b`, which is 0 here. Scriptable.

    Args:
        hidden_size: Width ``h`` of a vector.
        activation: One of ``tanh``, ``gelu``, ``relu``, ``silu``.
        norm_eps: Constant that the layer norm adds to the variance; None for no norm.

    Raises:
        ValueError: If ``activation`` is unknown, or ``hidden_size`` not positive.
    """

    def __init__(self, hidden_size: int, *, activation: str = "tanh", norm_eps: float | None = None) -> None:
        super().__init__()
        check_counts(hidden_size=hidden_size)
        check_choice(ACTIVATIONS, activation=activation)
        self.hidden_size = hidden_size
        self.activation = activation
        self.norm_eps = norm_eps
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.norm = nn.Identity() if norm_eps is None else nn.LayerNorm(hidden_size, eps=norm_eps)
        self.out = nn.Linear(hidden_size, 1)

    def forward(self, vectors: Tensor) -> Tensor:
        """Score vectors ``[..., hidden_size]``: ``[...]`` logits."""
        hidden = self.dense(vectors)
        if self.activation == "tanh":
            hidden = hidden.tanh()
        elif self.activation == "gelu":
            hidden = F.gelu(hidden)
        elif self.activation == "relu":
            hidden = F.relu(hidden)
        else:
            hidden = F.silu(hidden)
        scores: Tensor = self.out(self.norm(hidden)).squeeze(-1)
        return scores
