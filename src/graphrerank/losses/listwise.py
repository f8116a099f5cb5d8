"""Softmax cross-entropy over a query's whole candidate list."""

import torch
from torch import Tensor

from graphrerank.checks import check_positive
from graphrerank.losses._padding import blank_padding, mean_over_queries


def listwise_softmax_cross_entropy(
    scores: Tensor, relevance: Tensor, mask: Tensor, *, temperature: float = 1.0
) -> Tensor:
    r"""Cross-entropy between the candidates' share of relevance and the softmax of their scores.

    .. math::
        \ell = -\sum_i \frac{y_i}{\sum_j y_j} \log \frac{e^{s_i / \tau}}{\sum_j e^{s_j / \tau}}

    Source: Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach" (ListNet), 2007, top-one
    probabilities. The target is not ListNet's softmax of the labels but the labels divided by their sum, so that an
    irrelevant candidate has probability 0: the form that Bruch et al., "An Analysis of the Softmax Cross Entropy Loss
    for Learning-to-Rank with Binary Relevance", 2019, show to bound MRR and nDCG.

    The lowest reachable loss is the entropy of the target: 0 with one relevant candidate, log n with n equal ones.

    ``temperature``, above 0, divides the scores: small = a sharper softmax. Other arguments, result and errors as of
    all :mod:`~graphrerank.losses`; in nats.

    Example:
        >>> scores = torch.tensor([[0.0, 0.0, 9.0]])
        >>> mask = torch.tensor([[True, True, False]])
        >>> listwise_softmax_cross_entropy(scores, torch.tensor([[1, 0, 0]]), mask)  # log 2
        tensor(0.6931)
    """
    check_positive(temperature=temperature)
    scores, relevance = blank_padding(scores, relevance, mask)
    # The lowest finite number, not -inf: a row of padding alone would otherwise be NaN.
    logits = (scores / temperature).masked_fill(~mask, torch.finfo(scores.dtype).min)
    log_probability = torch.where(mask, torch.log_softmax(logits, dim=1), 0.0)
    total_relevance = relevance.sum(dim=1, keepdim=True)  # [num_queries, 1]
    target = relevance / torch.where(total_relevance > 0, total_relevance, 1.0)
    return mean_over_queries(-(target * log_probability).sum(dim=1), relevance)
