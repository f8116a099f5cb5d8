"""Position bias: how likely users look at each rank, estimated from a log, and the bounds of a single user."""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from graphrerank.feedback.log import Session

SLOPE, SLOPE_SPREAD = 0.5, 0.4  # of the curve that is assumed where a log says nothing: rank to the power of -0.5
RANK_SPREAD = 0.15  # of a single rank's logarithm around the curve
NUM_RANKS = 1000  # that a curve covers
LEAST_SHARE = 0.02  # of a random order, that clicks are divided by
USER_SHARE, USER_SESSIONS = 0.02, 5.0  # share of what all users count, or number of sessions, that one counts at most


@dataclass(frozen=True)
class Propensities:
    """The probability that a user looks at a rank, relative to the first one."""

    curve: Tensor  # `[RANKS]` float64, 1 at the first rank
    cautious: Tensor  # the same, flatter by one standard error of the slope: clicks far down count less
    slope: float
    error: float  # standard error of the slope
    source: str  # what it was estimated from

    def __str__(self) -> str:
        first = ", ".join(f"{share:.2f}" for share in self.curve[[0, 1, 2, 4, 9]].tolist())
        curve = f"rank^-{self.slope:.2f} (± {self.error:.2f}), at ranks 1, 2, 3, 5, 10 {first}"
        return f"position bias: {curve}; {self.source}"


def user_weights(sessions: Sequence[Session], *, anonymous_as_one: bool = True) -> Tensor:
    """Weigh sessions so that no user counts more than 2 % of what all users count together, or 5 sessions.

    Repeats of a query by one user count once together. The limit is a share of the weights that result, not of the
    number of sessions, since otherwise a user could raise it by sending more of them.

    Args:
        sessions: ``S`` lists shown.
        anonymous_as_one: Whether all sessions without an authenticated user count as those of one user. If False, names
            that clients chose tell users apart, and each session without a name is that of another user.

    Returns:
        Weights ``[S]`` float64, in (0, 1].
    """
    users: list[Hashable] = [
        session.known_user if anonymous_as_one else number if session.user is None else session.user
        for number, session in enumerate(sessions)
    ]
    repeats = Counter((user, session.query) for user, session in zip(users, sessions, strict=True))
    queries = Counter(user for user, _ in repeats)
    most = _most_of_user(list(queries.values()))
    weights = [
        min(1.0, most / queries[user]) / repeats[user, session.query]
        for user, session in zip(users, sessions, strict=True)
    ]
    return torch.tensor(weights, dtype=torch.float64)


def _most_of_user(counts: Sequence[int]) -> float:
    """Return the largest limit that is at most 2 % of the sum of all counts under that limit, and at least 5.

    With the ``k`` largest counts at the limit ``c`` and the others adding up to ``r``, ``c = 0.02 (k c + r)``.
    """
    ordered = sorted(counts, reverse=True)
    rest = sum(ordered)
    for num_limited, count in enumerate(ordered):
        share = 1 - USER_SHARE * num_limited
        if share < USER_SHARE / 2:  # 50 users at the limit are 100 %
            break
        limit = USER_SHARE * rest / share
        if count <= limit:
            return max(USER_SESSIONS, limit)
        rest -= count
    return USER_SESSIONS


def estimate_propensities(sessions: Sequence[Session], weights: Tensor) -> Propensities:
    r"""Estimate the position bias from randomised swaps and from ranks at which one query showed the same passage.

    Where chance, or another ranker, puts a passage of a query at rank i here and at j there, its relevance is the same,
    so that the ratio of clicks is that of the propensities:

    .. math::
        \log\theta_j - \log\theta_i = \log\frac{C_j}{C_i} \pm \sqrt{1/n_i + 1/n_j}, \qquad
        \log\theta_k = -\eta \log k + u_k

    with clicks :math:`C` divided by the probability of the order that was shown, whose effective number is :math:`n`.
    Least squares over all pairs of ranks, with the priors :math:`\eta \sim N(0.5, 0.4^2)`, which holds where there is
    no evidence, and :math:`u_k \sim N(0, 0.15^2)`.

    Source: Joachims, Swaminathan and Schnabel, "Unbiased Learning-to-Rank with Biased Feedback", 2017 (swaps); Agarwal
    et al., "Estimating Position Bias without Intrusive Interventions", 2019 (harvested pairs). *Where we differ:* the
    parametric curve, and priors in the place of a minimum of evidence.
    """
    clicks: dict[tuple[int, int], list[float]] = {}  # by ranks i, j: sums of weights and of their squares, of each
    swaps = harvested = 0

    def add(i: int, j: int, parts: Sequence[tuple[float, float]]) -> None:
        """Count clicks at ranks i and j, each with its weight."""
        sums = clicks.setdefault((i, j), [0.0] * 4)
        for end, (count, weight) in enumerate(parts):
            sums[2 * end] += count * weight
            sums[2 * end + 1] += count * weight**2

    for session, weight in zip(sessions, weights.tolist(), strict=True):
        for first, second, share in session.swaps:
            (i, j), swaps = sorted((first, second)), swaps + 1
            add(i, j, [(min(1.0, session.gains[rank - 1]), weight * 0.5 / max(share, LEAST_SHARE)) for rank in (i, j)])
    for ranks in _ranks_seen(sessions, weights) if not swaps else ():
        for i, j in combinations(sorted(ranks), 2):
            harvested, fewer = harvested + 1, min(ranks[i][0], ranks[j][0])
            add(i, j, [(ranks[rank][1], fewer / max(ranks[rank][0], 1e-9)) for rank in (i, j)])
    last = max((j for _, j in clicks), default=1)
    # unknowns: the slope's difference from the prior, and u of ranks 2, 3, ..., last
    precision = torch.diag(torch.tensor([SLOPE_SPREAD**-2, *[RANK_SPREAD**-2] * (last - 1)], dtype=torch.float64))
    moment = torch.zeros(last, dtype=torch.float64)
    for (i, j), sums in clicks.items():
        row = torch.zeros(last, dtype=torch.float64)
        row[0] = -math.log(j / i)
        row[j - 1] += 1.0
        if i > 1:
            row[i - 1] -= 1.0
        of_i, of_j = sums[0] + 0.5, sums[2] + 0.5
        variance = (sums[1] + 0.5) / of_i**2 + (sums[3] + 0.5) / of_j**2
        precision += torch.outer(row, row) / variance
        moment += row * (math.log(of_j / of_i) + SLOPE * math.log(j / i)) / variance
    found = torch.linalg.solve(precision, moment)
    error = float(torch.linalg.inv(precision)[0, 0].sqrt())
    slope = max(0.0, SLOPE + float(found[0]))
    single = torch.zeros(NUM_RANKS, dtype=torch.float64)
    single[1 : min(last, NUM_RANKS)] = found[1 : min(last, NUM_RANKS)]
    log_rank = torch.arange(1, NUM_RANKS + 1, dtype=torch.float64).log()
    curve, cautious = (torch.exp(single - eta * log_rank).clamp(max=1.0) for eta in (slope, max(0.0, slope - error)))
    source = f"from {swaps:,} random swaps" if swaps else f"from {harvested:,} passages at two ranks for one query"
    if not swaps and not harvested:
        source = "assumed, as the log has no random swaps and no passage at two ranks for one query"
    return Propensities(curve, cautious, slope, error, source)


def _ranks_seen(sessions: Sequence[Session], weights: Tensor) -> Iterable[dict[int, list[float]]]:
    """Count views and clicks of each query's passages by rank."""
    seen: dict[tuple[str, str], dict[int, list[float]]] = {}
    for session, weight in zip(sessions, weights.tolist(), strict=True):
        for rank, (name, gain) in enumerate(zip(session.ids, session.gains, strict=True), 1):
            shown = seen.setdefault((session.query, name), {}).setdefault(rank, [0.0, 0.0])
            shown[0] += weight
            shown[1] += weight * min(1.0, gain)
    return seen.values()
