"""Relevance estimated from clicks: corrected for positions, doubly robust, one row for each query."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.feedback.log import Session

CLIP = 0.1  # the least propensity that a click is divided by
MAX_GAIN = 2.0
ENOUGH_SESSIONS = 8.0  # of one query, beyond which more say little about other queries


@dataclass(frozen=True)
class Relevance:
    """Estimates for the candidates of each query; ``[Q, K]`` as the lists are."""

    gain: Tensor  # `[Q, K]` float64, clicks at the first rank beyond those on anything; below 0 where fewer were seen
    sessions: Tensor  # `[Q]` float64, weight of each query's sessions; 0 for a query without any
    shown: Tensor  # `[Q, K]` bool, whether a candidate was ever shown

    def select(self, rows: Tensor) -> "Relevance":
        """Return the estimates of some queries."""
        return Relevance(self.gain[rows], self.sessions[rows], self.shown[rows])

    @property
    def weight(self) -> Tensor:
        """How much each query counts, ``[Q]``: its sessions, but at most 8."""
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
    r"""Estimate how often each candidate would be clicked at the first rank, beyond the clicks that anything gets.

    .. math::
        y_d = \hat r_d - \epsilon + \frac{1}{N} \sum_s \frac{c_{sd} - \theta_{k(s, d)} \hat r_d}{\max(\rho_d, \tau)},
        \qquad \rho_d = \frac{1}{N} \sum_s \theta_{k(s, d)}, \qquad \hat r = \epsilon + a\,\mathrm{softmax}(s)

    with the scores :math:`s` of the ranker so far, :math:`\epsilon` the clicks on the lower half of lists, and
    :math:`a` such that as many clicks are expected as there are. What was not shown keeps its expectation; with one
    rank for each passage and no clipping it is inverse propensity weighting.

    Source: Oosterhuis, "Doubly-Robust Estimation for Correcting Position-Bias in Click Feedback for Unbiased Learning
    to Rank", 2023, Eq. (25) without trust bias.

    Args:
        sessions: ``S`` lists shown.
        weights: ``[S]`` of each.
        rows: Row of each session's query.
        columns: For each row, the column of each passage id among its candidates; others do not count.
        curve: ``[R]`` propensities by rank.
        scores: ``[Q, K]`` of the ranker so far.
        mask: ``[Q, K]`` bool, whether there is a candidate.
    """
    at: list[tuple[int, int, float, float]] = []
    low = [1e-9, 0.0]  # looks at the lower halves of lists, and clicks there
    total = torch.zeros(len(scores), dtype=torch.float64)
    looks = curve.tolist()
    for session, weight, row in zip(sessions, weights.tolist(), rows, strict=True):
        total[row] += weight
        for rank, (name, gain) in enumerate(zip(session.ids, session.gains, strict=True)):
            look, click = weight * looks[rank], weight * min(gain, MAX_GAIN)
            if 2 * rank >= len(session.ids):
                low[0] += look
                low[1] += click
            if (column := columns[row].get(name)) is not None:
                at.append((row, column, look, click))
    seen, clicks = torch.zeros(2, *scores.shape, dtype=torch.float64)
    if at:
        table = torch.tensor(at, dtype=torch.float64)
        index = tuple(table[:, :2].long().T)
        seen.index_put_(index, table[:, 2], accumulate=True)
        clicks.index_put_(index, table[:, 3], accumulate=True)
    shown, floor = seen > 0, low[1] / low[0]
    of_ranker = torch.softmax(scores.double().masked_fill(~mask, -1e30), dim=1) * mask
    expected = float((seen * of_ranker).sum())
    excess = max(0.0, float(clicks.sum()) - floor * float(seen.sum())) / expected if expected > 0 else 0.0
    prior = excess * of_ranker
    count = total.clamp(min=1e-9).unsqueeze(1)
    share = seen / count
    residual = (clicks / count - share * (floor + prior)) / share.clamp(min=CLIP)
    estimate = torch.where(shown, prior + residual, prior) * (total > 0).unsqueeze(1)
    return Relevance(estimate, total, shown)


def compare_worth(new: Tensor, old: Tensor, nodes: Tensor, relevance: Relevance) -> Tensor:
    r"""Compare two rankers by estimated clicks on what was shown, discounted as in DCG: ``[Q]`` float64.

    .. math:: w_q \sum_d y_d \left(\frac{1}{\log_2(1 + r_d)} - \frac{1}{\log_2(1 + r'_d)}\right)

    with the query's :attr:`~Relevance.weight`, and ranks among what was shown: no click speaks for or against the rest.
    ``new`` and ``old`` are the scores ``[Q, K]`` of ``nodes``.
    """
    nodes = nodes.masked_fill(~relevance.shown, -1)
    difference = _discounts(new, nodes) - _discounts(old, nodes)
    return relevance.weight * (difference * relevance.gain).sum(1)


def order(scores: Tensor, nodes: Tensor) -> Tensor:
    """Return the columns of each row best first, ties by node, padding last: ``[Q, K]``."""
    filled = scores.double().masked_fill(nodes < 0, -torch.inf)
    by_node = torch.argsort(nodes, dim=1, stable=True)
    by_score = torch.argsort(filled.gather(1, by_node), dim=1, descending=True, stable=True)
    return by_node.gather(1, by_score)


def _discounts(scores: Tensor, nodes: Tensor) -> Tensor:
    ranks = torch.arange(1, scores.shape[1] + 1, dtype=torch.float64)
    discount = (1 / torch.log2(1 + ranks)).expand(scores.shape)
    return torch.zeros(scores.shape, dtype=torch.float64).scatter(1, order(scores, nodes), discount) * (nodes >= 0)
