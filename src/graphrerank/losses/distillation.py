"""Distillation losses, which train a model on the scores of a teacher such as a large cross-encoder."""

import torch
from torch import Tensor

from graphrerank.losses.ranking import blank_padding
from graphrerank.utils.checks import UserError, check_choice, check_positive

PAIRS = ("all", "judged")  # choices of the pairs of candidates that `margin_mse` compares


def margin_mse(
    scores: Tensor, relevance: Tensor, mask: Tensor, teacher_scores: Tensor, *, pairs: str = "all"
) -> Tensor:
    r"""Compute the mean squared error between the score differences of the model and those of the teacher.

    .. math::
        \ell = \frac{1}{|P|} \sum_{(i, j) \in P} \bigl((s_i - s_j) - (t_i - t_j)\bigr)^2

    The mean is taken over the pairs of a query and then over the queries with at least one pair. The model learns the
    scale of the teacher's scores, so that a teacher with scores between 0 and 1 gives a small loss. Use
    :func:`kl_divergence` for teachers whose scale has no meaning, such as a run file of several systems.

    Source: Hofstätter et al., "Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge
    Distillation", 2020, Eq. (3). *Differences from the paper:* the paper compares a relevant with an irrelevant passage
    (``pairs="judged"``). By default, all pairs of candidates are compared, so that queries without judgements can be
    trained on.

    Args:
        scores: Scores :math:`s`, ``[num_queries, num_candidates]``.
        relevance: Relevance gains of the same shape, at least 0. Only used with ``pairs="judged"``.
        mask: Boolean mask of the real candidates, of the same shape.
        teacher_scores: Scores :math:`t` of the teacher, of the same shape. NaN for candidates that the teacher has not
            scored, which are ignored.
        pairs: Pairs :math:`P` to compare. ``"all"`` compares every two candidates. ``"judged"`` compares relevant with
            irrelevant candidates, and ignores queries without judgements.

    Returns:
        Scalar loss, 0 if no query has a pair.

    Raises:
        UserError: If a shape or data type does not fit, or ``pairs`` is unknown.

    Example:
        >>> scores, mask = torch.tensor([[2.0, 0.0]]), torch.ones(1, 2, dtype=torch.bool)
        >>> margin_mse(scores, torch.zeros(1, 2), mask, torch.tensor([[5.0, 2.0]]))  # (2 - 3) squared
        tensor(1.)
    """
    check_choice(PAIRS, pairs=pairs)
    scored = scored_candidates(mask, teacher_scores)
    scores, relevance = blank_padding(scores, relevance, mask)
    difference = torch.where(scored, scores - teacher_scores.to(scores.dtype).nan_to_num(), 0.0)
    if pairs == "all":
        # The sum over ordered pairs is 2 n times the sum of squared deviations from the mean.
        count = scored.sum(1)
        mean = difference.sum(1, keepdim=True) / count.clamp(min=1).unsqueeze(1)
        squares = torch.where(scored, difference - mean, 0.0).square().sum(1)
        return _mean_of_queries(2 * squares / (count - 1).clamp(min=1), count > 1)
    relevant, irrelevant = scored & (relevance > 0), scored & (relevance <= 0)
    is_pair = relevant[:, :, None] & irrelevant[:, None, :]  # [num_queries, i, j]
    errors = torch.where(is_pair, difference[:, :, None] - difference[:, None, :], 0.0).square().sum(dim=(1, 2))
    num_pairs = is_pair.sum(dim=(1, 2))
    return _mean_of_queries(errors / num_pairs.clamp(min=1), num_pairs > 0)


def kl_divergence(
    scores: Tensor, relevance: Tensor, mask: Tensor, teacher_scores: Tensor, *, temperature: float = 1.0
) -> Tensor:
    r"""Compute the Kullback-Leibler divergence of the softmax of the scores from the softmax of the teacher's scores.

    .. math::
        \ell = \tau^2 \sum_i p_i \log \frac{p_i}{q_i}, \qquad
        p = \mathrm{softmax}(t / \tau), \quad q = \mathrm{softmax}(s / \tau)

    The mean is taken over the queries with at least two scored candidates. The loss is 0 if the scores equal those of
    the teacher up to a constant per query.

    Source: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015, Sec. 2, whose factor :math:`\tau^2`
    keeps the size of the gradient independent of the temperature. *Differences from the paper:* the distributions are
    over the candidates of a query instead of over classes, and the true labels are a separate loss
    (:class:`~graphrerank.training.weighted_loss.WeightedLoss`).

    Args:
        scores: Scores :math:`s`, ``[num_queries, num_candidates]``.
        relevance: Relevance gains of the same shape. Ignored.
        mask: Boolean mask of the real candidates, of the same shape.
        teacher_scores: Scores :math:`t` of the teacher, of the same shape. NaN for candidates that the teacher has not
            scored, which are ignored.
        temperature: Positive divisor :math:`\tau` of both scores. Higher values give more weight to the order of the
            candidates that the teacher considers irrelevant.

    Returns:
        Scalar loss, 0 if no query has two scored candidates.

    Raises:
        UserError: If a shape or data type does not fit, or ``temperature`` is not positive.

    Example:
        >>> scores, mask = torch.tensor([[3.0, 1.0]]), torch.ones(1, 2, dtype=torch.bool)
        >>> kl_divergence(scores, torch.zeros(1, 2), mask, torch.tensor([[12.0, 10.0]]))
        tensor(0.)
    """
    check_positive(temperature=temperature)
    scored = scored_candidates(mask, teacher_scores)
    scores, _ = blank_padding(scores, relevance, mask)
    lowest = torch.finfo(scores.dtype).min  # with -inf, a row without scored candidates would be NaN
    teacher_logits = (teacher_scores.to(scores.dtype) / temperature).masked_fill(~scored, lowest)
    target = torch.log_softmax(teacher_logits, dim=1)
    log_probability = torch.log_softmax((scores / temperature).masked_fill(~scored, lowest), dim=1)
    terms = torch.where(scored, target.exp() * (target - log_probability), 0.0)
    return _mean_of_queries(temperature**2 * terms.sum(dim=1), scored.sum(1) > 1)


def scored_candidates(mask: Tensor, teacher_scores: Tensor) -> Tensor:
    """Return the mask of the candidates with a score of the teacher.

    Args:
        mask: Boolean mask of the real candidates, ``[num_queries, num_candidates]``.
        teacher_scores: Scores of the teacher, of the same shape, NaN for candidates without one.

    Returns:
        Boolean mask of the same shape.

    Raises:
        UserError: If the shapes differ.

    Example:
        >>> scored_candidates(torch.tensor([[True, True, False]]), torch.tensor([[1.0, torch.nan, 2.0]]))
        tensor([[ True, False, False]])
    """
    if teacher_scores.shape != mask.shape:
        raise UserError(
            f"`teacher_scores` must have the shape of `mask`, {list(mask.shape)}, got {list(teacher_scores.shape)}"
        )
    return mask & ~teacher_scores.isnan()


def _mean_of_queries(per_query: Tensor, is_counted: Tensor) -> Tensor:
    """Return the mean over the counted queries, 0 if there are none."""
    return torch.where(is_counted, per_query, 0.0).sum() / is_counted.sum().clamp(min=1)
