"""How large a difference must be for a number of questions to show it."""

from dataclasses import dataclass
from math import ceil, sqrt
from statistics import NormalDist

import torch
from torch import Tensor

LEVEL, POWER = 0.05, 0.8


@dataclass(frozen=True)
class MinimumEffect:
    r"""The smallest mean difference of two systems that a test over some questions finds as a rule.

    .. math:: \delta = (z_{1 - \alpha / 2} + z_{1 - \beta})\, \frac{s}{\sqrt{Q}}

    with :math:`\alpha = 0.05`, two-sided, found in :math:`1 - \beta = 0.8` of all cases, and :math:`s` the standard
    deviation of the questions' differences.

    Source: Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988, chapter 2 (paired samples; the
    normal approximation); for search, Sakai, "Statistical Reform in Information Retrieval?", 2014.
    """

    num_queries: int  # Q, those that count
    deviation: float  # s, as a fraction

    @property
    def effect(self) -> float:
        """The difference, as a fraction."""
        return _factor() * self.deviation / sqrt(self.num_queries)

    def queries_for(self, effect: float) -> int:
        """Return how many questions would show a difference, not 0.

        Example:
            >>> MinimumEffect(num_queries=100, deviation=0.3).queries_for(0.05)
            283
        """
        return ceil((_factor() * self.deviation / effect) ** 2)


def minimum_effect(system: Tensor, baseline: Tensor) -> MinimumEffect | None:
    """Measure the spread of the questions' differences.

    Args:
        system: ``[Q]``, a measure per query; NaN = the query does not count.
        baseline: ``[Q]``, that of the other system.

    Returns:
        None if fewer than two questions count, or none differs: nothing can be said then.
    """
    difference = (system - baseline).double()
    difference = difference[~torch.isnan(difference)]
    if len(difference) < 2 or not bool((difference != difference[0]).any()):
        return None
    return MinimumEffect(len(difference), float(difference.std()))


def _factor() -> float:
    normal = NormalDist()
    return normal.inv_cdf(1 - LEVEL / 2) + normal.inv_cdf(POWER)
