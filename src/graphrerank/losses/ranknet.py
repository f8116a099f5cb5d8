"""RankNet: logistic loss on pairs of candidates."""

import torch
from torch import Tensor
from torch.nn import functional as F

from graphrerank.checks import check_positive
from graphrerank.losses._padding import blank_padding, mean_over_queries


def ranknet(scores: Tensor, relevance: Tensor, mask: Tensor, *, sigma: float = 1.0) -> Tensor:
    r"""Ask of each pair of candidates that the more relevant one scores higher.

    .. math::
        \ell = \frac{1}{|P|} \sum_{(i, j) \in P} \log\left(1 + e^{-\sigma (s_i - s_j)}\right),
        \qquad P = \{(i, j) : y_i > y_j\}

    Source: Burges et al., "Learning to Rank using Gradient Descent", 2005, Eq. (3) with target probability 1; pairs of
    equal relevance are not used (the paper: target 1/2). ``sigma`` is that of Burges, "From RankNet to LambdaRank to
    LambdaMART: An Overview", 2010.

    The mean is over the pairs of a query and then over queries. A query whose candidates are all equally relevant has
    no pair and counts with 0. Memory grows with ``num_queries * num_candidates ** 2``.

    ``sigma``, above 0, is the steepness of the logistic. Other arguments, result and errors as of all
    :mod:`~graphrerank.losses`; in nats.

    Example:
        >>> scores = torch.tensor([[1.0, 1.0, 9.0]])
        >>> mask = torch.tensor([[True, True, False]])
        >>> ranknet(scores, torch.tensor([[1, 0, 0]]), mask)  # log 2
        tensor(0.6931)
    """
    check_positive(sigma=sigma)
    scores, relevance = blank_padding(scores, relevance, mask)
    # [num_queries, i, j]; i is never padding, whose relevance is 0
    preferred = (relevance[:, :, None] > relevance[:, None, :]) & mask[:, None, :]
    per_pair = -F.logsigmoid(sigma * (scores[:, :, None] - scores[:, None, :]))
    num_pairs = preferred.sum(dim=(1, 2)).clamp(min=1)  # [num_queries]
    return mean_over_queries(torch.where(preferred, per_pair, 0.0).sum(dim=(1, 2)) / num_pairs, relevance)
