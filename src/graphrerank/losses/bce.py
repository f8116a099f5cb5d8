"""Binary cross-entropy, one decision per candidate."""

from torch import Tensor
from torch.nn import functional as F

from graphrerank.losses._padding import blank_padding, mean_over_queries


def binary_cross_entropy(scores: Tensor, relevance: Tensor, mask: Tensor) -> Tensor:
    r"""Cross-entropy of "is this candidate relevant?", with the score as the log-odds.

    .. math::
        \ell = \frac{1}{n} \sum_i -[y_i > 0] \log \sigma(s_i) - [y_i = 0] \log (1 - \sigma(s_i))

    The mean is over the ``n`` candidates of a query and then over queries, so that a long list does not outweigh a
    short one. Any gain above 0 counts as 1. Queries without a relevant candidate are left out, as in the ranking
    losses: such a query says nothing about order, and would only push every score down.

    Unlike the ranking losses it is not blind to a constant added to all scores: the scores become log-odds.

    Arguments, result and errors as of all :mod:`~graphrerank.losses`; in nats.

    Example:
        >>> import torch
        >>> scores = torch.tensor([[0.0, 0.0, 9.0]])
        >>> mask = torch.tensor([[True, True, False]])
        >>> binary_cross_entropy(scores, torch.tensor([[1, 0, 0]]), mask)  # log 2
        tensor(0.6931)
    """
    scores, relevance = blank_padding(scores, relevance, mask)
    target = (relevance > 0).to(scores.dtype)
    per_candidate = F.binary_cross_entropy_with_logits(scores, target, weight=mask.to(scores.dtype), reduction="none")
    return mean_over_queries(per_candidate.sum(dim=1) / mask.sum(dim=1).clamp(min=1), relevance)
