"""Estimate relevance from clicks with a doubly robust correction of position bias."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.feedback.log import Session

CLIP = 0.1  # smallest propensity that a click is divided by
MAX_GAIN = 2.0  # limit of the gain of one result in one session, so that no single session dominates the estimate
ENOUGH_SESSIONS = 8.0  # limit of a query's weight, because more sessions of it tell little about other queries


@dataclass(frozen=True)
class Relevance:
    """Estimated relevance of the candidates of each query.

    Attributes:
        gain: Estimated clicks at the first rank minus the base rate of clicks, ``[Q, K]`` (float64). Negative if there
            were fewer clicks than the base rate.
        sessions: Total weight of each query's sessions, ``[Q]`` (float64). 0 for a query without sessions.
        shown: Whether each candidate was ever shown, ``[Q, K]`` (bool).
    """

    gain: Tensor
    sessions: Tensor
    shown: Tensor

    def select(self, rows: Tensor) -> "Relevance":
        """Return the estimates of the selected queries.

        Args:
            rows: Rows of the queries, ``[Q']``.
        """
        return Relevance(self.gain[rows], self.sessions[rows], self.shown[rows])

    @property
    def weight(self) -> Tensor:
        """Weight of each query, ``[Q]``. Grows with its sessions and approaches 8."""
        return self.sessions / (1 + self.sessions / ENOUGH_SESSIONS)


def estimate_relevance(
    sessions: Sequence[Session],
    weights: Tensor,
    rows: Sequence[int],
    columns: Sequence[dict[str, int]],
    curve: Tensor,
    scores: Tensor,
    mask: Tensor,
) -> Relevance:
    r"""Estimate how often each candidate would be clicked at the first rank, minus the base rate of clicks.

    .. math::
        y_d = \hat r_d - \epsilon + \frac{1}{N} \sum_s \frac{c_{sd} - \theta_{k(s, d)} \hat r_d}{\max(\rho_d, \tau)},
        \qquad \rho_d = \frac{1}{N} \sum_s \theta_{k(s, d)}, \qquad \hat r = \epsilon + a\,\mathrm{softmax}(s)

    where :math:`s` are the scores of the current ranker, :math:`\epsilon` is the click rate in the lower half of the
    lists, and :math:`a` is chosen so that the expected number of clicks equals the observed one. A candidate that was
    never shown keeps its expected relevance. With one rank per passage and without clipping, the estimate is inverse
    propensity weighting.

    Source: Oosterhuis, "Doubly-Robust Estimation for Correcting Position-Bias in Click Feedback for Unbiased Learning
    to Rank", 2023, Eq. (25) without trust bias.

    Args:
        sessions: ``S`` sessions, each a list that was shown with the feedback on it.
        weights: Weight of each session, ``[S]``.
        rows: Row of each session's query.
        columns: For each row, maps the ids of the candidates to their columns. Other ids are ignored.
        curve: Propensity of each rank, ``[R]``.
        scores: Scores of the current ranker, ``[Q, K]``.
        mask: Whether there is a candidate, ``[Q, K]`` (bool).

    Returns:
        The estimated relevance.
    """
    entries: list[tuple[int, int, float, float]] = []  # row, column, views, clicks
    lower_views, lower_clicks = 1e-9, 0.0  # in the lower half of the lists; not 0, because the rate divides by it
    total = torch.zeros(len(scores), dtype=torch.float64)
    propensities = curve.tolist()
    for session, weight, row in zip(sessions, weights.tolist(), rows, strict=True):
        total[row] += weight
        for rank, (name, gain) in enumerate(zip(session.ids, session.gains, strict=True)):
            views, clicks = weight * propensities[rank], weight * min(gain, MAX_GAIN)
            if 2 * rank >= len(session.ids):
                lower_views += views
                lower_clicks += clicks
            column = columns[row].get(name)
            if column is not None:
                entries.append((row, column, views, clicks))
    total_views, total_clicks = torch.zeros(2, *scores.shape, dtype=torch.float64)
    if entries:
        table = torch.tensor(entries, dtype=torch.float64)
        index = tuple(table[:, :2].long().T)
        total_views.index_put_(index, table[:, 2], accumulate=True)
        total_clicks.index_put_(index, table[:, 3], accumulate=True)
    shown = total_views > 0
    base_rate = lower_clicks / lower_views
    ranker_shares = torch.softmax(scores.double().masked_fill(~mask, -1e30), dim=1) * mask
    expected = float((total_views * ranker_shares).sum())
    scale = 0.0  # a of the equation
    if expected > 0:
        scale = max(0.0, float(total_clicks.sum()) - base_rate * float(total_views.sum())) / expected
    prior = scale * ranker_shares
    count = total.clamp(min=1e-9).unsqueeze(1)
    propensity = total_views / count  # rho of the equation
    residual = (total_clicks / count - propensity * (base_rate + prior)) / propensity.clamp(min=CLIP)
    estimate = torch.where(shown, prior + residual, prior) * (total > 0).unsqueeze(1)
    return Relevance(estimate, total, shown)


def compare_worth(new: Tensor, old: Tensor, nodes: Tensor, relevance: Relevance) -> Tensor:
    r"""Compare two rankers by the estimated clicks on shown candidates, discounted as in DCG.

    .. math:: w_q \sum_d y_d \left(\frac{1}{\log_2(1 + r_d)} - \frac{1}{\log_2(1 + r'_d)}\right)

    where :math:`w_q` is the query's :attr:`~Relevance.weight`, and :math:`r` and :math:`r'` are the ranks of the new
    and the old ranker among the shown candidates. The others are ignored because there is no click evidence on them.

    Args:
        new: Scores of the new ranker, ``[Q, K]``.
        old: Scores of the old ranker, ``[Q, K]``.
        nodes: Candidates, ``[Q, K]``, -1 where padded.
        relevance: Estimated relevance of the candidates.

    Returns:
        Difference for each query, ``[Q]`` (float64), positive if the new ranker is better.
    """
    nodes = nodes.masked_fill(~relevance.shown, -1)
    difference = _discounts(new, nodes) - _discounts(old, nodes)
    return relevance.weight * (difference * relevance.gain).sum(1)


def order(scores: Tensor, nodes: Tensor) -> Tensor:
    """Return the columns of each row from best to worst, ``[Q, K]``. Ties are ordered by node, and padding comes last.

    Args:
        scores: Scores of the candidates, ``[Q, K]``.
        nodes: Candidates, ``[Q, K]``, -1 where padded.

    Example:
        >>> order(torch.tensor([[0.5, 0.9, 0.5, 0.0]]), torch.tensor([[7, 2, 3, -1]]))
        tensor([[1, 2, 0, 3]])
    """
    filled = scores.double().masked_fill(nodes < 0, -torch.inf)
    by_node = torch.argsort(nodes, dim=1, stable=True)
    by_score = torch.argsort(filled.gather(1, by_node), dim=1, descending=True, stable=True)
    return by_node.gather(1, by_score)


def _discounts(scores: Tensor, nodes: Tensor) -> Tensor:
    ranks = torch.arange(1, scores.shape[1] + 1, dtype=torch.float64)
    discount = (1 / torch.log2(1 + ranks)).expand(scores.shape)
    return torch.zeros(scores.shape, dtype=torch.float64).scatter(1, order(scores, nodes), discount) * (nodes >= 0)
