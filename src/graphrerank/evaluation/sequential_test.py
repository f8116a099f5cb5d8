"""Sequential test of a preference. It remains valid if its result is checked after every judgement."""

import math

from scipy.special import betainc, betaln

from graphrerank.utils.checks import UserError


def preference_evidence(wins: int, losses: int) -> tuple[float, float]:
    r"""Measure the evidence that one system is preferred to another, and the evidence for the opposite.

    Let :math:`p` be the probability that the system wins a judgement. After :math:`w` wins and :math:`l` losses, the
    evidence for :math:`p > 1/2` is the likelihood ratio of a uniform mixture of all :math:`p > 1/2` to
    :math:`p = 1/2`:

    .. math:: E = 2^{w + l + 1} \int_{1/2}^1 p^w (1 - p)^l \,dp

    If :math:`p \le 1/2`, :math:`E` is a non-negative supermartingale that starts at 1. By Ville's inequality, the
    probability that it ever reaches :math:`1 / \alpha` is at most :math:`\alpha`. The evidence for :math:`p < 1/2` is
    defined in the same way.

    Source: Robbins, *Statistical methods related to the law of the iterated logarithm*, 1970. *Differences from the
    paper:* the evidence is computed separately for the two sides.

    Args:
        wins: Number of judgements that the system won, without ties.
        losses: Number of judgements that the system lost.

    Returns:
        Natural logarithms of the evidence for :math:`p > 1/2` and of the evidence for :math:`p < 1/2`.

    Raises:
        UserError: If a number is negative.

    Example:
        >>> better, worse = preference_evidence(30, 10)
        >>> better > math.log(20), worse > math.log(20)
        (True, False)
    """
    if min(wins, losses) < 0:
        raise UserError(f"`wins` and `losses` must not be negative, got {wins} and {losses}")
    a, b = wins + 1, losses + 1
    both = (wins + losses + 1) * math.log(2) + float(betaln(a, b))
    above, below = (float(betainc(*ends, 0.5)) for ends in ((b, a), (a, b)))  # posterior mass above and below 1/2
    return both + math.log(above) if above else -math.inf, both + math.log(below) if below else -math.inf
