"""A test of a preference that may be looked at after every judgement."""

import math

from scipy.special import betainc, betaln

from graphrerank.checks import UserError


def preference_evidence(wins: int, losses: int, *, prior: float = 1.0) -> tuple[float, float]:
    r"""Measure the evidence that one of two systems is preferred, and that it is not, at any time of a comparison.

    With the probability :math:`p` that it wins a judgement that is no tie, :math:`w` wins and :math:`l` losses, the
    evidence for :math:`p > 1/2` is the likelihood ratio with a mixture over such :math:`p`:

    .. math:: E = \frac{\int_{1/2}^1 p^w (1 - p)^l \,dB(p)}{2^{-(w + l)} \int_{1/2}^1 dB(p)}

    where :math:`B` is the Beta distribution with both parameters ``prior``. Where :math:`p \le 1/2`, it is a
    non-negative supermartingale that begins at 1, so the probability that it ever reaches :math:`1 / \alpha` is at
    most :math:`\alpha` (Ville's inequality). The other number is the same for :math:`p < 1/2`.

    Source: Robbins, *Statistical methods related to the law of the iterated logarithm*, 1970; Howard et al.,
    *Time-uniform, nonparametric, nonasymptotic confidence sequences*, 2021. *Where we differ:* both sides are apart.

    Args:
        wins: Judgements that the system won; ties do not count.
        losses: Judgements that it lost.
        prior: Positive; larger ones find small preferences later and wait less for large numbers of judgements.

    Returns:
        Natural logarithms of the evidence for and against it.

    Raises:
        ValueError: If a number is negative.

    Example:
        >>> better, worse = preference_evidence(30, 10)
        >>> better > math.log(20), worse > math.log(20)
        (True, False)
    """
    if min(wins, losses) < 0 or prior <= 0:
        raise UserError(f"`wins` and `losses` must not be negative, `prior` positive, got {wins}, {losses}, {prior}")
    a, b = wins + prior, losses + prior
    both = (wins + losses + 1) * math.log(2) + float(betaln(a, b) - betaln(prior, prior))
    above, below = (float(betainc(*ends, 0.5)) for ends in ((b, a), (a, b)))  # shares of the posterior
    return both + math.log(above) if above else -math.inf, both + math.log(below) if below else -math.inf
