"""KET-RAG's Figure 2: the number of chunks by their neighbours in the graph of nearest chunks."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from scipy.optimize import minimize_scalar
from scipy.special import zeta
from torch import Tensor

CENTRAL = 0.01  # share of the chunks whose share of the ends of edges is reported


def count_degrees(edges: Tensor, num_chunks: int) -> dict[str, Any]:
    """Describe the degrees of chunks over undirected ``edges``, ``[E, 2]``.

    Returns:
        ``counts`` (chunks by degree, ascending), ``chunks``, the ``mean`` and ``greatest`` degree, ``central_share``
        (share of the ends of edges at the 1% of the chunks with most), and the results of :func:`fit_power_law`.

    Example:
        >>> count_degrees(torch.tensor([[0, 1], [0, 2]]), 4)["counts"]
        {0: 1, 1: 2, 2: 1}
    """
    degree = torch.bincount(edges.flatten(), minlength=num_chunks)
    values, numbers = torch.unique(degree, return_counts=True)
    counts = dict(zip(values.tolist(), numbers.tolist(), strict=True))
    most = degree.sort(descending=True).values[: max(1, round(CENTRAL * num_chunks))]
    exponent, gain = fit_power_law({degree: count for degree, count in counts.items() if degree})
    return {
        "chunks": num_chunks,
        "mean": float(degree.double().mean()),
        "greatest": max(counts, default=0),
        "central_share": float(most.sum() / degree.sum()) if len(edges) else 0.0,
        "exponent": exponent,
        "power_law_gain": gain,
        "counts": counts,
    }


def fit_power_law(counts: Mapping[int, int]) -> tuple[float, float]:
    r"""Fit a power law to degrees above 0, and compare it with a geometric distribution, whose tail is exponential.

    .. math:: p(k) = \frac{k^{-\gamma}}{\zeta(\gamma, k_{min})}, \qquad q(k) = (1 - r) r^{k - k_{min}}

    both from the least degree :math:`k_{min}` on, by maximum likelihood. Source: Clauset et al., *Power-Law
    Distributions in Empirical Data*, 2009, section 3.1. *Where we differ:* the least degree is not searched for.

    Returns:
        The exponent, and the log-likelihood of the power law minus that of the geometric distribution: negative where
        the latter fits better. NaN where the degrees are all equal, or there is none.
    """
    if len(counts) < 2:
        return torch.nan, torch.nan
    least, number = min(counts), sum(counts.values())
    logs = sum(count * math.log(degree) for degree, count in counts.items())
    fit = minimize_scalar(
        lambda exponent: number * math.log(zeta(exponent, least)) + exponent * logs, bounds=(1.01, 50), method="bounded"
    )
    beyond = sum(count * (degree - least) for degree, count in counts.items())
    ratio = beyond / (beyond + number)
    geometric = number * math.log(1 - ratio) + beyond * math.log(ratio)
    return float(fit.x), -float(fit.fun) - geometric
