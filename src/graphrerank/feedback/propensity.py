"""Estimate position bias (how likely users look at each rank) from a log, and limit the influence of a single user."""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from graphrerank.feedback.log import Session

SLOPE, SLOPE_SPREAD = 0.5, 0.4  # mean and standard deviation of the prior on eta in the curve rank^-eta
RANK_SPREAD = 0.15  # standard deviation of the prior on a single rank's log deviation from the curve
NUM_RANKS = 1000  # number of ranks of a curve
LEAST_SHARE = 0.02  # smallest probability of a random order that clicks are divided by
USER_SHARE, USER_SESSIONS = 0.02, 5.0  # a user's weight is limited to this share of the total or number of sessions


@dataclass(frozen=True)
class Propensities:
    """Probability that a user looks at a rank, relative to the first rank.

    Attributes:
        curve: Probability of each rank, ``[NUM_RANKS]`` (float64), 1 at the first rank.
        cautious: The same curve, flatter by one standard error of the slope, which gives less weight to clicks far
            down.
        slope: Estimated exponent ``eta`` in ``rank^-eta``.
        error: Standard error of the slope.
        source: Description of the evidence.
    """

    curve: Tensor
    cautious: Tensor
    slope: float
    error: float
    source: str

    def __str__(self) -> str:
        first = ", ".join(f"{share:.2f}" for share in self.curve[[0, 1, 2, 4, 9]].tolist())
        curve = f"rank^-{self.slope:.2f} (± {self.error:.2f}), at ranks 1, 2, 3, 5, 10 {first}"
        return f"position bias: {curve}; {self.source}"


def user_weights(sessions: Sequence[Session], *, anonymous_as_one: bool = True) -> Tensor:
    """Return weights of sessions that limit each user to 2 % of the total weight or to 5 sessions, whichever is larger.

    Repetitions of a query by one user together count once. The limit is a share of the resulting weights and not of the
    number of sessions, so that a user cannot raise it by sending more sessions.

    Args:
        sessions: ``S`` sessions, each a list that was shown with the feedback on it.
        anonymous_as_one: Whether all sessions without an authenticated user count as sessions of a single user. If
            False, users are distinguished by the names that clients chose, and each session without a name is a
            different user.

    Returns:
        Weights ``[S]`` (float64) in (0, 1].
    """
    users: list[Hashable] = []
    for number, session in enumerate(sessions):
        if anonymous_as_one:
            users.append(session.known_user)
        else:
            users.append(number if session.user is None else session.user)
    repeats = Counter((user, session.query) for user, session in zip(users, sessions, strict=True))
    queries = Counter(user for user, _ in repeats)
    limit = _limit_of_user(list(queries.values()))
    weights = [
        min(1.0, limit / queries[user]) / repeats[user, session.query]
        for user, session in zip(users, sessions, strict=True)
    ]
    return torch.tensor(weights, dtype=torch.float64)


def _limit_of_user(counts: Sequence[int]) -> float:
    """Return the largest limit that is at most 2 % of the sum of the limited counts, but at least 5.

    If the ``k`` largest counts are limited to ``c`` and the others add up to ``r``, then ``c = 0.02 (k c + r)``.
    """
    ordered = sorted(counts, reverse=True)
    unlimited = sum(ordered)  # sum of the counts that are not limited
    for num_limited, count in enumerate(ordered):
        share = 1 - USER_SHARE * num_limited
        if share < USER_SHARE / 2:  # 50 users at the limit make up 100 %
            break
        limit = USER_SHARE * unlimited / share
        if count <= limit:
            return max(USER_SESSIONS, limit)
        unlimited -= count
    return USER_SESSIONS


def estimate_propensities(sessions: Sequence[Session], weights: Tensor) -> Propensities:
    r"""Estimate the position bias from random swaps, or from passages that one query showed at different ranks.

    If chance or another ranker moves a passage of a query between ranks i and j, its relevance is the same at both
    ranks, so the ratio of clicks is the ratio of propensities:

    .. math::
        \log\theta_j - \log\theta_i = \log\frac{C_j}{C_i} \pm \sqrt{1/n_i + 1/n_j}, \qquad
        \log\theta_k = -\eta \log k + u_k

    where :math:`C` is the number of clicks divided by the probability of the order that was shown, and :math:`n` is its
    effective sample size. The parameters are estimated by least squares over all pairs of ranks, with the priors
    :math:`\eta \sim N(0.5, 0.4^2)`, which is the result without evidence, and :math:`u_k \sim N(0, 0.15^2)`.

    Source: Joachims, Swaminathan and Schnabel, "Unbiased Learning-to-Rank with Biased Feedback", 2017 (swaps); Agarwal
    et al., "Estimating Position Bias without Intrusive Interventions", 2019 (harvested pairs).

    *Differences from the papers:* the curve is parametric, and priors replace a minimum amount of evidence.

    Args:
        sessions: ``S`` sessions, each a list that was shown with the feedback on it.
        weights: Weight of each session, ``[S]``.

    Returns:
        The estimated propensities.
    """
    evidence = _swap_evidence(sessions, weights)
    source = f"estimated from {evidence.num_passages:,} random swaps"
    if not evidence.num_passages:
        evidence = _harvested_evidence(sessions, weights)
        source = f"estimated from {evidence.num_passages:,} passages that one query showed at two ranks"
    if not evidence.num_passages:
        source = "assumed, because the log has no random swaps and no passage that one query showed at two ranks"
    return _fitted_propensities(evidence, source)


@dataclass
class _RankClicks:
    """Weighted clicks at one rank.

    Attributes:
        total: Sum of the clicks' weights.
        squares: Sum of the clicks' squared weights.
    """

    total: float = 0.0
    squares: float = 0.0

    def add(self, count: float, weight: float) -> None:
        """Add a number of clicks with the same weight."""
        self.total += count * weight
        self.squares += count * weight**2


class _PairClicks(NamedTuple):
    """Clicks on passages that were shown at two ranks.

    Attributes:
        upper: Clicks at the rank nearer to the top.
        lower: Clicks at the other rank.
    """

    upper: _RankClicks
    lower: _RankClicks


@dataclass
class _Evidence:
    """Evidence of the position bias.

    Attributes:
        clicks: Clicks by pair of ranks, the rank nearer to the top first.
        num_passages: Number of passages and pairs of ranks that were counted.
    """

    clicks: dict[tuple[int, int], _PairClicks] = field(default_factory=dict)
    num_passages: int = 0

    def add_passage(self, upper: int, lower: int) -> _PairClicks:
        """Count a passage at two ranks, and return the clicks at these ranks, for the caller to add its clicks."""
        self.num_passages += 1
        return self.clicks.setdefault((upper, lower), _PairClicks(_RankClicks(), _RankClicks()))


def _swap_evidence(sessions: Sequence[Session], weights: Tensor) -> _Evidence:
    """Return the clicks on results that were swapped at random."""
    evidence = _Evidence()
    for session, weight in zip(sessions, weights.tolist(), strict=True):
        for first, second, probability in session.swaps:
            ranks = sorted((first, second))
            clicks = evidence.add_passage(*ranks)
            inverse_weight = weight * 0.5 / max(probability, LEAST_SHARE)
            for rank, rank_clicks in zip(ranks, clicks, strict=True):
                rank_clicks.add(min(1.0, session.gains[rank - 1]), inverse_weight)
    return evidence


def _harvested_evidence(sessions: Sequence[Session], weights: Tensor) -> _Evidence:
    """Return the clicks on passages that one query showed at different ranks, weighted to the same number of views."""
    evidence = _Evidence()
    for counts_of_rank in _counts_by_rank(sessions, weights):
        for ranks in combinations(sorted(counts_of_rank), 2):
            clicks = evidence.add_passage(*ranks)
            fewer_views = min(counts_of_rank[rank].views for rank in ranks)
            for rank, rank_clicks in zip(ranks, clicks, strict=True):
                counts = counts_of_rank[rank]
                rank_clicks.add(counts.clicks, fewer_views / max(counts.views, 1e-9))
    return evidence


def _fitted_propensities(evidence: _Evidence, source: str) -> Propensities:
    """Fit the curve of propensities to the evidence by least squares with the priors."""
    last = max((lower for _, lower in evidence.clicks), default=1)
    # Unknowns: difference of the slope from its prior mean, then u of ranks 2, 3, ..., last.
    precision = torch.diag(torch.tensor([SLOPE_SPREAD**-2, *[RANK_SPREAD**-2] * (last - 1)], dtype=torch.float64))
    moment = torch.zeros(last, dtype=torch.float64)
    for (i, j), clicks in evidence.clicks.items():
        row = torch.zeros(last, dtype=torch.float64)
        row[0] = -math.log(j / i)
        row[j - 1] += 1.0
        if i > 1:
            row[i - 1] -= 1.0
        clicks_i = clicks.upper.total + 0.5
        clicks_j = clicks.lower.total + 0.5
        variance = (clicks.upper.squares + 0.5) / clicks_i**2 + (clicks.lower.squares + 0.5) / clicks_j**2
        precision += torch.outer(row, row) / variance
        moment += row * (math.log(clicks_j / clicks_i) + SLOPE * math.log(j / i)) / variance
    solution = torch.linalg.solve(precision, moment)
    error = float(torch.linalg.inv(precision)[0, 0].sqrt())
    slope = max(0.0, SLOPE + float(solution[0]))
    rank_effects = torch.zeros(NUM_RANKS, dtype=torch.float64)  # u of the equation
    rank_effects[1 : min(last, NUM_RANKS)] = solution[1 : min(last, NUM_RANKS)]
    log_rank = torch.arange(1, NUM_RANKS + 1, dtype=torch.float64).log()
    curve, cautious = (
        torch.exp(rank_effects - eta * log_rank).clamp(max=1.0) for eta in (slope, max(0.0, slope - error))
    )
    return Propensities(curve, cautious, slope, error, source)


@dataclass
class _RankCounts:
    """Weighted counts of one passage of a query at one rank.

    Attributes:
        views: Weighted number of views.
        clicks: Weighted number of clicks.
    """

    views: float = 0.0
    clicks: float = 0.0


def _counts_by_rank(sessions: Sequence[Session], weights: Tensor) -> Iterable[dict[int, _RankCounts]]:
    """Return, for each passage of each query, its counts by rank."""
    counts: dict[tuple[str, str], dict[int, _RankCounts]] = {}
    for session, weight in zip(sessions, weights.tolist(), strict=True):
        for rank, (name, gain) in enumerate(zip(session.ids, session.gains, strict=True), 1):
            counts_of_rank = counts.setdefault((session.query, name), {})
            rank_counts = counts_of_rank.setdefault(rank, _RankCounts())
            rank_counts.views += weight
            rank_counts.clicks += weight * min(1.0, gain)
    return counts.values()
