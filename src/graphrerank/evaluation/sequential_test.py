"""A test of a preference that may be looked at after every judgement."""

import math

from scipy.special import betainc, betaln

from graphrerank.utils.checks import UserError


def preference_evidence(wins: int, losses: int) -> tuple[float, float]:
    r"""Measure the evidence that a system is preferred to another one, and that it is not, at any time of a comparison.

    With the probability :math:`p` that it wins a judgement, :math:`w` wins and :math:`l` losses, the evidence for
    :math:`p > 1/2` is the likelihood ratio of a mixture over such :math:`p` to :math:`p = 1/2`:

    .. math:: E = 2^{w + l + 1} \int_{1/2}^1 p^w (1 - p)^l \,dp

    If :math:`p \le 1/2`, :math:`E` is a non-negative supermartingale that begins at 1, so that it ever reaches
    :math:`1 / \alpha` with a probability of at most :math:`\alpha` (Ville's inequality). So for :math:`p < 1/2`.

    Source: Robbins, *Statistical methods related to the law of the iterated logarithm*, 1970. *Where we differ:* the
    two sides are apart.

    Args:
        wins: Judgements that the system won; ties do not count.
        losses: Judgements that it lost.

    Returns:
        Natural logarithms of the evidence for and against it.

    Raises:
        ValueError: If a number is negative.

    Example:
        >>> better, worse = preference_evidence(30, 10)
        >>> better > math.log(20), worse > math.log(20)
        (True, False)
    """
    if min(wins, losses) < 0:
        raise UserError(f"`wins` and `losses` must not be negative, got {wins} and {losses}")
    a, b = wins + 1, losses + 1
    both = (wins + losses + 1) * math.log(2) + float(betaln(a, b))
    above, below = (float(betainc(*ends, 0.5)) for ends in ((b, a), (a, b)))  # shares of the posterior
    return both + math.log(above) if above else -math.inf, both + math.log(below) if below else -math.inf
