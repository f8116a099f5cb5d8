"""A smooth stand-in for perfect recall at K."""

import torch
from torch import Tensor
from torch.nn import functional as F

from graphrerank.checks import check_counts, check_positive
from graphrerank.losses._padding import blank_padding, mean_over_queries


def smooth_perfect_recall(
    scores: Tensor, relevance: Tensor, mask: Tensor, *, top_k: int = 10, temperature: float = 1.0
) -> Tensor:
    r"""Ask that the weakest relevant candidate still be among the best K.

    With ``R`` the relevant candidates, all of ``R`` are in the top K exactly when no more than ``K - |R|`` irrelevant
    ones score above the weakest of them: when each relevant score beats that of the rival ``t``, the irrelevant
    candidate of rank ``K - |R| + 1`` among the irrelevant ones. So, with margins ``m`` and a soft minimum over them,

    .. math::
        m_r = s_r - t, \qquad
        \mathrm{softmin}_\tau(m) = -\tau \log \sum_{r \in R} e^{-m_r / \tau}, \qquad
        \ell = \log\left(1 + e^{-\mathrm{softmin}_\tau(m) / \tau}\right)
             = \log\left(1 + \sum_{r \in R} e^{-m_r / \tau}\right)

    For at most K relevant candidates ``loss / log(2)`` bounds ``1 - PR@K`` (over the candidates) from above, and
    ``temperature * loss`` tends to the hinge ``max(0, -min(m))`` as the temperature falls.

    Source: ours, for the PR@K of "GraphER: An Efficient Graph-Based Enrichment and Reranking Method for
    Retrieval-Augmented Generation". The rival is irrelevant by choice. "The K-th best of all other candidates" tells
    the same top K from the rest, but may name a relevant one: then two relevant candidates just below rank K are each
    the other's rival, their gradients cancel, and neither rises.

    A list of at most K candidates leaves ``t`` without a rival: margins are infinite and the loss is 0. With more than
    K relevant candidates PR@K is out of reach; ``t`` is then the best irrelevant one, so that the top K fills up with
    relevant ones. Relevant nodes that are not candidates are ignored: no score can bring them in.

    Any gain above 0 counts as relevant. ``top_k`` is the K of PR@K; ``temperature``, above 0, is in units of a score:
    small = only the weakest relevant candidate matters. Other arguments, result and errors as of all
    :mod:`~graphrerank.losses`; in nats.

    Example:
        >>> scores = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
        >>> mask = torch.ones(1, 4, dtype=torch.bool)
        >>> smooth_perfect_recall(scores, torch.tensor([[1, 0, 1, 0]]), mask, top_k=2)  # t = 2: log(1 + 1 / e + e)
        tensor(1.4076)
    """
    check_counts(top_k=top_k)
    check_positive(temperature=temperature)
    scores, relevance = blank_padding(scores, relevance, mask)
    relevant = relevance > 0

    num_rivals = min(top_k, scores.shape[1])
    rivals = scores.masked_fill(relevant | ~mask, -torch.inf).topk(num_rivals, dim=1).values
    rivals = F.pad(rivals, (0, 1), value=-torch.inf)  # [num_queries, num_rivals + 1]: the last is "nobody"
    position = (top_k - relevant.sum(dim=1, keepdim=True)).clamp(min=0, max=num_rivals)
    rival = rivals.gather(1, position)  # [num_queries, 1]; -inf where nobody can push a relevant candidate out

    exponents = ((rival - scores) / temperature).masked_fill(~relevant, -torch.inf)
    return mean_over_queries(torch.logsumexp(F.pad(exponents, (1, 0), value=0.0), dim=1), relevance)
