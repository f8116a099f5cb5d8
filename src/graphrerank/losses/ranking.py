"""Losses of rankings: pointwise, pairwise and listwise."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from graphrerank.utils.checks import UserError, check_counts, check_not_negative, check_positive


def blank_padding(scores: Tensor, relevance: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Check a batch, and set padded slots to 0: NaN or infinity in them must not reach the loss or its gradient.

    Half precision is raised to float32: sums over a few hundred candidates do not fit into bfloat16.
    """
    if scores.ndim != 2 or not scores.is_floating_point():
        raise UserError(
            f"`scores` must be floating point [num_queries, num_candidates], got {scores.dtype} {list(scores.shape)}"
        )
    for name, tensor in (("relevance", relevance), ("mask", mask)):
        if tensor.shape != scores.shape:
            raise UserError(f"`{name}` must be {list(scores.shape)}, as `scores`, got {list(tensor.shape)}")
    if mask.dtype != torch.bool:
        raise UserError(f"`mask` must be boolean (True = a real candidate), got {mask.dtype}; use `mask.bool()`")
    dtype = torch.promote_types(scores.dtype, torch.float32)
    return torch.where(mask, scores.to(dtype), 0.0), torch.where(mask, relevance.to(dtype), 0.0)


def mean_over_queries(per_query: Tensor, relevance: Tensor) -> Tensor:
    """Average a per-query loss over the queries that have a relevant candidate."""
    counted = (relevance > 0).any(dim=1)  # [num_queries]
    return torch.where(counted, per_query, 0.0).sum() / counted.sum().clamp(min=1)


def binary_cross_entropy(scores: Tensor, relevance: Tensor, mask: Tensor) -> Tensor:
    r"""Cross-entropy of "is this candidate relevant?", with the score as the log-odds.

    .. math::
        \ell = \frac{1}{n} \sum_i -[y_i > 0] \log \sigma(s_i) - [y_i = 0] \log (1 - \sigma(s_i))

    The mean is over the ``n`` candidates of a query and then over queries, so that a long list does not outweigh a
    short one. Any gain above 0 counts as 1. Unlike the ranking losses it is not blind to a constant added to all
    scores: the scores become log-odds.

    Example:
        >>> scores = torch.tensor([[0.0, 0.0, 9.0]])
        >>> mask = torch.tensor([[True, True, False]])
        >>> binary_cross_entropy(scores, torch.tensor([[1, 0, 0]]), mask)  # log 2
        tensor(0.6931)
    """
    scores, relevance = blank_padding(scores, relevance, mask)
    target = (relevance > 0).to(scores.dtype)
    per_candidate = F.binary_cross_entropy_with_logits(scores, target, weight=mask.to(scores.dtype), reduction="none")
    return mean_over_queries(per_candidate.sum(dim=1) / mask.sum(dim=1).clamp(min=1), relevance)


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

    ``temperature``, above 0, divides the scores: small = a sharper softmax.

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


def divergence_from_retriever(
    scores: Tensor, base_scores: Tensor, relevance: Tensor, mask: Tensor, *, sharpness: float = 1.5
) -> Tensor:
    r"""Kullback-Leibler divergence of the ranking's softmax from that of the retriever's standardised scores.

    .. math::
        \ell = \sum_i p_i \log \frac{p_i}{\mathrm{softmax}(s)_i}, \qquad
        p = \mathrm{softmax}\Bigl(\lambda \frac{b - \mathrm{mean}(b)}{\mathrm{std}(b)}\Bigr)

    A regulariser, ours: added to a ranking loss it makes a change of the retriever's order cost something, so that a
    model changes it where that is worth more on the lists it is trained on, and less on lists unlike them. Mean and
    standard deviation are those of a query's candidates; ``base_scores`` are the retriever's, of any scale.
    ``sharpness``, above 0, is the factor in the softmax.
    """
    check_positive(sharpness=sharpness)
    scores, relevance = blank_padding(scores, relevance, mask)
    base_scores, _ = blank_padding(base_scores, relevance, mask)
    size = mask.sum(1, keepdim=True).clamp(min=1)
    centred = torch.where(mask, base_scores - base_scores.sum(1, keepdim=True) / size, 0.0)
    spread = (centred.square().sum(1, keepdim=True) / size).sqrt()
    lowest = torch.finfo(scores.dtype).min
    logits = sharpness * centred / torch.where(spread > 0, spread, 1.0)
    target = torch.log_softmax(logits.masked_fill(~mask, lowest), dim=1)
    log_probability = torch.log_softmax(scores.masked_fill(~mask, lowest), dim=1)
    terms = torch.where(mask, target.exp() * (target - log_probability), 0.0)
    return mean_over_queries(terms.sum(dim=1), relevance)


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

    ``sigma``, above 0, is the steepness of the logistic.

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
    Retrieval-Augmented Generation". The rival is irrelevant by choice: were it "the K-th best of all others", two
    relevant candidates just below rank K would be each other's rival, and their gradients would cancel.

    A list of at most K candidates leaves ``t`` without a rival: margins are infinite and the loss is 0. With more than
    K relevant candidates PR@K is out of reach; ``t`` is then the best irrelevant one, so that the top K fills up with
    relevant ones. Relevant nodes that are not candidates are ignored: no score can bring them in.

    Any gain above 0 counts as relevant. ``top_k`` is the K of PR@K; ``temperature``, above 0, is in units of a score:
    small = only the weakest relevant candidate matters.

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
    rivals = F.pad(rivals, (0, 1), value=-torch.inf)  # [num_queries, num_rivals + 1]: the last is no candidate
    position = (top_k - relevant.sum(dim=1, keepdim=True)).clamp(min=0, max=num_rivals)
    rival = rivals.gather(1, position)  # [num_queries, 1]; -inf where no rival can push a relevant candidate out

    exponents = ((rival - scores) / temperature).masked_fill(~relevant, -torch.inf)
    return mean_over_queries(torch.logsumexp(F.pad(exponents, (1, 0), value=0.0), dim=1), relevance)


def lambda_loss(
    scores: Tensor,
    relevance: Tensor,
    mask: Tensor,
    *,
    sigma: float = 1.0,
    mu: float = 10.0,
    top_k: int | None = None,
) -> Tensor:
    r"""NDCG-Loss2++: RankNet's pairs, each weighted by how much nDCG depends on its order in the current ranking.

    .. math::
        \ell = \sum_{y_i > y_j} (\rho_{ij} + \mu\,\delta_{ij})\,|G_i - G_j|
               \log_2\left(1 + e^{-\sigma (s_i - s_j)}\right)

        \rho_{ij} = \left|\frac{1}{D_{r_i}} - \frac{1}{D_{r_j}}\right|, \quad
        \delta_{ij} = \left|\frac{1}{D_{|r_i - r_j|}} - \frac{1}{D_{|r_i - r_j| + 1}}\right|, \quad
        D_r = \log_2(1 + r), \quad G_i = \frac{y_i}{\mathrm{maxDCG}}

    where ``r_i`` is candidate i's rank, from 1, under the current scores; ranks, and so weights, carry no gradient.

    Source: Wang et al., "The LambdaLoss Framework for Ranking Metric Optimization", 2018, the loss named NDCG-Loss2++.
    With ``mu = 0`` it is the loss of LambdaRank in the same paper. *Where we differ:* the gain is linear, as in
    ``metrics.ndcg`` (the paper: ``2 ** y - 1``), and we average the queries. ``top_k`` is ours: it takes ``maxDCG`` at
    ``top_k``, counts ``1 / D`` as 0 below that rank inside ``rho``, and drops the pairs that lie below it altogether.
    Memory grows with ``num_queries * num_candidates ** 2``.

    ``sigma``, above 0, is the steepness of the logistic; ``mu``, at least 0, the weight of ``delta`` against ``rho``;
    ``top_k`` None optimises nDCG over the whole list. The loss is in bits.

    Example:
        >>> scores = torch.tensor([[1.0, 2.0, 9.0]])
        >>> mask = torch.tensor([[True, True, False]])
        >>> lambda_loss(scores, torch.tensor([[1, 0, 0]]), mask, mu=0.0)  # (1 - 1 / log2(3)) * log2(1 + e)
        tensor(0.6993)
    """
    check_positive(sigma=sigma)
    check_not_negative(mu=mu)
    check_counts(top_k=top_k)
    scores, relevance = blank_padding(scores, relevance, mask)
    cutoff = scores.shape[1] if top_k is None else top_k

    order = scores.detach().masked_fill(~mask, -torch.inf).argsort(dim=1, descending=True, stable=True)
    rank = order.argsort(dim=1).to(scores.dtype) + 1  # padding last
    kept = rank <= cutoff
    discount = torch.where(kept, _discount(rank), 0.0)
    rho = (discount[:, :, None] - discount[:, None, :]).abs()  # [num_queries, i, j], as all that follows
    # Distance 0 is a candidate and itself, never a pair: 1 keeps it finite.
    distance = (rank[:, :, None] - rank[:, None, :]).abs().clamp(min=1)
    delta = _discount(distance) - _discount(distance + 1)

    ideal = relevance.sort(dim=1, descending=True).values[:, :cutoff]
    ideal_rank = torch.arange(1, ideal.shape[1] + 1, dtype=ideal.dtype, device=ideal.device)
    max_dcg = (ideal * _discount(ideal_rank)).sum(dim=1, keepdim=True)
    gain = relevance / torch.where(max_dcg > 0, max_dcg, 1.0)
    preferred = (relevance[:, :, None] > relevance[:, None, :]) & mask[:, None, :]
    preferred &= kept[:, :, None] | kept[:, None, :]
    weight = torch.where(preferred, (rho + mu * delta) * (gain[:, :, None] - gain[:, None, :]), 0.0)
    per_pair = -F.logsigmoid(sigma * (scores[:, :, None] - scores[:, None, :])) / math.log(2.0)
    return mean_over_queries((weight * per_pair).sum(dim=(1, 2)), relevance)


def _discount(rank: Tensor) -> Tensor:
    """Give ``1 / D`` of a rank counted from 1."""
    return 1.0 / torch.log2(1.0 + rank)
