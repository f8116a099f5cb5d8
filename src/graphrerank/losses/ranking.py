"""Ranking losses: pointwise, pairwise and listwise."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from graphrerank.utils.checks import UserError, check_counts, check_not_negative, check_positive


def blank_padding(scores: Tensor, relevance: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Check a batch, and set padding to 0 so that NaN or infinity in it cannot reach the loss or its gradient.

    Half-precision tensors are converted to float32, because sums over hundreds of candidates are inaccurate in
    bfloat16.

    Args:
        scores: Scores ``[num_queries, num_candidates]``.
        relevance: Relevance gains of the same shape.
        mask: Boolean mask of the real candidates, of the same shape.

    Returns:
        Scores and relevance, 0 where ``mask`` is False.

    Raises:
        UserError: If a shape or data type does not fit.
    """
    if scores.ndim != 2 or not scores.is_floating_point():
        raise UserError(
            "`scores` must be a floating-point tensor of shape [num_queries, num_candidates], got "
            f"{scores.dtype} of shape {list(scores.shape)}"
        )
    for name, tensor in (("relevance", relevance), ("mask", mask)):
        if tensor.shape != scores.shape:
            raise UserError(f"`{name}` must have the shape of `scores`, {list(scores.shape)}, got {list(tensor.shape)}")
    if mask.dtype != torch.bool:
        raise UserError(f"`mask` must be boolean (True for real candidates), got {mask.dtype}. Use `mask.bool()`")
    dtype = torch.promote_types(scores.dtype, torch.float32)
    return torch.where(mask, scores.to(dtype), 0.0), torch.where(mask, relevance.to(dtype), 0.0)


def mean_over_queries(per_query: Tensor, relevance: Tensor) -> Tensor:
    """Return the mean of a loss over the queries with at least one relevant candidate.

    Args:
        per_query: Loss of each query, ``[num_queries]``.
        relevance: Relevance gains ``[num_queries, num_candidates]``, 0 for padding.

    Returns:
        Scalar, 0 if no query has a relevant candidate.
    """
    counted = (relevance > 0).any(dim=1)  # [num_queries]
    return torch.where(counted, per_query, 0.0).sum() / counted.sum().clamp(min=1)


def binary_cross_entropy(scores: Tensor, relevance: Tensor, mask: Tensor) -> Tensor:
    r"""Compute the binary cross-entropy of relevance, with the scores as log-odds.

    .. math::
        \ell = \frac{1}{n} \sum_i -[y_i > 0] \log \sigma(s_i) - [y_i = 0] \log (1 - \sigma(s_i))

    The mean is taken over the ``n`` candidates of a query and then over queries, so long lists have no more weight than
    short ones. A candidate with a gain above 0 is relevant. Unlike the other losses, this one depends on the absolute
    level of the scores.

    Source: pointwise logistic loss, a standard baseline in learning to rank.

    Args:
        scores: Scores ``[num_queries, num_candidates]``, which become log-odds.
        relevance: Relevance gains of the same shape, at least 0.
        mask: Boolean mask of the real candidates, of the same shape.

    Returns:
        Scalar loss.

    Raises:
        UserError: If a shape or data type does not fit.

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
    r"""Compute the cross-entropy between the distribution of relevance and the softmax of the scores.

    .. math::
        \ell = -\sum_i \frac{y_i}{\sum_j y_j} \log \frac{e^{s_i / \tau}}{\sum_j e^{s_j / \tau}}

    The smallest possible loss is the entropy of the target: 0 for one relevant candidate, and log n for n equally
    relevant ones.

    Source: Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach" (ListNet), 2007, with top-one
    probabilities. *Differences from the paper:* the target is the labels divided by their sum instead of their softmax,
    so irrelevant candidates have probability 0. Bruch et al., "An Analysis of the Softmax Cross Entropy Loss for
    Learning-to-Rank with Binary Relevance", 2019, show that this form bounds MRR and nDCG.

    Args:
        scores: Scores ``[num_queries, num_candidates]``.
        relevance: Relevance gains of the same shape, at least 0.
        mask: Boolean mask of the real candidates, of the same shape.
        temperature: Positive divisor :math:`\tau` of the scores. Smaller values make the softmax sharper.

    Returns:
        Scalar loss.

    Raises:
        UserError: If a shape or data type does not fit, or if ``temperature`` is not positive.

    Example:
        >>> scores = torch.tensor([[0.0, 0.0, 9.0]])
        >>> mask = torch.tensor([[True, True, False]])
        >>> listwise_softmax_cross_entropy(scores, torch.tensor([[1, 0, 0]]), mask)  # log 2
        tensor(0.6931)
    """
    check_positive(temperature=temperature)
    scores, relevance = blank_padding(scores, relevance, mask)
    # With -inf instead of the lowest finite number, a row that is all padding would be NaN.
    logits = (scores / temperature).masked_fill(~mask, torch.finfo(scores.dtype).min)
    log_probability = torch.where(mask, torch.log_softmax(logits, dim=1), 0.0)
    total_relevance = relevance.sum(dim=1, keepdim=True)  # [num_queries, 1]
    target = relevance / torch.where(total_relevance > 0, total_relevance, 1.0)
    return mean_over_queries(-(target * log_probability).sum(dim=1), relevance)


def divergence_from_retriever(
    scores: Tensor, base_scores: Tensor, relevance: Tensor, mask: Tensor, *, sharpness: float = 1.5
) -> Tensor:
    r"""Compute the Kullback-Leibler divergence between the softmax of the retriever's scores and that of the scores.

    .. math::
        \ell = \sum_i p_i \log \frac{p_i}{\mathrm{softmax}(s)_i}, \qquad
        p = \mathrm{softmax}\Bigl(\lambda \frac{b - \mathrm{mean}(b)}{\mathrm{std}(b)}\Bigr)

    Added to a ranking loss, this regulariser penalises deviations from the retriever's ranking. A model then changes
    the ranking only where the gain on its training lists outweighs the penalty, which makes it more cautious on
    unfamiliar lists.

    Source: this project. The mean and the standard deviation are taken over the candidates of a query.

    Args:
        scores: Scores :math:`s`, ``[num_queries, num_candidates]``.
        base_scores: Scores :math:`b` of the retriever, of the same shape and any scale.
        relevance: Relevance gains of the same shape. They only select the queries with a relevant candidate.
        mask: Boolean mask of the real candidates, of the same shape.
        sharpness: Positive factor :math:`\lambda` of the standardised scores.

    Returns:
        Scalar loss.

    Raises:
        UserError: If a shape or data type does not fit, or if ``sharpness`` is not positive.

    Example:
        >>> base_scores, mask = torch.tensor([[3.0, 1.0]]), torch.ones(1, 2, dtype=torch.bool)
        >>> divergence_from_retriever(torch.tensor([[3.0, 0.0]]), base_scores, torch.tensor([[1, 0]]), mask)
        tensor(0.)
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
    r"""Compute the RankNet loss: the logistic loss of every pair of candidates with different relevance.

    .. math::
        \ell = \frac{1}{|P|} \sum_{(i, j) \in P} \log\left(1 + e^{-\sigma (s_i - s_j)}\right),
        \qquad P = \{(i, j) : y_i > y_j\}

    The mean is taken over the pairs of a query and then over queries. A query whose candidates are all equally relevant
    has no pairs and a loss of 0. Memory grows with ``num_queries * num_candidates ** 2``.

    Source: Burges et al., "Learning to Rank using Gradient Descent", 2005, Eq. (3) with a target probability of 1.
    *Differences from the paper:* pairs of equal relevance are not used. The paper gives them a target of 1/2. ``sigma``
    is from Burges, "From RankNet to LambdaRank to LambdaMART: An Overview", 2010.

    Args:
        scores: Scores ``[num_queries, num_candidates]``.
        relevance: Relevance gains of the same shape, at least 0.
        mask: Boolean mask of the real candidates, of the same shape.
        sigma: Positive steepness :math:`\sigma` of the logistic function.

    Returns:
        Scalar loss.

    Raises:
        UserError: If a shape or data type does not fit, or if ``sigma`` is not positive.

    Example:
        >>> scores = torch.tensor([[1.0, 1.0, 9.0]])
        >>> mask = torch.tensor([[True, True, False]])
        >>> ranknet(scores, torch.tensor([[1, 0, 0]]), mask)  # log 2
        tensor(0.6931)
    """
    check_positive(sigma=sigma)
    scores, relevance = blank_padding(scores, relevance, mask)
    # [num_queries, i, j]; i is never padding because the relevance of padding is 0
    preferred = (relevance[:, :, None] > relevance[:, None, :]) & mask[:, None, :]
    per_pair = -F.logsigmoid(sigma * (scores[:, :, None] - scores[:, None, :]))
    num_pairs = preferred.sum(dim=(1, 2)).clamp(min=1)  # [num_queries]
    return mean_over_queries(torch.where(preferred, per_pair, 0.0).sum(dim=(1, 2)) / num_pairs, relevance)


def smooth_perfect_recall(
    scores: Tensor, relevance: Tensor, mask: Tensor, *, top_k: int = 10, temperature: float = 1.0
) -> Tensor:
    r"""Compute a smooth bound of perfect recall: the lowest-scored relevant candidate should be in the top K.

    Let ``R`` be the set of relevant candidates. All of them are in the top K if and only if at most ``K - |R|``
    irrelevant candidates score above the lowest of them. This holds if every relevant score exceeds ``t``, the score of
    the irrelevant candidate that is ranked ``K - |R| + 1`` among the irrelevant ones. With the margins ``m`` and a soft
    minimum over them,

    .. math::
        m_r = s_r - t, \qquad
        \mathrm{softmin}_\tau(m) = -\tau \log \sum_{r \in R} e^{-m_r / \tau}, \qquad
        \ell = \log\left(1 + e^{-\mathrm{softmin}_\tau(m) / \tau}\right)
             = \log\left(1 + \sum_{r \in R} e^{-m_r / \tau}\right)

    For at most K relevant candidates, ``loss / log(2)`` is an upper bound of ``1 - PR@K`` over the candidates, and
    ``temperature * loss`` approaches the hinge loss ``max(0, -min(m))`` as the temperature approaches 0.

    Source: this project, for the measure PR@K of "GraphER: An Efficient Graph-Based Enrichment and Reranking Method for
    Retrieval-Augmented Generation". The threshold ``t`` is always an irrelevant candidate. If it were the K-th best of
    all other candidates, two relevant candidates just below rank K would be each other's threshold, and their gradients
    would cancel.

    Special cases: in a list of at most K candidates there is no threshold, and the loss is 0. With more than K relevant
    candidates, PR@K cannot be reached, and ``t`` is the score of the best irrelevant candidate. Relevant passages that
    are not among the candidates are ignored. A candidate with a gain above 0 is relevant.

    Args:
        scores: Scores ``[num_queries, num_candidates]``.
        relevance: Relevance gains of the same shape, at least 0.
        mask: Boolean mask of the real candidates, of the same shape.
        top_k: Cutoff K of the measure.
        temperature: Positive temperature :math:`\tau`, in the unit of the scores. With a small value, only the
            lowest-scored relevant candidate matters.

    Returns:
        Scalar loss.

    Raises:
        UserError: If a shape or data type does not fit, or if a setting is not positive.

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
    rivals = F.pad(rivals, (0, 1), value=-torch.inf)  # [num_queries, num_rivals + 1], the last column is padding
    position = (top_k - relevant.sum(dim=1, keepdim=True)).clamp(min=0, max=num_rivals)
    rival = rivals.gather(1, position)  # [num_queries, 1], -inf if the list has no such candidate

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
    r"""Compute NDCG-Loss2++: the RankNet loss with each pair weighted by its effect on nDCG in the current ranking.

    .. math::
        \ell = \sum_{y_i > y_j} (\rho_{ij} + \mu\,\delta_{ij})\,|G_i - G_j|
               \log_2\left(1 + e^{-\sigma (s_i - s_j)}\right)

        \rho_{ij} = \left|\frac{1}{D_{r_i}} - \frac{1}{D_{r_j}}\right|, \quad
        \delta_{ij} = \left|\frac{1}{D_{|r_i - r_j|}} - \frac{1}{D_{|r_i - r_j| + 1}}\right|, \quad
        D_r = \log_2(1 + r), \quad G_i = \frac{y_i}{\mathrm{maxDCG}}

    where :math:`r_i` is the 1-based rank of candidate :math:`i` under the current scores. The weights have no gradient.
    The loss is in bits. Memory grows with ``num_queries * num_candidates ** 2``.

    Source: Wang et al., "The LambdaLoss Framework for Ranking Metric Optimization", 2018, NDCG-Loss2++. With ``mu = 0``
    it is the LambdaRank loss of the same paper. *Differences from the paper:* the gain is linear, as in
    ``metrics.ndcg``, instead of ``2 ** y - 1``, and the loss is averaged over queries. ``top_k`` is an addition:
    ``maxDCG`` is taken at ``top_k``, ``1 / D`` is 0 below that rank in :math:`\rho`, and pairs with both candidates
    below it are dropped.

    Args:
        scores: Scores ``[num_queries, num_candidates]``.
        relevance: Relevance gains of the same shape, at least 0.
        mask: Boolean mask of the real candidates, of the same shape.
        sigma: Positive steepness :math:`\sigma` of the logistic function.
        mu: Weight :math:`\mu` of :math:`\delta` relative to :math:`\rho`, at least 0.
        top_k: Cutoff of the nDCG to optimise. If None, the whole list is used.

    Returns:
        Scalar loss.

    Raises:
        UserError: If a shape or data type does not fit, or if a setting is out of range.

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
    rank = order.argsort(dim=1).to(scores.dtype) + 1  # padding comes last
    is_in_top = rank <= cutoff
    discount = torch.where(is_in_top, _discount(rank), 0.0)
    rho = (discount[:, :, None] - discount[:, None, :]).abs()  # [num_queries, i, j]
    # The distance of a candidate to itself is never used. A minimum of 1 keeps its discount finite.
    distance = (rank[:, :, None] - rank[:, None, :]).abs().clamp(min=1)
    delta = _discount(distance) - _discount(distance + 1)

    ideal = relevance.sort(dim=1, descending=True).values[:, :cutoff]
    ideal_rank = torch.arange(1, ideal.shape[1] + 1, dtype=ideal.dtype, device=ideal.device)
    max_dcg = (ideal * _discount(ideal_rank)).sum(dim=1, keepdim=True)
    gain = relevance / torch.where(max_dcg > 0, max_dcg, 1.0)
    preferred = (relevance[:, :, None] > relevance[:, None, :]) & mask[:, None, :]
    preferred &= is_in_top[:, :, None] | is_in_top[:, None, :]
    weight = torch.where(preferred, (rho + mu * delta) * (gain[:, :, None] - gain[:, None, :]), 0.0)
    per_pair = -F.logsigmoid(sigma * (scores[:, :, None] - scores[:, None, :])) / math.log(2.0)
    return mean_over_queries((weight * per_pair).sum(dim=(1, 2)), relevance)


def _discount(rank: Tensor) -> Tensor:
    """Return the discount ``1 / D`` of 1-based ranks."""
    return 1.0 / torch.log2(1.0 + rank)
